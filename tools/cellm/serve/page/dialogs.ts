// Questions to the user, and short messages at the edge of the page.
import { h } from "./dom";
import { iconButton } from "./icons";

const NOTICE_MS = 6000;

export class Notices {
  readonly element = h("div", { class: "notices", role: "status", "aria-live": "polite" });

  show(text: string): void {
    const notice = h("div", { class: "notice" }, h("span", {}, text));
    const close = (): void => notice.remove();
    notice.append(iconButton("close", "Dismiss", close));
    this.element.append(notice);
    setTimeout(close, NOTICE_MS);
  }
}

function openDialog(dialog: HTMLDialogElement): Promise<string> {
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    // A click beside it closes it, as Esc does.
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close("");
    });
    dialog.showModal();
  });
}

// True when the user chose `action`.
export async function confirmDialog(title: string, text: string, action: string): Promise<boolean> {
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-label": title },
    h("h2", {}, title),
    h("p", {}, text),
    h(
      "form",
      { method: "dialog", class: "dialog-buttons" },
      h("button", { class: "button", value: "", autofocus: true }, "Cancel"),
      h("button", { class: "button danger", value: "yes" }, action),
    ),
  );
  return (await openDialog(dialog)) === "yes";
}

// The text that was entered; null when the user left.
export async function textDialog(title: string, text: string, label: string): Promise<string | null> {
  const field = h("input", { type: "password", autocomplete: "off", autofocus: true });
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-label": title },
    h("h2", {}, title),
    h("p", {}, text),
    h(
      "form",
      { method: "dialog" },
      h("label", { class: "field wide" }, h("span", {}, label), field),
      h(
        "div",
        { class: "dialog-buttons" },
        h("button", { class: "button primary", value: "yes" }, "Use it"),
      ),
    ),
  );
  return (await openDialog(dialog)) === "yes" ? field.value : null;
}

export async function sheetDialog(title: string, ...content: Node[]): Promise<void> {
  const dialog: HTMLDialogElement = h(
    "dialog",
    { class: "dialog sheet", "aria-label": title },
    h(
      "header",
      { class: "dialog-head" },
      h("h2", {}, title),
      iconButton("close", "Close", () => dialog.close("")),
    ),
    ...content,
  );
  await openDialog(dialog);
}
