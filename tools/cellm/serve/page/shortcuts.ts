// The page's keys, in one list: what is handled and what the help sheet shows cannot differ.
// With Alt, since browsers keep most of what Ctrl does for themselves; read by the key's place, so
// that a layout where Alt writes letters works too.
import { sheetDialog } from "./dialogs";
import { h } from "./dom";

export interface Shortcut {
  readonly code: string; // KeyboardEvent.code
  readonly shown: string;
  readonly does: string;
  readonly run: () => void;
}

// Keys that work inside something that has the focus; handled there, listed here.
const LOCAL_KEYS: readonly [string, string, string][] = [
  ["Writing", "Enter", "Send"],
  ["Writing", "Shift+Enter", "New line"],
  ["Writing", "Ctrl+Enter", "Send to all columns"],
  ["Writing", "\u2191 in an empty field", "Edit your last message"],
  ["Messages", "\u2191 \u2193", "Move between messages"],
  ["Messages", "e", "Edit"],
  ["Messages", "r", "Answer again"],
  ["Messages", "c", "Copy"],
  ["Messages", "[ ]", "Earlier or later version"],
];

export function listenForShortcuts(shortcuts: readonly Shortcut[], escape: () => boolean, help: () => void): void {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]") !== null) return;
    if (event.key === "Escape" && escape()) {
      event.preventDefault();
      return;
    }
    const typing = event.target instanceof HTMLElement &&
      event.target.matches("input, textarea, select, [contenteditable]");
    if ((event.key === "?" && !typing) || (event.key === "/" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      help();
      return;
    }
    if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const shortcut = shortcuts.find((each) => each.code === event.code);
    if (shortcut === undefined) return;
    event.preventDefault();
    shortcut.run();
  });
}

export function showHelp(shortcuts: readonly Shortcut[]): void {
  const groups = new Map<string, [string, string][]>();
  groups.set("Anywhere", [
    ...shortcuts
      .filter((each) => each.shown !== "")
      .map((each): [string, string] => [each.shown, each.does]),
    ["Esc", "Stop the reply"],
    ["? or Ctrl+/", "This sheet"],
  ]);
  for (const [group, keys, does] of LOCAL_KEYS) {
    const rows = groups.get(group) ?? [];
    rows.push([keys, does]);
    groups.set(group, rows);
  }
  const sections = Array.from(groups, ([name, rows]) =>
    h(
      "section",
      {},
      h("h3", {}, name),
      h("dl", { class: "keys" }, ...rows.map(([keys, does]) => h("div", {}, h("dt", {}, does), h("dd", {}, h("kbd", {}, keys))))),
    ),
  );
  void sheetDialog("Keys", h("div", { class: "help" }, ...sections));
}
