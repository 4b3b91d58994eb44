// Calls to the server that this page came from. Paths are relative, so that a proxy may put the
// page below a prefix; nothing else is ever asked.
import { Message, Sampling } from "./conversation";

// What went wrong, by what the user can do about it.
export type FailureKind =
  | "gone" // no answer: the server has ended, or the connection broke
  | "busy" // 429, 503: try again after retry_after_s
  | "context" // the conversation is longer than the model takes
  | "key" // 401: an API key is needed
  | "conflict" // 409: the session is still in use
  | "refused" // the request is wrong; the message says how
  | "server"; // 5xx

export class Failure extends Error {
  constructor(
    readonly kind: FailureKind,
    message: string,
    readonly retry_after_s = 0,
    readonly needed = 0, // tokens; 0: not said
    readonly available = 0,
    readonly code = "", // the server's own word for it
  ) {
    super(message);
  }
}

export interface Model {
  readonly id: string;
  readonly loaded: boolean;
  readonly context_tokens: number; // 0: not said
}

const KEY_NAME = "cellm-api-key";

// The key stays in this tab's storage and ends with it.
export function setApiKey(key: string): void {
  if (key === "") {
    sessionStorage.removeItem(KEY_NAME);
  } else {
    sessionStorage.setItem(KEY_NAME, key);
  }
}
export function apiKey(): string {
  return sessionStorage.getItem(KEY_NAME) ?? "";
}

interface CallOptions {
  readonly method?: string;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

// The response, when its status is a good one. Throws Failure, or AbortError when it was stopped.
async function call(path: string, options: CallOptions = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const key = apiKey();
  if (key !== "") headers["Authorization"] = `Bearer ${key}`;
  const init: RequestInit = { method: options.method ?? "GET", headers, cache: "no-store" };
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(options.body);
  }
  if (options.signal !== undefined) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw goneFailure();
  }
  if (response.ok) return response;
  throw await readFailure(response);
}

function deadline(ms: number): AbortSignal {
  const abort = new AbortController();
  setTimeout(() => abort.abort(), ms);
  return abort.signal;
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function goneFailure(): Failure {
  return new Failure("gone", "The server does not answer. Is \u201ccellm serve\u201d still running?");
}

async function readFailure(response: Response): Promise<Failure> {
  let body: unknown = null;
  try {
    body = await response.json();
  } catch {
    // No JSON: something between the page and the server answered.
  }
  const retry = Number(response.headers.get("Retry-After"));
  return toFailure(response.status, body, Number.isFinite(retry) ? retry : 0);
}

// From a status and an error body in OpenAI's shape. Also for errors inside a stream (status 0).
export function toFailure(status: number, body: unknown, retry_after_s: number): Failure {
  const fields = (body as { error?: Record<string, unknown> } | null)?.error ?? {};
  const said = typeof fields["message"] === "string" ? fields["message"] : "";
  const code = typeof fields["code"] === "string" ? fields["code"] : "";
  const message = said !== "" ? said : `The server answered ${status} without saying why.`;
  const count = (name: string): number =>
    typeof fields[name] === "number" ? (fields[name] as number) : 0;
  let kind: FailureKind = status >= 500 ? "server" : "refused";
  if (code === "context_length_exceeded") kind = "context";
  else if (status === 429 || status === 503 || code === "server_busy") kind = "busy";
  else if (status === 401) kind = "key";
  else if (status === 409) kind = "conflict";
  return new Failure(kind, message, retry_after_s, count("needed"), count("available"), code);
}

// The models that are served, with their context where they are open already.
export async function listModels(): Promise<Model[]> {
  const answer = (await (await call("v1/models")).json()) as { data?: unknown };
  if (!Array.isArray(answer.data)) return [];
  const contexts = await readContexts();
  const models: Model[] = [];
  for (const each of answer.data as Record<string, unknown>[]) {
    const id = each["id"];
    if (typeof id !== "string") continue;
    models.push({ id, loaded: each["loaded"] === true, context_tokens: contexts.get(id) ?? 0 });
  }
  return models;
}

async function readContexts(): Promise<Map<string, number>> {
  const contexts = new Map<string, number>();
  let answer: { models?: unknown };
  try {
    answer = (await (await call("props")).json()) as { models?: unknown };
  } catch {
    return contexts; // a proxy may let nothing but /v1 through; the page does without
  }
  if (!Array.isArray(answer.models)) return contexts;
  for (const each of answer.models as Record<string, unknown>[]) {
    const { name, context_tokens } = each;
    if (typeof name === "string" && typeof context_tokens === "number") contexts.set(name, context_tokens);
  }
  return contexts;
}

export async function isAlive(): Promise<boolean> {
  try {
    await call("health", { signal: deadline(2000) });
    return true;
  } catch {
    return false;
  }
}

export async function readMetrics(): Promise<string> {
  return (await call("metrics", { signal: deadline(5000) })).text();
}

// Names of the sessions that the server keeps.
export async function listSessions(): Promise<string[]> {
  const answer = (await (await call("sessions")).json()) as { data?: unknown };
  if (!Array.isArray(answer.data)) return [];
  return (answer.data as Record<string, unknown>[])
    .map((each) => each["id"])
    .filter((id): id is string => typeof id === "string");
}

// A session that shares all that `id` holds. Throws Failure, "refused" when there is no such session.
export async function forkSession(id: string, new_id: string): Promise<void> {
  await call(`sessions/${encodeURIComponent(id)}/fork`, { method: "POST", body: { id: new_id } });
}

export async function deleteSession(id: string): Promise<void> {
  await call(`sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
}

export interface ChatRequest {
  readonly model: string; // empty: the server's first
  readonly messages: Message[];
  readonly sampling: Sampling;
  readonly session: string | null;
}

export async function startChat(request: ChatRequest, signal: AbortSignal): Promise<Response> {
  const body: Record<string, unknown> = {
    messages: request.messages,
    stream: true,
    stream_options: { include_usage: true },
  };
  if (request.model !== "") body["model"] = request.model;
  if (request.session !== null) body["session_id"] = request.session;
  const { sampling } = request;
  const given: [string, number | null][] = [
    ["temperature", sampling.temperature],
    ["top_p", sampling.top_p],
    ["top_k", sampling.top_k],
    ["min_p", sampling.min_p],
    ["repetition_penalty", sampling.repetition_penalty],
    ["max_tokens", sampling.max_tokens],
    ["seed", sampling.seed],
  ];
  for (const [name, value] of given) {
    if (value !== null) body[name] = value;
  }
  if (sampling.stop.length > 0) body["stop"] = sampling.stop;
  if (sampling.thinking !== null) {
    body["chat_template_kwargs"] = { enable_thinking: sampling.thinking };
  }
  return call("v1/chat/completions", { method: "POST", body, signal });
}
