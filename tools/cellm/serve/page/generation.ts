// Replies under way. A reply belongs to its conversation, not to the column that shows it: it goes
// on while its column is closed. Several run at once, each on a connection of its own, and the
// server computes them in the same steps.
import {
  ChatRequest,
  Failure,
  goneFailure,
  isAbort,
  startChat,
  toFailure,
} from "./api";
import {
  Conversation,
  Sampling,
  Turn,
  TurnStats,
  messagesFor,
  sessionOf,
} from "./conversation";
import { readStream } from "./stream";
import { addCallDeltas } from "./tool_calls";

// A browser keeps six connections to one server; one is for the engine's numbers.
export const MOST_STREAMS = 5;

// How often a busy server is asked again before the user has to.
const MOST_RETRIES = 20;
const LEAST_RETRY_MS = 250;
// After so many conflicts a reply is asked for without its session: another tab is using it.
const MOST_CONFLICTS = 8;

export interface Progress {
  readonly conversation: Conversation;
  readonly turn: Turn;
  // What it does: waits its turn, reads the prompt, writes.
  phase: "waiting" | "reading" | "writing";
  note: string;
  tokens: number; // deltas so far, near enough to tokens
  started_at: number; // when the first one came, performance.now()
  failure: Failure | null;
}

export type ProgressListener = (progress: Progress, ended: boolean) => void;

interface Delta {
  readonly content?: string | null;
  readonly reasoning_content?: string | null;
  readonly tool_calls?: unknown;
}

export class Generations {
  tokens_written = 0; // by all replies so far
  private readonly running = new Map<string, { abort: AbortController; progress: Progress }>();

  // `use_sessions` is asked before each request.
  constructor(
    private readonly listener: ProgressListener,
    private readonly use_sessions: () => boolean,
  ) {}

  isRunning(conversation_id: string): boolean {
    return this.running.has(conversation_id);
  }
  progressOf(conversation_id: string): Progress | null {
    return this.running.get(conversation_id)?.progress ?? null;
  }
  count(): number {
    return this.running.size;
  }
  all(): Progress[] {
    return Array.from(this.running.values(), (each) => each.progress);
  }
  stop(conversation_id: string): void {
    this.running.get(conversation_id)?.abort.abort();
  }

  // Has `turn`, the last of what is shown, answered, once `prepare` is done. Never throws: the turn's
  // state and the progress' failure say how it ended.
  async run(conversation: Conversation, turn: Turn, prepare: () => Promise<void>): Promise<void> {
    const abort = new AbortController();
    const progress: Progress = {
      conversation,
      turn,
      phase: "waiting",
      note: "",
      tokens: 0,
      started_at: 0,
      failure: null,
    };
    this.running.set(conversation.id, { abort, progress });
    this.listener(progress, false);
    try {
      await prepare();
      const response = await this.begin(progress, abort.signal);
      await this.read(response, progress);
    } catch (error) {
      this.fail(progress, error);
    }
    this.running.delete(conversation.id);
    this.listener(progress, true);
  }

  private async begin(progress: Progress, signal: AbortSignal): Promise<Response> {
    const { conversation, turn } = progress;
    const sampling: Sampling = conversation.sampling;
    let request: ChatRequest = {
      model: conversation.model,
      messages: messagesFor(conversation, turn),
      sampling,
      session: this.use_sessions() ? sessionOf(conversation, turn) : null,
    };
    for (let tries = 0; ; tries++) {
      try {
        return await startChat(request, signal);
      } catch (error) {
        const again =
          error instanceof Failure &&
          (error.kind === "busy" || error.kind === "conflict") &&
          tries < MOST_RETRIES;
        if (!again) throw error;
        if (error.code === "session_model" || (error.kind === "conflict" && tries >= MOST_CONFLICTS)) {
          // The session is another model's, or another tab's. The engine still finds what it knows.
          request = { ...request, session: null };
          continue;
        }
        // A conflict is a reply that was just stopped and ends with the server's next step.
        const wait_ms = Math.max(error.retry_after_s * 1000, LEAST_RETRY_MS);
        if (error.kind === "busy") {
          progress.note = `The server is busy; asking again in ${Math.ceil(wait_ms / 1000)} s`;
          this.listener(progress, false);
        }
        await sleep(wait_ms, signal);
      }
    }
  }

