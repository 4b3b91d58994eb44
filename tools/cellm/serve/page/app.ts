// The page: puts its parts together and carries out what they ask for.
import { Actions } from "./actions";
import {
  Failure,
  Model,
  deleteSession,
  forkSession,
  isAlive,
  listModels,
  listSessions,
  setApiKey,
} from "./api";
import { fromBackup, toBackup } from "./backup";
import { Column } from "./column";
import {
  Conversation,
  Turn,
  addTurn,
  copyPath,
  leaveOutOldest,
  newConversation,
  newId,
  path,
  removeTurn,
  sessionOf,
  sessionsOf,
  showSibling,
} from "./conversation";
import { Notices, confirmDialog, textDialog } from "./dialogs";
import { download, h, replaceChildren } from "./dom";
import { EnginePanel } from "./engine_panel";
import { formatBytes, formatRate } from "./format";
import { Generations, MOST_STREAMS, Progress } from "./generation";
import { brandMark, icon, iconButton } from "./icons";
import { Settings, ThemeChoice, applyTheme, loadSettings, saveSettings } from "./settings";
import { Shortcut, listenForShortcuts, showHelp } from "./shortcuts";
import { Sidebar } from "./sidebar";
import { Change, Store } from "./store";

const MOST_COLUMNS = 5;
const ALIVE_EVERY_MS = 2000;
// What is left for replies when turns are left out to make room.
const SHARE_FOR_PROMPT = 0.7;
const NARROW = "(max-width: 760px)";

class App implements Actions {
  private readonly settings: Settings = loadSettings();
  private readonly conversations = new Map<string, Conversation>();
  private readonly columns = new Map<string, Column>();
  private readonly notices = new Notices();
  private readonly sidebar = new Sidebar(this);
  private readonly generations = new Generations(
    (progress, ended) => this.onProgress(progress, ended),
    () => this.settings.sessions,
  );
  private readonly engine = new EnginePanel(
    () => this.generations.all(),
    () => this.generations.tokens_written,
    (bytes, rate) => this.showPulse(bytes, rate),
  );
  private readonly columns_element = h("main", { class: "columns" });
  private readonly tabs = h("div", { class: "tabs", role: "group", "aria-label": "Columns" });
  private readonly banner = h("div", { class: "banner", role: "alert", hidden: true });
  private readonly pulse_rate = h("span", { class: "pulse-rate" });
  private readonly pulse_memory = h("span", {}, "Engine");
  private readonly pulse: HTMLButtonElement;
  private readonly theme_button: HTMLButtonElement;
  private readonly shortcuts: readonly Shortcut[];
  private model_list: Model[] = [];
  private store!: Store;
  private active = ""; // the conversation that had the focus last
  private readonly dirty = new Set<string>(); // of whose replies a frame has not shown the newest
  private alive_timer = 0;

  constructor() {
    applyTheme(this.settings.theme);
    this.pulse = h(
      "button",
      { type: "button", class: "pulse", title: "Engine (Alt+M)", "aria-controls": "engine" },
      icon("pulse"),
      this.pulse_rate,
      this.pulse_memory,
    );
    this.pulse.addEventListener("click", () => this.toggleEngine());
    this.theme_button = iconButton("auto", "Theme", () => this.nextTheme(), "Alt+L");
    this.shortcuts = this.makeShortcuts();
  }

  async start(): Promise<void> {
    this.build();
    this.store = await Store.open((message) => this.notices.show(message));
    for (const each of await this.store.readAll()) this.conversations.set(each.id, each);
    for (const id of this.settings.open.slice(0, MOST_COLUMNS)) {
      if (this.conversations.has(id)) this.addColumn(id);
    }
    this.store.onChange((change) => void this.follow(change));
    await this.reachServer();
    if (this.columns.size === 0) this.newConversation();
    this.renderAll();
    this.focusColumn(0);
    this.engine.start();
    const flush = (): void => void this.store.flush();
    document.addEventListener("visibilitychange", flush);
    window.addEventListener("pagehide", flush);
  }

