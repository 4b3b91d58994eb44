// One conversation in a column: head, options, turns, and the field to write in.
import { Actions } from "./actions";
import { Failure } from "./api";
import { Conversation, Turn, path } from "./conversation";
import { brandMark, icon, iconButton } from "./icons";
import { h, replaceChildren } from "./dom";
import { formatCount, formatRate } from "./format";
import { Progress, liveRate } from "./generation";
import { OptionsPanel } from "./options_panel";
import { TurnView } from "./turn_view";

const SUGGESTIONS = [
  "What is the capital of Japan?",
  "Tell me a short story about a fox.",
  "What is 7 plus 5?",
];
// Nearer to the end than this, the column follows what is written.
const FOLLOW_PIXELS = 80;
const MOST_COMPOSER_PIXELS = 220;

export class Column {
  readonly element: HTMLElement;
  readonly field: HTMLTextAreaElement;
  private readonly title: HTMLInputElement;
  private readonly model_select: HTMLSelectElement;
  private readonly options: OptionsPanel;
  private readonly options_button: HTMLButtonElement;
  private readonly log: HTMLElement;
  private readonly latest: HTMLButtonElement;
  private readonly send_button: HTMLButtonElement;
  private readonly status = h("span", { class: "status-text" });
  private readonly context = h("span", { class: "context-text" });
  private readonly announcer = h("div", { class: "off-screen", "aria-live": "polite" });
  private views = new Map<string, TurnView>();
  private following = true;
  private place_name = ""; // "Column 2", for those who do not see where it stands

