// The engine as it works: memory by class over the last minutes, tokens a second of this page's
// replies, and how much of the prompts was known already. Reads /metrics while it can be seen.
import { readMetrics } from "./api";
import { Point, lineWithArea, stackedAreas } from "./chart";
import { h, replaceChildren } from "./dom";
import { formatBytes, formatCount, formatRate } from "./format";
import { Progress, liveRate } from "./generation";
import { EngineState, MEMORY_CLASSES, readEngineState, totalMemory } from "./metrics";

// The pictures begin with half a minute and grow to two.
const LEAST_SPAN_MS = 30_000;
const SPAN_MS = 120_000;
const EVERY_MS = 1000;

const CLASS_NAMES = {
  weights: "Weights",
  cache: "Cache",
  activations: "Activations",
  tokenizer: "Tokenizer",
  other: "Other",
} as const;

export class EnginePanel {
  readonly element = h("aside", { class: "engine", id: "engine", "aria-label": "Engine", tabindex: "0" });
  private memory: Point[] = [];
  private rates: Point[] = [];
  private state: EngineState | null = null;
  private timer = 0;
  private failed = false;
  private tokens_before = 0;

  // `written` counts the tokens of this page's replies since it was opened. `seen` is told the newest numbers, for the short form in the top bar: bytes and tokens a second.
  constructor(
    private readonly running: () => Progress[],
    private readonly written: () => number,
    private readonly seen: (bytes: number, rate: number) => void,
  ) {
    this.render();
  }

  start(): void {
    if (this.timer !== 0) return;
    const tick = (): void => {
      this.timer = window.setTimeout(tick, EVERY_MS);
      if (!document.hidden) void this.poll();
    };
    tick();
  }

  private async poll(): Promise<void> {
    const now = Date.now();
    const rate = this.rateSince(now);
    keep(this.rates, { at: now, values: [rate] });
    try {
      this.state = readEngineState(await readMetrics(), now);
      this.failed = false;
      keep(this.memory, { at: now, values: MEMORY_CLASSES.map((each) => this.state!.memory[each]) });
      this.seen(totalMemory(this.state), rate);
    } catch {
      this.failed = true; // the page's banner says it; the picture stops moving
    }
    if (!this.element.hidden) this.render();
  }

  // Of all replies together, over the time since the last look.
  private rateSince(now: number): number {
    const tokens = this.written();
    const last = this.rates[this.rates.length - 1];
    const seconds = last === undefined ? 0 : (now - last.at) / 1000;
    const rate = seconds > 0 ? (tokens - this.tokens_before) / seconds : 0;
    this.tokens_before = tokens;
    return rate;
  }

  private span(points: Point[]): number {
    const length = points.length > 1 ? points[points.length - 1]!.at - points[0]!.at : 0;
    return Math.max(length, LEAST_SPAN_MS);
  }

  render(): void {
    const { state } = this;
    this.element.classList.toggle("stale", this.failed);
    if (state === null) {
      replaceChildren(
        this.element,
        h("h2", {}, "Engine"),
        h("p", { class: "hint" }, this.failed ? "The server gives no numbers." : "Waiting for numbers"),
      );
      return;
    }
    replaceChildren(
      this.element,
      h("h2", {}, "Engine"),
      this.memoryCard(state),
      this.speedCard(),
      this.promptCard(state),
      this.countsCard(state),
    );
  }

  private memoryCard(state: EngineState): HTMLElement {
    const total = totalMemory(state);
    const label = MEMORY_CLASSES.map(
      (each) => `${CLASS_NAMES[each]} ${formatBytes(state.memory[each])}`,
    ).join(", ");
    return card(
      "Memory",
      formatBytes(total),
      `peak ${formatBytes(Math.max(state.memory_peak, total))}`,
      stackedAreas(this.memory, MEMORY_CLASSES, this.span(this.memory), 110, `Memory of the last two minutes. ${label}`),
      h(
        "dl",
        { class: "legend" },
        ...MEMORY_CLASSES.map((each) =>
          h(
            "div",
            {},
            h("dt", {}, h("i", { class: `swatch swatch-${each}` }), CLASS_NAMES[each]),
            h("dd", {}, formatBytes(state.memory[each])),
          ),
        ),
      ),
    );
  }

  private speedCard(): HTMLElement {
    const running = this.running();
    const rate = this.rates[this.rates.length - 1]?.values[0] ?? 0;
    const most = Math.max(0, ...this.rates.map((point) => point.values[0]!));
    return card(
      "Tokens a second",
      formatRate(rate),
      `most ${formatRate(most)}`,
      lineWithArea(this.rates, this.span(this.rates), 56, `Tokens a second, now ${formatRate(rate)}`),
      running.length > 0 &&
        h(
          "dl",
          { class: "legend" },
          ...running.map((progress) =>
            h(
              "div",
              {},
              h("dt", {}, h("i", { class: "swatch swatch-rate" }), progress.conversation.title),
              h("dd", {}, formatRate(liveRate(progress))),
            ),
          ),
        ),
    );
  }

  private promptCard(state: EngineState): HTMLElement {
    const { prompt_tokens, reused_tokens } = state;
    const share = prompt_tokens > 0 ? reused_tokens / prompt_tokens : 0;
    const bar = h("div", { class: "bar", "aria-hidden": "true" }, h("i", {}));
    (bar.firstElementChild as HTMLElement).style.width = `${(share * 100).toFixed(1)}%`;
    return card(
      "Prompt tokens known already",
      `${Math.round(share * 100)} %`,
      "since the start",
      bar,
      h(
        "p",
        { class: "hint" },
        `${formatCount(reused_tokens)} of ${formatCount(prompt_tokens)} were in the cache`,
      ),
    );
  }

  private countsCard(state: EngineState): HTMLElement {
    const fact = (name: string, value: string): HTMLElement =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value));
    return h(
      "section",
      { class: "card" },
      h(
        "dl",
        { class: "legend" },
        fact("Running", formatCount(state.running)),
        fact("Waiting", formatCount(state.waiting)),
        fact("Tokens written", formatCount(state.generated_tokens)),
        fact("Sessions", formatCount(state.sessions)),
        fact("Beginnings kept", `${formatCount(state.kept_beginnings)} \u00b7 ${formatBytes(state.kept_bytes)}`),
      ),
    );
  }
}

function keep(points: Point[], point: Point): void {
  points.push(point);
  while (points.length > 0 && point.at - points[0]!.at > SPAN_MS) points.shift();
}

function card(title: string, value: string, aside: string, ...children: (Node | false)[]): HTMLElement {
  return h(
    "section",
    { class: "card" },
    h(
      "header",
      { class: "card-head" },
      h("h3", {}, title),
      h("span", { class: "card-value" }, value),
      h("span", { class: "card-aside" }, aside),
    ),
    ...children,
  );
}