  private build(): void {
    const root = document.getElementById("app")!;
    replaceChildren(
      root,
      h(
        "header",
        { class: "topbar" },
        iconButton("menu", "Conversations", () => this.toggleSidebar(), "Alt+B"),
        h("h1", { class: "brand" }, brandMark(), h("span", { class: "brand-word" }, "cellm")),
        this.tabs,
        this.pulse,
        this.theme_button,
        iconButton("help", "Keys", () => showHelp(this.shortcuts), "?"),
      ),
      this.banner,
      h("div", { class: "middle" }, this.sidebar.element, this.columns_element, this.engine.element),
      this.notices.element,
    );
    this.columns_element.addEventListener("focusin", (event) => this.onFocus(event));
    this.columns_element.addEventListener("scroll", () => this.renderTabs(), { passive: true });
    // On a narrow screen the panels lie over the columns; they begin closed there.
    const narrow = window.matchMedia(NARROW).matches;
    this.sidebar.element.hidden = narrow || !this.settings.sidebar;
    this.engine.element.hidden = narrow || !this.settings.engine_panel;
    this.sidebar.element.addEventListener("click", (event) => {
      const chose = (event.target as Element).closest(".row-title, .new-conversation") !== null;
      if (chose && window.matchMedia(NARROW).matches) this.sidebar.element.hidden = true;
    });
    this.showTheme();
    listenForShortcuts(this.shortcuts, () => this.escape(), () => showHelp(this.shortcuts));
  }

  private makeShortcuts(): Shortcut[] {
    const current = (act: (column: Column) => void) => (): void => {
      const column = this.columns.get(this.active);
      if (column !== undefined) act(column);
    };
    const reply = (act: (column: Column, turn: Turn) => void): (() => void) =>
      current((column) => {
        const turn = column.lastReply();
        if (turn !== null) act(column, turn);
      });
    const list: Shortcut[] = [
      { code: "KeyN", shown: "Alt+N", does: "New conversation in a column", run: () => this.newConversation() },
      { code: "KeyW", shown: "Alt+W", does: "Close the column", run: current((c) => this.closeColumn(c.conversation)) },
      { code: "KeyK", shown: "Alt+K", does: "Go on in a second column", run: current((c) => void this.forkConversation(c.conversation)) },
      { code: "KeyR", shown: "Alt+R", does: "Answer the last message again", run: reply((c, t) => this.regenerate(c.conversation, t)) },
      { code: "KeyE", shown: "Alt+E", does: "Edit your last message", run: current((c) => c.editLast()) },
      { code: "KeyU", shown: "Alt+U", does: "To the messages", run: current((c) => c.focusTurns()) },
      { code: "KeyI", shown: "Alt+I", does: "To the field", run: current((c) => c.field.focus()) },
      { code: "KeyO", shown: "Alt+O", does: "System prompt and sampling", run: current((c) => c.toggleOptions()) },
      { code: "KeyB", shown: "Alt+B", does: "List of conversations", run: () => this.toggleSidebar() },
      { code: "KeyM", shown: "Alt+M", does: "Engine", run: () => this.toggleEngine() },
      { code: "KeyL", shown: "Alt+L", does: "Theme", run: () => this.nextTheme() },
    ];
    for (let i = 0; i < MOST_COLUMNS; i++) {
      list.push({
        code: `Digit${i + 1}`,
        shown: i === 0 ? `Alt+1 \u2026 ${MOST_COLUMNS}` : "",
        does: "To a column",
        run: () => this.focusColumn(i),
      });
    }
    return list;
  }

  // ---- the server -------------------------------------------------------------------------------

  private async reachServer(): Promise<void> {
    try {
      this.model_list = await listModels();
      this.banner.hidden = true;
      this.adoptModel();
    } catch (error) {
      if (error instanceof Failure && error.kind === "key") {
        void this.askForKey(() => void this.reachServer().then(() => this.renderAll()));
      } else if (error instanceof Failure && error.kind === "gone") {
        this.lost();
      } else {
        this.notices.show(error instanceof Error ? error.message : String(error));
      }
    }
  }

  // A conversation that was begun before the server was reached has no model yet.
  private adoptModel(): void {
    const first = this.model_list[0]?.id ?? "";
    for (const each of this.conversations.values()) {
      if (each.model === "") each.model = first;
    }
  }