  constructor(
    readonly conversation: Conversation,
    private readonly actions: Actions,
  ) {
    this.title = h("input", { class: "column-title", "aria-label": "Title", maxlength: 120 });
    this.title.addEventListener("change", () => this.rename());
    this.title.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.field.focus();
    });
    this.model_select = h("select", { class: "model-select", "aria-label": "Model" });
    this.model_select.addEventListener("change", () => {
      conversation.model = this.model_select.value;
      actions.changed(conversation);
    });
    this.options = new OptionsPanel(conversation, actions);
    this.options_button = iconButton("sliders", "System prompt and sampling", () => this.toggleOptions(), "Alt+O");
    this.log = h("div", { class: "log", role: "log", "aria-live": "off", "aria-label": "Messages", tabindex: "0" });
    this.log.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.log.addEventListener("keydown", (event) => this.onLogKey(event));
    this.latest = h("button", { type: "button", class: "latest", hidden: true }, "To the latest");
    this.latest.addEventListener("click", () => this.toEnd());
    this.field = h("textarea", {
      class: "composer-field",
      rows: 1,
      "aria-label": "Message",
      placeholder: "Write a message",
      enterkeyhint: "send",
    });
    this.field.addEventListener("input", () => this.fit());
    this.field.addEventListener("keydown", (event) => this.onFieldKey(event));
    this.send_button = h("button", { type: "button", class: "send" });
    this.send_button.addEventListener("click", () => this.sendOrStop());
    this.element = this.build();
  }

  private build(): HTMLElement {
    const { conversation, actions } = this;
    return h(
      "section",
      { class: "column", "data-conversation": conversation.id },
      h(
        "header",
        { class: "column-head" },
        this.title,
        this.options_button,
        iconButton("fork", "Go on in a second column", () => void actions.forkConversation(conversation), "Alt+K"),
        iconButton("close", "Close this column", () => actions.closeColumn(conversation), "Alt+W"),
      ),
      this.options.element,
      this.log,
      h(
        "footer",
        { class: "composer" },
        this.latest,
        h("div", { class: "composer-box" }, this.field, this.send_button),
        h("div", { class: "composer-foot" }, this.model_select, this.status, this.context),
      ),
      this.announcer,
    );
  }

  // Everything again, as far as it changed.
  render(): void {
    const { conversation } = this;
    const progress = this.actions.progressOf(conversation);
    this.showName();
    if (document.activeElement !== this.title) this.title.value = conversation.title;
    this.showModels();
    const turns = path(conversation);
    const first = Math.max(turns.findIndex((turn) => turn.id === conversation.first_sent), 0);
    const views = new Map<string, TurnView>();
    const elements: HTMLElement[] = [];
    turns.forEach((turn, index) => {
      // Another tab may have brought a newer state of the same turn.
      const known = this.views.get(turn.id);
      const view = known?.turn === turn ? known : new TurnView(conversation, turn, this.actions);
      views.set(turn.id, view);
      if (index === first && first > 0) {
        elements.push(h("p", { class: "left-out-line" }, "The turns above are left out"));
      }
      elements.push(view.element);
      view.update(progress, index >= first);
    });
    const focus = this.focusInTurns();
    this.views = views;
    this.place(elements.length > 0 ? elements : [this.emptyState()]);
    this.restoreFocus(focus);
    this.showState(progress);
    this.follow();
  }

  // Which turn has the focus, and which of its buttons: another version of it gets the focus then.
  private focusInTurns(): { index: number; button: string | null } | null {
    const active = document.activeElement;
    const index = Array.from(this.views.values()).findIndex((view) => view.element.contains(active));
    if (active === null || index < 0) return null;
    return { index, button: active.matches("button") ? active.getAttribute("aria-label") : null };
  }

  private restoreFocus(focus: { index: number; button: string | null } | null): void {
    if (focus === null || this.log.contains(document.activeElement)) return;
    const view = Array.from(this.views.values())[focus.index];
    if (view === undefined) return this.field.focus();
    const buttons = Array.from(view.element.querySelectorAll<HTMLButtonElement>(".turn-tools button"));
    const same = buttons.find((button) => button.getAttribute("aria-label") === focus.button);
    (same !== undefined && !same.disabled ? same : view.element).focus();
  }

  setPlace(index: number): void {
    this.place_name = `Column ${index + 1}`;
    this.showName();
  }
  private showName(): void {
    this.element.setAttribute("aria-label", `${this.place_name}: ${this.conversation.title}`);
  }

  // Leaves elements that are in place alone, so that focus and selections survive.
  private place(elements: HTMLElement[]): void {
    elements.forEach((element, index) => {
      const there = this.log.children[index];
      if (there !== element) this.log.insertBefore(element, there ?? null);
    });
    while (this.log.children.length > elements.length) this.log.lastElementChild!.remove();
  }

  // Only the reply under way: at most once a frame.
  renderProgress(progress: Progress): void {
    const view = this.views.get(progress.turn.id);
    if (view === undefined) return this.render();
    view.update(progress, true);
    this.showState(progress);
    this.follow();
  }

  ended(progress: Progress): void {
    const view = this.views.get(progress.turn.id);
    if (view !== undefined) view.failure = progress.failure;
    this.render();
    const { text, state, note } = progress.turn;
    this.announcer.textContent = state === "failed" ? note : `Reply: ${text}`;
  }

  private emptyState(): HTMLElement {
    const { conversation, actions } = this;
    return h(
      "div",
      { class: "empty" },
      brandMark(),
      h("p", { class: "empty-title" }, "Ask it something"),
      h("p", { class: "empty-text" }, "The model runs on this machine. What you write stays here."),
      h(
        "div",
        { class: "suggestions" },
        ...SUGGESTIONS.map((text) =>
          h(
            "button",
            { type: "button", class: "suggestion", onclick: () => actions.send(conversation, text) },
            text,
          ),
        ),
      ),
    );
  }

  private showModels(): void {
    const models = this.actions.models();
    const { conversation } = this;
    const ids = models.map((model) => model.id);
    const gone = conversation.model !== "" && !ids.includes(conversation.model);
    const key = JSON.stringify([ids, gone && conversation.model]);
    if (this.model_select.dataset["key"] !== key) {
      this.model_select.dataset["key"] = key;
      replaceChildren(
        this.model_select,
        ...ids.map((id) => h("option", { value: id }, id)),
        gone && h("option", { value: conversation.model }, `${conversation.model} (not served)`),
      );
    }
    this.model_select.value = conversation.model;
    this.model_select.title = `Model: ${conversation.model}`;
  }

  private showState(progress: Progress | null): void {
    const running = progress !== null;
    if (this.send_button.dataset["running"] !== String(running)) {
      this.send_button.dataset["running"] = String(running);
      this.send_button.replaceChildren(icon(running ? "stop" : "send"));
      this.send_button.setAttribute("aria-label", running ? "Stop" : "Send");
      this.send_button.title = running ? "Stop (Esc)" : "Send (Enter)";
    }
    this.element.classList.toggle("running", running);
    this.status.textContent = this.statusText(progress);
    this.showContext();
  }

  private statusText(progress: Progress | null): string {
    if (progress === null) return "";
    if (progress.phase === "waiting") return progress.note || "Waiting for the server";
    if (progress.phase === "reading") {
      return progress.note === "" ? "Reading the prompt" : `Reading: ${progress.note}`;
    }
    const rate = liveRate(progress);
    const count = `${formatCount(progress.tokens)} tokens`;
    return rate > 0 ? `${formatRate(rate)} tok/s \u00b7 ${count}` : count;
  }

  private showContext(): void {
    const { conversation } = this;
    const last = path(conversation).reverse().find((turn) => turn.stats !== null);
    const model = this.actions.models().find((each) => each.id === conversation.model);
    const limit = model?.context_tokens ?? 0;
    if (last === undefined || last.stats === null) {
      this.context.textContent = limit > 0 ? `room for ${formatCount(limit)} tokens` : "";
      return;
    }
    const used = last.stats.prompt_tokens + last.stats.generated_tokens;
    this.context.textContent =
      limit > 0 ? `${formatCount(used)} of ${formatCount(limit)} tokens` : `${formatCount(used)} tokens`;
    this.context.classList.toggle("tight", limit > 0 && used > limit * 0.85);
  }

  private rename(): void {
    const { conversation } = this;
    const title = this.title.value.trim();
    if (title !== "") {
      conversation.title = title;
      conversation.titled = true;
    }
    this.actions.changed(conversation);
    this.render();
  }

  toggleOptions(): void {
    this.options.toggle();
    this.options_button.setAttribute("aria-expanded", String(this.options.open));
    if (!this.options.open) this.field.focus();
  }

  // ---- writing ----------------------------------------------------------------------------------

  private sendOrStop(): void {
    if (this.actions.progressOf(this.conversation) !== null) {
      this.actions.stop(this.conversation);
    } else {
      this.send(false);
    }
    this.field.focus();
  }

  private send(to_all: boolean): void {
    const text = this.field.value;
    if (text.trim() === "") return;
    const sent = to_all ? this.actions.sendToAll(text) : this.actions.send(this.conversation, text);
    if (!sent) return;
    this.field.value = "";
    this.fit();
    this.following = true;
    this.toEnd();
  }

  private fit(): void {
    this.field.style.height = "auto";
    const height = Math.min(this.field.scrollHeight, MOST_COMPOSER_PIXELS);
    this.field.style.height = `${height}px`;
  }

  private onFieldKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      this.send(event.ctrlKey || event.metaKey);
    } else if (event.key === "ArrowUp" && this.field.value === "") {
      event.preventDefault();
      this.editLast();
    }
  }

  // The last message of the user's, in its editor.
  editLast(): void {
    const turn = path(this.conversation).reverse().find((each) => each.role === "user");
    if (turn !== undefined) this.views.get(turn.id)?.beginEdit();
  }

  failureOf(turn: Turn): Failure | null {
    return this.views.get(turn.id)?.failure ?? null;
  }

  lastReply(): Turn | null {
    return path(this.conversation).reverse().find((each) => each.role === "assistant") ?? null;
  }

  // ---- moving about -----------------------------------------------------------------------------

  private onLogKey(event: KeyboardEvent): void {
    const step = event.key === "ArrowUp" || event.key === "k" ? -1 : event.key === "ArrowDown" || event.key === "j" ? 1 : 0;
    if (step === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const active = document.activeElement;
    const elements = Array.from(this.views.values(), (view) => view.element);
    const at = elements.findIndex((element) => element === active);
    if (active !== this.log && at < 0) return;
    event.preventDefault();
    const next = at < 0 ? elements[step < 0 ? elements.length - 1 : 0] : elements[at + step];
    if (next !== undefined) {
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    } else if (step > 0) {
      this.field.focus();
    }
  }

  // The last turn, for the keys that work on turns.
  focusTurns(): void {
    const elements = Array.from(this.views.values(), (view) => view.element);
    (elements[elements.length - 1] ?? this.log).focus();
  }

  private onScroll(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.log;
    this.following = scrollHeight - scrollTop - clientHeight < FOLLOW_PIXELS;
    this.latest.hidden = this.following;
  }
  private follow(): void {
    if (this.following) this.log.scrollTop = this.log.scrollHeight;
  }
  private toEnd(): void {
    this.following = true;
    this.latest.hidden = true;
    this.log.scrollTop = this.log.scrollHeight;
  }
}
