// A conversation's system prompt and sampling controls. An empty field leaves the choice to the
// model's own settings.
import { Actions } from "./actions";
import { Conversation, Sampling, defaultSampling } from "./conversation";
import { h, replaceChildren } from "./dom";

interface NumberField {
  readonly name: "temperature" | "top_p" | "top_k" | "min_p" | "repetition_penalty" | "max_tokens" | "seed";
  readonly label: string;
  readonly help: string;
  readonly min: number;
  readonly max: number;
  readonly step: number;
}

const FIELDS: readonly NumberField[] = [
  { name: "temperature", label: "Temperature", help: "0 takes the likeliest token each time", min: 0, max: 5, step: 0.05 },
  { name: "top_p", label: "Top-p", help: "Only the likeliest tokens that have this share together", min: 0, max: 1, step: 0.01 },
  { name: "top_k", label: "Top-k", help: "Only this many of the likeliest tokens; 0: all", min: 0, max: 100000, step: 1 },
  { name: "min_p", label: "Min-p", help: "Only tokens at least this likely, beside the likeliest", min: 0, max: 1, step: 0.01 },
  { name: "repetition_penalty", label: "Repetition penalty", help: "Above 1, what was said becomes less likely", min: 0.5, max: 3, step: 0.05 },
  { name: "max_tokens", label: "Most tokens", help: "A reply is cut here", min: 1, max: 1000000, step: 1 },
  { name: "seed", label: "Seed", help: "The same seed gives the same reply", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
];

export class OptionsPanel {
  readonly element = h("section", { class: "options", "aria-label": "Options", hidden: true });

  constructor(
    private readonly conversation: Conversation,
    private readonly actions: Actions,
  ) {}

  get open(): boolean {
    return !this.element.hidden;
  }

  toggle(): void {
    this.element.hidden = !this.element.hidden;
    if (!this.open) return;
    this.build();
    // Where a keyboard would come up over the panel, the focus stays.
    const touch = window.matchMedia("(pointer: coarse)").matches;
    if (!touch) this.element.querySelector("textarea")!.focus();
  }

  private build(): void {
    const { conversation } = this;
    const system = h("textarea", {
      rows: 3,
      placeholder: "How the model should behave. Empty: what its template says.",
    });
    system.value = conversation.system;
    system.addEventListener("input", () => {
      conversation.system = system.value;
      this.actions.changed(conversation);
    });
    const reset = h("button", { type: "button", class: "button" }, "Back to the model\u2019s own");
    reset.addEventListener("click", () => {
      conversation.sampling = defaultSampling();
      this.actions.changed(conversation);
      this.build();
    });
    replaceChildren(
      this.element,
      h("label", { class: "field wide" }, h("span", {}, "System prompt"), system),
      h("div", { class: "field-grid" }, ...FIELDS.map((field) => this.numberField(field)), this.thinking()),
      this.stops(),
      h("div", { class: "options-foot" }, h("span", { class: "hint" }, "Empty fields: the model\u2019s own settings."), reset),
    );
  }

  private numberField(field: NumberField): HTMLElement {
    const sampling: Sampling = this.conversation.sampling;
    const value = sampling[field.name];
    const input = h("input", {
      type: "number",
      inputmode: field.step < 1 ? "decimal" : "numeric",
      min: field.min,
      max: field.max,
      step: "any",
      value: value === null ? "" : value,
      placeholder: "auto",
    });
    input.addEventListener("change", () => {
      const text = input.value.trim();
      const given = text === "" ? null : Number(text);
      // A value that the server would refuse is brought to the nearest that it takes.
      const bounded =
        given === null || Number.isNaN(given)
          ? null
          : Math.min(Math.max(field.step < 1 ? given : Math.round(given), field.min), field.max);
      sampling[field.name] = bounded;
      input.value = bounded === null ? "" : String(bounded);
      this.actions.changed(this.conversation);
    });
    return h("label", { class: "field", title: field.help }, h("span", {}, field.label), input);
  }

  private thinking(): HTMLElement {
    const { sampling } = this.conversation;
    const select = h(
      "select",
      {},
      h("option", { value: "" }, "auto"),
      h("option", { value: "on" }, "on"),
      h("option", { value: "off" }, "off"),
    );
    select.value = sampling.thinking === null ? "" : sampling.thinking ? "on" : "off";
    select.addEventListener("change", () => {
      sampling.thinking = select.value === "" ? null : select.value === "on";
      this.actions.changed(this.conversation);
    });
    const title = "For models that can think before they answer";
    return h("label", { class: "field", title }, h("span", {}, "Thinking"), select);
  }

  private stops(): HTMLElement {
    const { sampling } = this.conversation;
    const input = h("textarea", { rows: 1, placeholder: "One a line: a reply ends before any of them" });
    input.value = sampling.stop.join("\n");
    input.addEventListener("change", () => {
      sampling.stop = input.value.split("\n").filter((line) => line !== "").slice(0, 16);
      this.actions.changed(this.conversation);
    });
    return h("label", { class: "field wide" }, h("span", {}, "Stop at"), input);
  }
}