  private lost(): void {
    if (this.alive_timer !== 0) return;
    this.banner.hidden = false;
    replaceChildren(
      this.banner,
      h("strong", {}, "The server does not answer."),
      " Is \u201ccellm serve\u201d still running? The page goes on by itself when it is back.",
    );
    const look = (): void => {
      void isAlive().then(async (alive) => {
        if (!alive) {
          this.alive_timer = window.setTimeout(look, ALIVE_EVERY_MS);
          return;
        }
        this.alive_timer = 0;
        await this.reachServer();
        this.renderAll();
      });
    };
    this.alive_timer = window.setTimeout(look, ALIVE_EVERY_MS);
  }

  async askForKey(then: () => void): Promise<void> {
    const key = await textDialog(
      "API key",
      "This server was started with a key. It is kept until this tab is closed.",
      "Key",
    );
    if (key === null) return;
    setApiKey(key.trim());
    then();
  }

  models(): Model[] {
    return this.model_list;
  }
  progressOf(conversation: Conversation): Progress | null {
    return this.generations.progressOf(conversation.id);
  }

  // ---- replies ----------------------------------------------------------------------------------

  private onProgress(progress: Progress, ended: boolean): void {
    const { conversation } = progress;
    if (!this.conversations.has(conversation.id)) return; // deleted in the meantime
    if (!ended) {
      if (this.dirty.size === 0) requestAnimationFrame(() => this.showProgress());
      this.dirty.add(conversation.id);
      if (progress.tokens > 0) this.store.save(conversation);
      return;
    }
    if (progress.failure?.kind === "gone") this.lost();
    // A model that was opened for this reply says its context only now.
    const model = this.model_list.find((each) => each.id === conversation.model);
    if (model !== undefined && model.context_tokens === 0 && progress.failure === null) {
      void this.reachServer().then(() => this.columns.get(conversation.id)?.render());
    }
    this.changed(conversation);
    void this.store.flush();
    this.columns.get(conversation.id)?.ended(progress);
  }

  private showProgress(): void {
    for (const id of this.dirty) {
      const progress = this.generations.progressOf(id);
      if (progress !== null) this.columns.get(id)?.renderProgress(progress);
    }
    this.dirty.clear();
  }

  private canBegin(conversation: Conversation): boolean {
    if (this.generations.isRunning(conversation.id)) return false;
    if (this.generations.count() < MOST_STREAMS) return true;
    this.notices.show(
      `${MOST_STREAMS} replies are being written, as many as a browser has connections for. ` +
        "Wait for one, or stop it.",
    );
    return false;
  }

  private answer(conversation: Conversation, parent: string | null, branch: boolean): void {
    const before = parent === null ? undefined : conversation.turns[parent];
    const source = before === undefined ? conversation.id : sessionOf(conversation, before);
    const reply = addTurn(conversation, parent, "assistant", "");
    conversation.updated_at = Date.now();
    void this.generations.run(conversation, reply, () =>
      this.branchSession(source, branch ? reply : null),
    );
    this.changed(conversation);
    void this.store.flush();
    this.columns.get(conversation.id)?.render();
  }

  // A new branch gets a session of its own that shares what the old one holds, so that both stay
  // evaluated.
  private async branchSession(source: string, turn: Turn | null): Promise<void> {
    if (turn === null || !this.settings.sessions) return;
    turn.session = newId();
    // Where there is none to fork (an earlier server's, or closed to make room) the branch begins a
    // session of its own.
    await forkSession(source, turn.session).catch(() => undefined);
  }

  send(conversation: Conversation, text: string): boolean {
    if (!this.canBegin(conversation)) return false;
    const turns = path(conversation);
    const parent = turns[turns.length - 1]?.id ?? null;
    const message = addTurn(conversation, parent, "user", text);
    this.answer(conversation, message.id, false);
    return true;
  }

  sendToAll(text: string): boolean {
    const sent = Array.from(this.columns.values(), (column) => this.send(column.conversation, text));
    return sent.some((each) => each);
  }

