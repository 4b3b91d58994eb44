// What a conversation is: a tree of turns, of which one path is shown. Editing a message or asking
// again adds a sibling and shows it; nothing that was said is lost. Plain data, as it is stored.

import { ToolCall } from "./tool_calls";

export type Role = "user" | "assistant";

// done: ended by the model; length: by a limit; stopped: by the user; failed: see `note`.
// streaming is what a page that was closed in the middle leaves behind; it is read as stopped.
export type TurnState = "done" | "length" | "stopped" | "failed" | "streaming";

// What a reply cost, as its server measured it. Times in milliseconds.
export interface TurnStats {
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly generated_tokens: number;
  readonly first_token_ms: number;
  readonly tokens_per_second: number;
  readonly seed: number | null;
}

export interface Turn {
  readonly id: string;
  readonly parent: string | null;
  readonly role: Role;
  text: string;
  reasoning: string;
  reasoning_ms: number;
  calls: ToolCall[];
  state: TurnState;
  note: string; // why it failed
  model: string;
  stats: TurnStats | null;
  chosen: string | null; // the child that is shown
  // The server-side session that holds this branch from here on; null: that of the turn before.
  session: string | null;
}

// null: what the model's own settings or the server say.
export interface Sampling {
  temperature: number | null;
  top_p: number | null;
  top_k: number | null;
  min_p: number | null;
  repetition_penalty: number | null;
  max_tokens: number | null;
  seed: number | null;
  stop: string[];
  thinking: boolean | null;
}

export interface Conversation {
  readonly id: string;
  title: string;
  titled: boolean; // by the user: the first message no longer names it
  created_at: number; // milliseconds since 1970
  updated_at: number;
  model: string; // empty: the server's first
  system: string;
  sampling: Sampling;
  turns: Record<string, Turn>; // in the order in which they were made
  chosen: string | null; // the first turn that is shown
  // Turns of the path before this one are not sent: the user left them out to make room.
  first_sent: string | null;
}

export interface Message {
  readonly role: "system" | Role;
  readonly content: string;
}

const TITLE_CHARACTERS = 60;

export function defaultSampling(): Sampling {
  return {
    temperature: null,
    top_p: null,
    top_k: null,
    min_p: null,
    repetition_penalty: null,
    max_tokens: null,
    seed: null,
    stop: [],
    thinking: null,
  };
}

// An id that a server takes as the name of a session: letters, digits and '-'.
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation(model: string, now: number): Conversation {
  return {
    id: newId(),
    title: "New conversation",
    titled: false,
    created_at: now,
    updated_at: now,
    model,
    system: "",
    sampling: defaultSampling(),
    turns: {},
    chosen: null,
    first_sent: null,
  };
}

export function childrenOf(conversation: Conversation, parent: string | null): Turn[] {
  return Object.values(conversation.turns).filter((turn) => turn.parent === parent);
}

// The turns that are shown, first to last.
export function path(conversation: Conversation): Turn[] {
  const turns: Turn[] = [];
  let id = conversation.chosen;
  while (id !== null) {
    const turn: Turn | undefined = conversation.turns[id];
    if (turn === undefined) break;
    turns.push(turn);
    id = turn.chosen;
  }
  return turns;
}

function choose(conversation: Conversation, turn: Turn): void {
  const parent = turn.parent === null ? undefined : conversation.turns[turn.parent];
  if (parent === undefined) {
    conversation.chosen = turn.id;
  } else {
    parent.chosen = turn.id;
  }
}

// Adds a turn below `parent` and shows it.
export function addTurn(
  conversation: Conversation,
  parent: string | null,
  role: Role,
  text: string,
): Turn {
  const turn: Turn = {
    id: newId(),
    parent,
    role,
    text,
    reasoning: "",
    reasoning_ms: 0,
    calls: [],
    state: role === "user" ? "done" : "streaming",
    note: "",
    model: conversation.model,
    stats: null,
    chosen: null,
    session: null,
  };
  conversation.turns[turn.id] = turn;
  choose(conversation, turn);
  if (parent === null && role === "user" && !conversation.titled) {
    conversation.title = titleOf(text);
  }
  return turn;
}

export function titleOf(text: string): string {
  const line = text.trim().split(/\s+/).join(" ");
  if (line === "") return "New conversation";
  const characters = Array.from(line);
  if (characters.length <= TITLE_CHARACTERS) return line;
  return characters.slice(0, TITLE_CHARACTERS - 1).join("").trimEnd() + "\u2026";
}

