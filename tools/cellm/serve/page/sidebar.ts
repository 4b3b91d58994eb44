// The list of conversations, newest first, and what can be done with all of them.
import { Actions } from "./actions";
import { Conversation } from "./conversation";
import { h, replaceChildren } from "./dom";
import { icon, iconButton } from "./icons";

export class Sidebar {
  readonly element: HTMLElement;
  private readonly list = h("ul", { class: "conversation-list" });
  private readonly search = h("input", {
    type: "search",
    class: "search",
    placeholder: "Find a conversation",
    "aria-label": "Find a conversation",
  });
  private shown: { conversations: Conversation[]; open: Set<string>; running: Set<string> } = {
    conversations: [],
    open: new Set(),
    running: new Set(),
  };

  constructor(private readonly actions: Actions) {
    this.search.addEventListener("input", () => this.renderList());
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.element = h(
      "nav",
      { class: "sidebar", id: "sidebar", "aria-label": "Conversations" },
      h(
        "button",
        {
          type: "button",
          class: "new-conversation",
          title: "New conversation (Alt+N)",
          onclick: () => actions.newConversation(),
        },
        icon("plus"),
        "New conversation",
      ),
      this.search,
      this.list,
      h(
        "div",
        { class: "sidebar-foot" },
        this.footButton("export", "Export", () => actions.exportAll()),
        this.footButton("import", "Import", () => actions.importFile()),
        this.footButton("trash", "Clear", () => void actions.clearAll()),
      ),
    );
  }

  private footButton(name: "export" | "import" | "trash", label: string, click: () => void): HTMLElement {
    return h("button", { type: "button", class: "quiet", onclick: click }, icon(name), label);
  }

  render(conversations: Conversation[], open: Set<string>, running: Set<string>): void {
    this.shown = { conversations, open, running };
    this.renderList();
  }

  private renderList(): void {
    const { conversations, open, running } = this.shown;
    const wanted = this.search.value.trim().toLowerCase();
    const found = conversations.filter((each) => matches(each, wanted));
    const focused = document.activeElement?.getAttribute("data-id") ?? null;
    this.search.hidden = conversations.length < 6;
    replaceChildren(
      this.list,
      ...found
        .sort((a, b) => b.updated_at - a.updated_at)
        .map((each) => this.row(each, open.has(each.id), running.has(each.id))),
    );
    if (focused !== null) {
      const row = Array.from(this.list.querySelectorAll<HTMLElement>("[data-id]")).find(
        (each) => each.dataset["id"] === focused,
      );
      row?.focus();
    }
    if (found.length === 0) {
      this.list.append(
        h("li", { class: "hint" }, wanted === "" ? "Nothing here yet" : "None has these words"),
      );
    }
  }

  private row(conversation: Conversation, open: boolean, running: boolean): HTMLElement {
    const { actions } = this;
    return h(
      "li",
      { class: `row${open ? " open" : ""}${running ? " running" : ""}` },
      h(
        "button",
        {
          type: "button",
          class: "row-title",
          "data-id": conversation.id,
          "aria-current": open ? "true" : null,
          title: conversation.title,
          onclick: () => actions.openConversation(conversation.id),
        },
        h("span", { class: "row-text" }, conversation.title),
        running && h("span", { class: "row-dot", role: "img", "aria-label": "writing" }),
      ),
      iconButton("trash", `Delete \u201c${conversation.title}\u201d`, () => void actions.deleteConversation(conversation)),
    );
  }

  private onKey(event: KeyboardEvent): void {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    const rows = Array.from(this.list.querySelectorAll<HTMLElement>(".row-title"));
    const at = rows.findIndex((row) => row === document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    rows[at + step]?.focus();
  }
}

function matches(conversation: Conversation, wanted: string): boolean {
  if (wanted === "" || conversation.title.toLowerCase().includes(wanted)) return true;
  return Object.values(conversation.turns).some((turn) => turn.text.toLowerCase().includes(wanted));
}
