// Conversations as a file, and back. A file may come from anywhere: every field is looked at, and
// what is not a conversation is refused by name.
import {
  Conversation,
  Sampling,
  Turn,
  TurnState,
  TurnStats,
  defaultSampling,
} from "./conversation";
import { readCalls } from "./tool_calls";

const KIND = "cellm-conversations";
const VERSION = 1;
const STATES: readonly TurnState[] = ["done", "length", "stopped", "failed", "streaming"];

export function toBackup(conversations: Conversation[]): string {
  return JSON.stringify({ kind: KIND, version: VERSION, conversations }, null, 1);
}

// Throws an Error whose message can be shown.
export function fromBackup(text: string): Conversation[] {
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON. Choose one that was saved with Export.");
  }
  if (!isRecord(file) || file["kind"] !== KIND || !Array.isArray(file["conversations"])) {
    throw new Error("This file holds no conversations. Choose one that was saved with Export.");
  }
  if (file["version"] !== VERSION) {
    throw new Error("This file was saved by a newer page; it cannot be read here.");
  }
  return file["conversations"].map((value: unknown, index) => {
    const conversation = readConversation(value);
    if (conversation === null) {
      throw new Error(`Conversation ${index + 1} of this file is damaged; nothing was imported.`);
    }
    return conversation;
  });
}

type Fields = Record<string, unknown>;

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
function numberOrNull(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
function isId(value: unknown): value is string {
  return typeof value === "string" && /^[A-Za-z0-9_.-]{1,64}$/.test(value) && !(value in {});
}
function idOrNull(value: unknown): string | null {
  return isId(value) ? value : null;
}

// Also reads what the browser's own storage holds: an older page may have written it.
export function readConversation(value: unknown): Conversation | null {
  if (!isRecord(value) || !isId(value["id"]) || !isRecord(value["turns"])) return null;
  const turns: Record<string, Turn> = {};
  for (const [id, each] of Object.entries(value["turns"])) {
    const turn = readTurn(each);
    // Parents come before their children, so nothing can be its own ancestor.
    if (turn === null || turn.id !== id) return null;
    if (turn.parent !== null && turns[turn.parent] === undefined) return null;
    turns[id] = turn;
  }
  // What is shown must be a child of where it is shown.
  for (const turn of Object.values(turns)) {
    if (turn.chosen !== null && turns[turn.chosen]?.parent !== turn.id) return null;
  }
  const chosen = idOrNull(value["chosen"]);
  const first = chosen === null ? undefined : turns[chosen];
  if (chosen !== null && (first === undefined || first.parent !== null)) return null;
  const first_sent = idOrNull(value["first_sent"]);
  return {
    id: value["id"],
    title: text(value["title"]) || "Conversation",
    titled: value["titled"] === true,
    created_at: number(value["created_at"]),
    updated_at: number(value["updated_at"]),
    model: text(value["model"]),
    system: text(value["system"]),
    sampling: readSampling(value["sampling"]),
    turns,
    chosen,
    first_sent: first_sent !== null && turns[first_sent] !== undefined ? first_sent : null,
  };
}

function readTurn(value: unknown): Turn | null {
  if (!isRecord(value) || !isId(value["id"])) return null;
  const role = value["role"];
  if (role !== "user" && role !== "assistant") return null;
  if (typeof value["text"] !== "string") return null;
  if (value["parent"] !== null && !isId(value["parent"])) return null;
  const state = STATES.find((known) => known === value["state"]) ?? "done";
  return {
    id: value["id"],
    parent: value["parent"],
    role,
    text: value["text"],
    reasoning: text(value["reasoning"]),
    reasoning_ms: number(value["reasoning_ms"]),
    calls: readCalls(value["calls"]),
    // Whoever was writing it is gone.
    state: state === "streaming" ? "stopped" : state,
    note: text(value["note"]),
    model: text(value["model"]),
    stats: readStats(value["stats"]),
    chosen: idOrNull(value["chosen"]),
    session: idOrNull(value["session"]),
  };
}

function readStats(value: unknown): TurnStats | null {
  if (!isRecord(value)) return null;
  return {
    prompt_tokens: number(value["prompt_tokens"]),
    cached_tokens: number(value["cached_tokens"]),
    generated_tokens: number(value["generated_tokens"]),
    first_token_ms: number(value["first_token_ms"]),
    tokens_per_second: number(value["tokens_per_second"]),
    seed: numberOrNull(value["seed"]),
  };
}

function readSampling(value: unknown): Sampling {
  const sampling = defaultSampling();
  if (!isRecord(value)) return sampling;
  sampling.temperature = numberOrNull(value["temperature"]);
  sampling.top_p = numberOrNull(value["top_p"]);
  sampling.top_k = numberOrNull(value["top_k"]);
  sampling.min_p = numberOrNull(value["min_p"]);
  sampling.repetition_penalty = numberOrNull(value["repetition_penalty"]);
  sampling.max_tokens = numberOrNull(value["max_tokens"]);
  sampling.seed = numberOrNull(value["seed"]);
  if (typeof value["thinking"] === "boolean") sampling.thinking = value["thinking"];
  if (Array.isArray(value["stop"])) {
    sampling.stop = value["stop"].filter((stop): stop is string => typeof stop === "string");
  }
  return sampling;
}