// Where a turn stands among those with the same parent: [index, count].
export function placeOf(conversation: Conversation, turn: Turn): [number, number] {
  const siblings = childrenOf(conversation, turn.parent);
  return [siblings.findIndex((other) => other.id === turn.id), siblings.length];
}

// Shows the sibling `step` further on; false at the end.
export function showSibling(conversation: Conversation, turn: Turn, step: number): boolean {
  const siblings = childrenOf(conversation, turn.parent);
  const target = siblings[siblings.findIndex((other) => other.id === turn.id) + step];
  if (target === undefined) return false;
  choose(conversation, target);
  return true;
}

// Takes a turn and all that follows it away; what is shown instead is a neighbour, if there is one.
export function removeTurn(conversation: Conversation, turn: Turn): void {
  const siblings = childrenOf(conversation, turn.parent);
  const index = siblings.findIndex((other) => other.id === turn.id);
  const next = siblings[index + 1] ?? siblings[index - 1] ?? null;
  const doomed = [turn.id];
  for (let i = 0; i < doomed.length; i++) {
    for (const child of childrenOf(conversation, doomed[i]!)) doomed.push(child.id);
  }
  for (const id of doomed) {
    if (conversation.first_sent === id) conversation.first_sent = null;
    delete conversation.turns[id];
  }
  const parent = turn.parent === null ? undefined : conversation.turns[turn.parent];
  if (parent === undefined) {
    conversation.chosen = next === null ? null : next.id;
  } else {
    parent.chosen = next === null ? null : next.id;
  }
}

// What is sent to have `reply` answered: the system prompt and the turns before it. A reply that
// failed before its first word says nothing and is skipped.
export function messagesFor(conversation: Conversation, reply: Turn): Message[] {
  const messages: Message[] = [];
  if (conversation.system.trim() !== "") {
    messages.push({ role: "system", content: conversation.system });
  }
  const turns = path(conversation);
  const first = turns.findIndex((turn) => turn.id === conversation.first_sent);
  for (const turn of turns.slice(Math.max(first, 0))) {
    if (turn.id === reply.id) break;
    if (turn.role === "assistant" && turn.text === "") continue;
    messages.push({ role: turn.role, content: turn.text });
  }
  return messages;
}

// The session that holds the path up to `turn`.
export function sessionOf(conversation: Conversation, turn: Turn): string {
  let at: Turn | undefined = turn;
  while (at !== undefined) {
    if (at.session !== null) return at.session;
    at = at.parent === null ? undefined : conversation.turns[at.parent];
  }
  return conversation.id;
}

// Every session name that this conversation may have on its server.
export function sessionsOf(conversation: Conversation): string[] {
  const names = new Set([conversation.id]);
  for (const turn of Object.values(conversation.turns)) {
    if (turn.session !== null) names.add(turn.session);
  }
  return Array.from(names);
}

// Leaves out the oldest turns until what is sent has at most `share` of its characters: the server
// counts tokens, the page does not, and characters are near enough to choose a turn by. False when
// the last message alone is too long.
export function leaveOutOldest(conversation: Conversation, share: number): boolean {
  const turns = path(conversation);
  const first = Math.max(
    turns.findIndex((turn) => turn.id === conversation.first_sent),
    0,
  );
  const size = (turn: Turn): number => turn.text.length + 16; // and the marks of a turn
  let total = conversation.system.length;
  for (const turn of turns.slice(first)) total += size(turn);
  const most = total * share;
  for (let i = first + 1; i < turns.length; i++) {
    total -= size(turns[i - 1]!);
    // A template expects a user to begin.
    if (total <= most && turns[i]!.role === "user") {
      conversation.first_sent = turns[i]!.id;
      return true;
    }
  }
  return false;
}

// A conversation of its own that begins with what is shown of this one.
export function copyPath(conversation: Conversation, now: number): Conversation {
  const copy = newConversation(conversation.model, now);
  copy.title = conversation.title;
  copy.titled = conversation.titled;
  copy.system = conversation.system;
  copy.sampling = { ...conversation.sampling, stop: [...conversation.sampling.stop] };
  let parent: string | null = null;
  for (const turn of path(conversation)) {
    const made: Turn = addTurn(copy, parent, turn.role, turn.text);
    const { text, reasoning, reasoning_ms, state, note, model, stats } = turn;
    const calls = turn.calls.map((call) => ({ ...call }));
    Object.assign(made, { text, reasoning, reasoning_ms, calls, state, note, model, stats });
    if (turn.id === conversation.first_sent) copy.first_sent = made.id;
    parent = made.id;
  }
  copy.title = conversation.title;
  return copy;
}
