// The server's numbers: Prometheus text in, what the engine panel shows out. A history of the last
// minutes is kept here, sample by sample.

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

// Bytes by class, summed over the models that are open.
export const MEMORY_CLASSES = ["weights", "cache", "activations", "tokenizer", "other"] as const;
export type MemoryClass = (typeof MEMORY_CLASSES)[number];

export interface EngineState {
  readonly at: number; // milliseconds since 1970
  readonly memory: Readonly<Record<MemoryClass, number>>;
  readonly memory_peak: number;
  readonly running: number;
  readonly waiting: number;
  readonly kept_beginnings: number;
  readonly kept_bytes: number;
  readonly sessions: number;
  readonly prompt_tokens: number; // since the server began, like the two below
  readonly reused_tokens: number;
  readonly generated_tokens: number;
}

// One sample a line, as in exposition format 0.0.4; lines that are none are passed over.
export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? +(\S+)/.exec(line);
    if (match === null) continue;
    const written = match[3]!;
    const value = written === "+Inf" ? Infinity : written === "-Inf" ? -Infinity : Number(written);
    if (Number.isNaN(value)) continue;
    samples.push({ name: match[1]!, labels: parseLabels(match[2] ?? ""), value });
  }
  return samples;
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const match of text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
    labels[match[1]!] = match[2]!.replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
  }
  return labels;
}

export function readEngineState(text: string, at: number): EngineState {
  const samples = parseMetrics(text);
  const sum = (name: string, memory_class?: string): number => {
    let total = 0;
    for (const sample of samples) {
      if (sample.name !== name) continue;
      if (memory_class !== undefined && sample.labels["class"] !== memory_class) continue;
      total += sample.value;
    }
    return total;
  };
  const memory = {} as Record<MemoryClass, number>;
  for (const each of MEMORY_CLASSES) memory[each] = sum("cellm_memory_bytes", each);
  return {
    at,
    memory,
    memory_peak: sum("cellm_memory_peak_bytes"),
    running: sum("cellm_running"),
    waiting: sum("cellm_waiting"),
    kept_beginnings: sum("cellm_kept_beginnings"),
    kept_bytes: sum("cellm_kept_bytes"),
    sessions: sum("cellm_sessions_live"),
    prompt_tokens: sum("cellm_prompt_tokens_total"),
    reused_tokens: sum("cellm_prompt_tokens_reused_total"),
    generated_tokens: sum("cellm_generated_tokens_total"),
  };
}

export function totalMemory(state: EngineState): number {
  return MEMORY_CLASSES.reduce((sum, each) => sum + state.memory[each], 0);
}
