// Calls of tools in a reply. The page sends no tools and runs none; a reply may hold calls all the
// same, from a server that adds tools of its own or from a file, and then they can be read.

export interface ToolCall {
  name: string;
  arguments: string; // JSON, once the reply has ended well
}

// Adds what a chunk of a stream says: a call begins with its name, and arguments come in pieces.
// Returns whether it said anything.
export function addCallDeltas(calls: ToolCall[], deltas: unknown): boolean {
  if (!Array.isArray(deltas)) return false;
  let some = false;
  for (const delta of deltas as unknown[]) {
    const { index, function: said } = (delta ?? {}) as Record<string, unknown>;
    // Calls begin in the order of their numbers.
    if (typeof index !== "number" || index < 0 || index > calls.length) continue;
    const { name, arguments: more } = (said ?? {}) as Record<string, unknown>;
    const call = calls[index] ?? { name: "", arguments: "" };
    if (typeof name === "string") call.name += name;
    if (typeof more === "string") call.arguments += more;
    calls[index] = call;
    some = true;
  }
  return some;
}

// From a file or from the browser's storage; what is none is left out.
export function readCalls(value: unknown): ToolCall[] {
  if (!Array.isArray(value)) return [];
  const calls: ToolCall[] = [];
  for (const each of value as unknown[]) {
    const { name, arguments: said } = (each ?? {}) as Record<string, unknown>;
    if (typeof name === "string" && typeof said === "string") calls.push({ name, arguments: said });
  }
  return calls;
}

// Arguments as one reads them: a line a member where they are JSON, else as they came.
export function showArguments(call: ToolCall): string {
  try {
    return JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    return call.arguments;
  }
}