  stop(conversation: Conversation): void {
    this.generations.stop(conversation.id);
  }

  regenerate(conversation: Conversation, reply: Turn): void {
    if (!this.canBegin(conversation)) return;
    // A reply that never began leaves nothing worth keeping.
    const nothing = reply.state === "failed" && reply.text === "" && reply.reasoning === "" &&
      reply.calls.length === 0;
    if (nothing) removeTurn(conversation, reply);
    this.answer(conversation, reply.parent, !nothing);
  }

  edit(conversation: Conversation, turn: Turn, text: string): void {
    if (!this.canBegin(conversation)) return;
    const made = addTurn(conversation, turn.parent, turn.role, text);
    if (turn.role === "assistant") {
      // Words put into the model's mouth: kept, and the conversation goes on from them.
      made.state = "done";
      this.changed(conversation);
      this.columns.get(conversation.id)?.render();
      return;
    }
    if (turn.id === conversation.first_sent) conversation.first_sent = made.id;
    this.answer(conversation, made.id, true);
  }

  showSibling(conversation: Conversation, turn: Turn, step: number): void {
    if (this.generations.isRunning(conversation.id)) return;
    if (!showSibling(conversation, turn, step)) return;
    this.changed(conversation);
    this.columns.get(conversation.id)?.render();
  }

  leaveOutAndRetry(conversation: Conversation, reply: Turn): void {
    const failure = this.columns.get(conversation.id)?.failureOf(reply) ?? null;
    const share =
      failure !== null && failure.needed > 0
        ? (failure.available / failure.needed) * SHARE_FOR_PROMPT
        : SHARE_FOR_PROMPT;
    if (leaveOutOldest(conversation, share)) {
      this.regenerate(conversation, reply);
    } else {
      this.notices.show("The last message alone is too long for this model. Make it shorter.");
    }
  }

  // ---- conversations and columns ----------------------------------------------------------------

  changed(conversation: Conversation): void {
    if (!isBlank(conversation)) this.store.save(conversation);
    this.renderSidebar();
    this.renderTabs();
  }

  // Another tab's work. What is being written here goes on; its end is stored over the other's.
  private async follow(change: Change): Promise<void> {
    for (const id of change.saved) {
      if (this.generations.isRunning(id)) continue;
      const fresh = await this.store.read(id);
      if (fresh === null || this.generations.isRunning(id)) continue;
      const known = this.conversations.get(id);
      if (known === undefined) this.conversations.set(id, fresh);
      else Object.assign(known, fresh);
      this.columns.get(id)?.render();
    }
    for (const id of change.removed) {
      const gone = this.conversations.get(id);
      if (gone === undefined) continue;
      this.generations.stop(id);
      this.conversations.delete(id);
      this.closeColumn(gone);
    }
    this.renderSidebar();
  }

  newConversation(): void {
    // An empty one that is open already is as good as a new one.
    for (const [id, column] of this.columns) {
      if (column.conversation.chosen === null && this.columns.size === MOST_COLUMNS) {
        this.columns.get(id)!.field.focus();
        return;
      }
    }
    const current = this.columns.get(this.active)?.conversation;
    const conversation = newConversation(
      current?.model ?? this.model_list[0]?.id ?? "",
      Date.now(),
    );
    this.conversations.set(conversation.id, conversation);
    this.openConversation(conversation.id);
    this.changed(conversation);
  }

  openConversation(id: string): void {
    const there = this.columns.get(id);
    if (there === undefined) {
      if (this.columns.size >= MOST_COLUMNS) this.closeOldest();
      this.addColumn(id);
      this.columnsChanged();
    }
    this.focusColumn(Array.from(this.columns.keys()).indexOf(id));
  }

  private closeOldest(): void {
    for (const [id, column] of this.columns) {
      if (id === this.active || this.generations.isRunning(id)) continue;
      return this.closeColumn(column.conversation);
    }
    const first = this.columns.values().next().value as Column;
    this.closeColumn(first.conversation);
  }

  private addColumn(id: string): void {
    const column = new Column(this.conversations.get(id)!, this);
    this.columns.set(id, column);
    this.columns_element.append(column.element);
    column.render();
  }