  private async read(response: Response, progress: Progress): Promise<void> {
    const { turn } = progress;
    if (response.body === null) throw goneFailure();
    let finish = "";
    let whole = false;
    const reasoning_from = performance.now();
    progress.phase = "reading";
    progress.note = "";
    await readStream(response.body, (item) => {
      if (item.kind === "comment") {
        progress.note = item.text;
        this.listener(progress, false);
        return;
      }
      if (item.data === "[DONE]") {
        whole = true;
        return;
      }
      const chunk = JSON.parse(item.data) as Record<string, unknown>;
      if (chunk["error"] !== undefined) throw toFailure(0, chunk, 0);
      const stats = readStats(chunk);
      if (stats !== null) turn.stats = stats;
      const choice = (chunk["choices"] as Record<string, unknown>[] | undefined)?.[0];
      if (choice === undefined) return;
      if (typeof choice["finish_reason"] === "string") finish = choice["finish_reason"];
      this.take(progress, (choice["delta"] ?? {}) as Delta, reasoning_from);
    });
    if (!whole) throw new Failure("gone", "The connection broke before the reply was complete.");
    turn.state = finish === "length" ? "length" : "done";
  }

  private take(progress: Progress, delta: Delta, reasoning_from: number): void {
    const { turn } = progress;
    const content = delta.content ?? "";
    const reasoning = delta.reasoning_content ?? "";
    const called = addCallDeltas(turn.calls, delta.tool_calls);
    if (content === "" && reasoning === "" && !called) return;
    this.tokens_written++;
    if (progress.tokens++ === 0) progress.started_at = performance.now();
    progress.phase = "writing";
    progress.note = "";
    turn.text += content;
    turn.reasoning += reasoning;
    if (reasoning !== "") turn.reasoning_ms = performance.now() - reasoning_from;
    this.listener(progress, false);
  }

  private fail(progress: Progress, error: unknown): void {
    const { turn } = progress;
    if (isAbort(error)) {
      turn.state = "stopped";
      return;
    }
    turn.state = "failed";
    if (error instanceof Failure) {
      progress.failure = error;
    } else if (error instanceof TypeError) {
      progress.failure = new Failure(
        "gone",
        turn.text === "" && turn.reasoning === "" && turn.calls.length === 0
          ? goneFailure().message
          : "The connection broke before the reply was complete.",
      );
    } else {
      progress.failure = new Failure("server", `The reply cannot be read: ${String(error)}`);
    }
    turn.note = progress.failure.message;
  }
}

// Live rate of a reply under way; 0 before there is one.
export function liveRate(progress: Progress): number {
  const seconds = (performance.now() - progress.started_at) / 1000;
  return progress.tokens > 1 && seconds > 0.05 ? (progress.tokens - 1) / seconds : 0;
}

function readStats(chunk: Record<string, unknown>): TurnStats | null {
  const usage = chunk["usage"] as Record<string, unknown> | null | undefined;
  if (usage === null || usage === undefined) return null;
  const timings = (chunk["timings"] ?? {}) as Record<string, unknown>;
  const details = (usage["prompt_tokens_details"] ?? {}) as Record<string, unknown>;
  const number = (value: unknown): number => (typeof value === "number" ? value : 0);
  return {
    prompt_tokens: number(usage["prompt_tokens"]),
    cached_tokens: number(details["cached_tokens"]),
    generated_tokens: number(usage["completion_tokens"]),
    first_token_ms: number(timings["first_token_ms"]),
    tokens_per_second: number(timings["predicted_per_second"]),
    seed: typeof timings["seed"] === "number" ? timings["seed"] : null,
  };
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
