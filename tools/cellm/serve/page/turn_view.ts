// One turn on the page: a message of the user's, or a reply with its reasoning, its cost and what
// can be done with it.
import { Actions } from "./actions";
import { Failure } from "./api";
import { Conversation, Turn, placeOf } from "./conversation";
import { h, replaceChildren } from "./dom";
import { formatCount, formatMs, formatRate } from "./format";
import { Progress } from "./generation";
import { icon, iconButton } from "./icons";
import { MarkdownView, copyText } from "./markdown_view";
import { showArguments } from "./tool_calls";

export class TurnView {
  readonly element: HTMLElement;
  private readonly body = h("div", { class: "turn-body" });
  private readonly foot = h("div", { class: "turn-foot" });
  private readonly markdown = new MarkdownView();
  private reasoning: HTMLDetailsElement | null = null;
  private readonly reasoning_text = new MarkdownView();
  private readonly calls = h("div", { class: "calls" });
  private editing = false;
  // What the foot was made from: made again only when it says something else.
  private foot_key = "";
  // Of a reply that failed while this page was open; a stored one has only its note.
  failure: Failure | null = null;

  constructor(
    readonly conversation: Conversation,
    readonly turn: Turn,
    private readonly actions: Actions,
  ) {
    this.element = h(
      "article",
      { class: `turn ${turn.role}`, tabindex: "-1", "data-turn": turn.id },
      this.body,
      this.foot,
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
  }

  update(progress: Progress | null, sent: boolean): void {
    const { turn } = this;
    const mine = progress !== null && progress.turn.id === turn.id;
    this.element.classList.toggle("left-out", !sent);
    this.element.classList.toggle("streaming", mine);
    this.element.setAttribute("aria-label", this.label(sent));
    if (!this.editing) {
      if (turn.role === "user") {
        if (this.body.textContent !== turn.text) this.body.textContent = turn.text;
      } else {
        this.showReply(mine ? progress : null);
      }
    }
    this.showFoot(mine);
  }

  private label(sent: boolean): string {
    const who = this.turn.role === "user" ? "You" : `Reply${this.turn.model ? ` of ${this.turn.model}` : ""}`;
    return sent ? who : `${who}, left out`;
  }

  private showReply(progress: Progress | null): void {
    const { turn } = this;
    this.showReasoning(progress);
    const waits = progress !== null && turn.text === "" && turn.reasoning === "" && turn.calls.length === 0;
    if (waits) {
      if (this.body.querySelector(".waiting") === null) {
        replaceChildren(
          this.body,
          h("span", { class: "waiting", "aria-hidden": "true" }, h("i"), h("i"), h("i")),
        );
      }
      return;
    }
    this.body.querySelector(".waiting")?.remove();
    if (this.markdown.element.parentNode === null) this.body.append(this.markdown.element);
    this.markdown.show(turn.text);
    this.showCalls();
  }

  // Behind the text, each as a name and its arguments. Only the last one changes, while it is written.
  private showCalls(): void {
    const { calls } = this.turn;
    if (calls.length === 0) return;
    if (this.calls.parentNode === null) this.body.append(this.calls);
    calls.forEach((call, index) => {
      const shown = this.calls.children[index];
      const text = showArguments(call);
      if (shown !== undefined) {
        if (shown.lastElementChild!.textContent !== text) shown.lastElementChild!.textContent = text;
        return;
      }
      this.calls.append(
        h(
          "section",
          { class: "call", "aria-label": `Call of ${call.name}` },
          h("p", { class: "call-name" }, call.name),
          h("pre", { class: "call-arguments", tabindex: "0" }, text),
        ),
      );
    });
  }

  private showReasoning(progress: Progress | null): void {
    const { turn } = this;
    if (turn.reasoning === "") return;
    if (this.reasoning === null) {
      this.reasoning = h(
        "details",
        { class: "reasoning" },
        h("summary", {}, ""),
        this.reasoning_text.element,
      );
      this.body.prepend(this.reasoning);
    }
    const thinks = progress !== null && turn.text === "";
    const summary = this.reasoning.firstElementChild!;
    const said = thinks ? "Thinking\u2026" : `Thought for ${formatMs(turn.reasoning_ms)}`;
    if (summary.textContent !== said) summary.textContent = said;
    this.reasoning.classList.toggle("thinking", thinks);
    this.reasoning_text.show(turn.reasoning);
  }

  private showFoot(streaming: boolean): void {
    const { turn, conversation } = this;
    const [index, count] = placeOf(conversation, turn);
    const key = [streaming, this.editing, turn.state, turn.note, index, count, turn.stats?.seed,
      turn.stats?.generated_tokens].join("|");
    if (key === this.foot_key) return;
    this.foot_key = key;
    if (streaming || this.editing) {
      replaceChildren(this.foot);
      return;
    }
    const had_focus = this.foot.contains(document.activeElement)
      ? document.activeElement?.getAttribute("aria-label")
      : null;
    replaceChildren(this.foot, this.problem(), this.tools(index, count));
    if (had_focus !== null && had_focus !== undefined) {
      const again = Array.from(this.foot.querySelectorAll("button")).find(
        (button) => button.getAttribute("aria-label") === had_focus,
      );
      again?.focus();
    }
  }

  private tools(index: number, count: number): HTMLElement {
    const { turn, conversation, actions } = this;
    const tools = h("div", { class: "turn-tools" });
    if (count > 1) {
      const back = iconButton("left", "Earlier version", () => this.turnTo(-1), "[");
      const on = iconButton("right", "Later version", () => this.turnTo(1), "]");
      back.disabled = index === 0;
      on.disabled = index === count - 1;
      tools.append(
        h(
          "span",
          { class: "branches", role: "group", "aria-label": `Version ${index + 1} of ${count}` },
          back,
          h("span", { class: "branch-place" }, `${index + 1} / ${count}`),
          on,
        ),
      );
    }
    const copy = iconButton("copy", "Copy", () => void this.copy(copy), "c");
    tools.append(copy);
    tools.append(iconButton("edit", "Edit", () => this.beginEdit(), "e"));
    if (turn.role === "assistant") {
      tools.append(
        iconButton("again", "Answer again", () => actions.regenerate(conversation, turn), "r"),
      );
      const cost = this.cost();
      if (cost !== null) tools.append(cost);
    }
    return tools;
  }

  private turnTo(step: number): void {
    this.actions.showSibling(this.conversation, this.turn, step);
  }

  private async copy(button: HTMLElement): Promise<void> {
    const copied = await copyText(this.turn.text);
    button.replaceChildren(icon(copied ? "check" : "close"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  }

  private cost(): HTMLElement | null {
    const { stats } = this.turn;
    if (stats === null) return null;
    const rate = stats.tokens_per_second > 0 ? `${formatRate(stats.tokens_per_second)} tok/s` : "";
    const parts = [rate, `${formatCount(stats.generated_tokens)} tokens`];
    if (stats.cached_tokens > 0) {
      parts.push(`${formatCount(stats.cached_tokens)} of ${formatCount(stats.prompt_tokens)} cached`);
    }
    const more = [
      `Prompt: ${stats.prompt_tokens} tokens, of which ${stats.cached_tokens} were known already`,
      `First token after ${formatMs(stats.first_token_ms)}`,
      stats.seed === null ? "" : `Seed: ${stats.seed}`,
    ];
    return h(
      "span",
      { class: "cost", title: more.filter((line) => line !== "").join("\n") },
      parts.filter((part) => part !== "").join(" \u00b7 "),
    );
  }

  // Why there is no reply, or not all of it, and what can be done.
  private problem(): HTMLElement | null {
    const { turn, conversation, actions } = this;
    if (turn.role !== "assistant") return null;
    if (turn.state === "stopped") return h("p", { class: "turn-note" }, "Stopped.");
    if (turn.state === "length") {
      return h("p", { class: "turn-note" }, "Cut at the limit of tokens.");
    }
    if (turn.state !== "failed") return null;
    const again = h(
      "button",
      { type: "button", class: "button", onclick: () => actions.regenerate(conversation, turn) },
      "Try again",
    );
    const box = h("div", { class: "problem", role: "alert" }, h("p", {}, turn.note));
    const kind = this.failure?.kind ?? "";
    if (kind === "context") {
      const { needed, available } = this.failure!;
      if (needed > 0) {
        box.firstElementChild!.textContent =
          `This conversation needs ${formatCount(needed)} tokens; the model takes ` +
          `${formatCount(available)}. Leave out its oldest turns, edit an earlier message, ` +
          "or begin a new conversation.";
      }
      box.append(
        h(
          "button",
          {
            type: "button",
            class: "button",
            onclick: () => actions.leaveOutAndRetry(conversation, turn),
          },
          "Leave out the oldest turns",
        ),
      );
    } else if (kind === "key") {
      const retry = (): void => actions.regenerate(conversation, turn);
      box.firstElementChild!.textContent = "This server asks for an API key.";
      box.append(
        h(
          "button",
          { type: "button", class: "button", onclick: () => void actions.askForKey(retry) },
          "Enter the key",
        ),
      );
    } else {
      box.append(again);
    }
    return box;
  }

  beginEdit(): void {
    if (this.editing || this.actions.progressOf(this.conversation) !== null) return;
    const { turn } = this;
    this.editing = true;
    const field = h("textarea", { class: "edit-field", "aria-label": "Edit this message", rows: 1 });
    field.value = turn.text;
    const fit = (): void => {
      field.style.height = "auto";
      field.style.height = `${field.scrollHeight + 2}px`;
    };
    const end = (): void => {
      this.editing = false;
      this.foot_key = "";
      replaceChildren(this.body);
      this.reasoning = null;
      this.update(null, !this.element.classList.contains("left-out"));
      this.element.focus();
    };
    const save = (): void => {
      const text = field.value;
      end();
      if (text.trim() !== "" && text !== turn.text) this.actions.edit(this.conversation, turn, text);
    };
    field.addEventListener("input", fit);
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.isComposing) return;
      if (event.key === "Escape") {
        event.preventDefault();
        end();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        save();
      }
    });
    const primary = turn.role === "user" ? "Send" : "Save";
    replaceChildren(
      this.body,
      field,
      h(
        "div",
        { class: "edit-buttons" },
        h("span", { class: "hint" }, "The old version stays."),
        h("button", { type: "button", class: "button", onclick: end }, "Cancel"),
        h("button", { type: "button", class: "button primary", onclick: save }, primary),
      ),
    );
    this.showFoot(false);
    fit();
    field.focus();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.target !== this.element || event.altKey || event.ctrlKey || event.metaKey) return;
    const { turn, conversation, actions } = this;
    switch (event.key) {
      case "e":
        this.beginEdit();
        break;
      case "c":
        void copyText(turn.text);
        break;
      case "r":
        if (turn.role === "assistant") actions.regenerate(conversation, turn);
        break;
      case "[":
        this.turnTo(-1);
        break;
      case "]":
        this.turnTo(1);
        break;
      default:
        return;
    }
    event.preventDefault();
  }
}