  closeColumn(conversation: Conversation): void {
    const column = this.columns.get(conversation.id);
    if (column === undefined) return;
    const index = Array.from(this.columns.keys()).indexOf(conversation.id);
    column.element.remove();
    this.columns.delete(conversation.id);
    // One that nothing was said in is not kept.
    if (isBlank(conversation)) this.forget(conversation);
    if (this.columns.size === 0) {
      this.newConversation();
    } else {
      this.focusColumn(Math.min(index, this.columns.size - 1));
    }
    this.columnsChanged();
  }

  private columnsChanged(): void {
    this.settings.open = Array.from(this.columns.keys());
    saveSettings(this.settings);
    this.columns_element.dataset["count"] = String(this.columns.size);
    Array.from(this.columns.values()).forEach((column, index) => column.setPlace(index));
    this.renderSidebar();
    this.renderTabs();
  }

  private forget(conversation: Conversation): void {
    this.generations.stop(conversation.id);
    this.conversations.delete(conversation.id);
    void this.store.remove(conversation.id);
  }

  // The server's sessions of a conversation hold memory there.
  private endSessions(conversation: Conversation): void {
    const mine = new Set(sessionsOf(conversation));
    void listSessions()
      .then((names) => Promise.all(names.filter((name) => mine.has(name)).map(deleteSession)))
      .catch(() => undefined); // the server is gone, and they with it
  }

  async deleteConversation(conversation: Conversation): Promise<void> {
    const sure = await confirmDialog(
      "Delete this conversation?",
      `\u201c${conversation.title}\u201d is removed from this browser.`,
      "Delete",
    );
    if (!sure) return;
    this.forget(conversation);
    this.endSessions(conversation);
    this.closeColumn(conversation);
    this.renderSidebar();
  }

  async forkConversation(conversation: Conversation): Promise<void> {
    const turns = path(conversation);
    const last = turns[turns.length - 1];
    const copy = copyPath(conversation, Date.now());
    if (last !== undefined && this.settings.sessions) {
      // Without it the copy is evaluated again, as far as the engine does not know its beginning.
      await forkSession(sessionOf(conversation, last), copy.id).catch(() => undefined);
    }
    this.conversations.set(copy.id, copy);
    this.openConversation(copy.id);
    this.changed(copy);
  }

  exportAll(): void {
    const day = new Date().toISOString().slice(0, 10);
    const list = Array.from(this.conversations.values()).filter((each) => each.chosen !== null);
    download(`cellm-conversations-${day}.json`, "application/json", toBackup(list));
  }

  importFile(): void {
    const input = h("input", { type: "file", accept: "application/json,.json" });
    input.addEventListener("change", () => {
      const file = input.files?.[0];
      if (file === undefined) return;
      void file.text().then((text) => this.importText(text));
    });
    input.click();
  }

  private importText(text: string): void {
    try {
      // One that is here already stays as it is; the file's becomes another.
      const list = fromBackup(text).map((each) =>
        this.conversations.has(each.id) ? { ...each, id: newId() } : each,
      );
      for (const each of list) {
        this.conversations.set(each.id, each);
        this.store.save(each);
      }
      this.notices.show(`${list.length} ${list.length === 1 ? "conversation was" : "conversations were"} imported.`);
      if (list[0] !== undefined) this.openConversation(list[0].id);
      this.renderSidebar();
    } catch (error) {
      this.notices.show(error instanceof Error ? error.message : String(error));
    }
  }

  async clearAll(): Promise<void> {
    const sure = await confirmDialog(
      "Delete all conversations?",
      "Everything that this page stored in this browser is removed. Export first to keep it.",
      "Delete all",
    );
    if (!sure) return;
    for (const each of Array.from(this.conversations.values())) {
      this.generations.stop(each.id);
      this.endSessions(each);
    }
    for (const column of this.columns.values()) column.element.remove();
    this.columns.clear();
    await Promise.all(Array.from(this.conversations.keys(), (id) => this.store.remove(id)));
    this.conversations.clear();
    this.newConversation();
  }

  // ---- what is shown ----------------------------------------------------------------------------

  private renderAll(): void {
    for (const column of this.columns.values()) column.render();
    this.columnsChanged();
  }

  private renderSidebar(): void {
    const running = new Set(this.generations.all().map((each) => each.conversation.id));
    const list = Array.from(this.conversations.values());
    this.sidebar.render(list, new Set(this.columns.keys()), running);
  }

  // Which column a narrow screen shows, and the way to the others.
  private renderTabs(): void {
    const ids = Array.from(this.columns.keys());
    const width = this.columns_element.clientWidth;
    const shown = width === 0 ? 0 : Math.round(this.columns_element.scrollLeft / width);
    replaceChildren(
      this.tabs,
      ...ids.map((id, index) => {
        const running = this.generations.isRunning(id);
        return h(
          "button",
          {
            type: "button",
            class: `tab${running ? " running" : ""}`,
            "aria-label": `Column ${index + 1}: ${this.columns.get(id)!.conversation.title}`,
            "aria-current": index === shown ? "true" : null,
            onclick: () => this.focusColumn(index),
          },
          String(index + 1),
        );
      }),
    );
    this.tabs.hidden = ids.length < 2;
  }

  private showPulse(bytes: number, rate: number): void {
    this.pulse_rate.textContent = rate > 0 ? `${formatRate(rate)} tok/s \u00b7` : "";
    this.pulse_memory.textContent = formatBytes(bytes);
  }

  private onFocus(event: FocusEvent): void {
    const column = (event.target as Element).closest<HTMLElement>("[data-conversation]");
    const id = column?.dataset["conversation"] ?? "";
    if (id === "" || id === this.active) return;
    this.active = id;
    for (const [each, { element }] of this.columns) element.classList.toggle("active", each === id);
  }

  private focusColumn(index: number): void {
    const column = Array.from(this.columns.values())[index];
    if (column === undefined) return;
    column.element.scrollIntoView({ block: "nearest", inline: "nearest" });
    column.field.focus();
  }

  private toggleSidebar(): void {
    const { element } = this.sidebar;
    element.hidden = !element.hidden;
    if (!window.matchMedia(NARROW).matches) {
      this.settings.sidebar = !element.hidden;
      saveSettings(this.settings);
    }
    if (!element.hidden) element.querySelector<HTMLElement>("button")!.focus();
    else this.columns.get(this.active)?.field.focus();
  }

  private toggleEngine(): void {
    const { element } = this.engine;
    element.hidden = !element.hidden;
    this.pulse.setAttribute("aria-expanded", String(!element.hidden));
    if (!window.matchMedia(NARROW).matches) {
      this.settings.engine_panel = !element.hidden;
      saveSettings(this.settings);
    }
    if (!element.hidden) this.engine.render();
  }

  private nextTheme(): void {
    const order: readonly ThemeChoice[] = ["system", "light", "dark"];
    const next = order[(order.indexOf(this.settings.theme) + 1) % order.length]!;
    this.settings.theme = next;
    saveSettings(this.settings);
    applyTheme(next);
    this.showTheme();
  }

  private showTheme(): void {
    const { theme } = this.settings;
    this.theme_button.replaceChildren(icon(theme === "system" ? "auto" : theme === "light" ? "sun" : "moon"));
    const label = `Theme: ${theme === "system" ? "as the system" : theme}`;
    this.theme_button.setAttribute("aria-label", label);
    this.theme_button.title = `${label} (Alt+L)`;
  }

  // Esc: closes what lies over the columns, else stops the reply of the column with the focus.
  private escape(): boolean {
    const narrow = window.matchMedia(NARROW).matches;
    for (const element of [this.sidebar.element, this.engine.element]) {
      if (!narrow || element.hidden) continue;
      element.hidden = true;
      return true;
    }
    const column = this.columns.get(this.active);
    if (column === undefined || !this.generations.isRunning(this.active)) return false;
    this.stop(column.conversation);
    return true;
  }
}

// Nothing was said in it yet.
function isBlank(conversation: Conversation): boolean {
  return conversation.chosen === null && conversation.system === "";
}

void new App().start();
