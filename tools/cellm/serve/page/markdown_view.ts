// Markdown on the page. While a reply arrives only its last block changes: blocks whose source is
// what it was keep their elements, so a selection or a scrolled code block stays as it is.
import { h } from "./dom";
import { highlight } from "./highlight";
import { icon } from "./icons";
import { Block, ListItem, parseMarkdown } from "./markdown";
import { Inline } from "./markdown_inline";

export class MarkdownView {
  readonly element = h("div", { class: "markdown" });
  private sources: string[] = [];

  show(text: string): void {
    const blocks = parseMarkdown(text);
    let same = 0;
    while (same < blocks.length && this.sources[same] === blocks[same]!.source) same++;
    // The last block may have been half a link or an open fence: it is made again when it grows.
    while (this.element.childNodes.length > same) this.element.lastChild!.remove();
    for (const block of blocks.slice(same)) this.element.append(blockElement(block));
    this.sources = blocks.map((block) => block.source);
  }
}

function blockElement(block: Block): HTMLElement {
  switch (block.kind) {
    case "paragraph":
      return h("p", {}, ...inlineNodes(block.children));
    case "heading": {
      // Below the page's own heading.
      const level = Math.min(block.level + 1, 6) as 2 | 3 | 4 | 5 | 6;
      const element = h(`h${level}`, {}, ...inlineNodes(block.children));
      element.dataset["level"] = String(block.level);
      return element;
    }
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", {}, ...block.blocks.map(blockElement));
    case "code":
      return codeElement(block.text, block.language);
    case "list": {
      const items = block.items.map((item) => itemElement(item, block.tight));
      if (block.start === null) return h("ul", {}, ...items);
      return h("ol", { start: block.start === 1 ? null : block.start }, ...items);
    }
    case "table": {
      const row = (cells: Inline[][], tag: "th" | "td"): HTMLElement =>
        h(
          "tr",
          {},
          ...cells.map((cell, column) => {
            const align = block.align[column] ?? "";
            const name = align === "" ? null : `align-${align}`;
            return h(tag, { class: name }, ...inlineNodes(cell));
          }),
        );
      return h(
        "div",
        { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" },
        h(
          "table",
          {},
          h("thead", {}, row(block.head, "th")),
          h("tbody", {}, ...block.rows.map((cells) => row(cells, "td"))),
        ),
      );
    }
  }
}

function itemElement(item: ListItem, tight: boolean): HTMLElement {
  const element = h("li", { class: item.task === null ? null : "task" });
  if (item.task !== null) {
    element.append(
      h("input", { type: "checkbox", disabled: true, checked: item.task, "aria-label": "Task" }),
    );
  }
  for (const block of item.blocks) {
    if (tight && block.kind === "paragraph") element.append(...inlineNodes(block.children));
    else element.append(blockElement(block));
  }
  return element;
}

function codeElement(text: string, language: string): HTMLElement {
  const code = h("code");
  for (const token of highlight(text, language)) {
    code.append(
      token.kind === "plain" ? token.text : h("span", { class: `code-${token.kind}` }, token.text),
    );
  }
  const label = h("span", {}, "Copy");
  const copy = h(
    "button",
    { type: "button", class: "code-copy", "aria-label": "Copy code" },
    icon("copy"),
    label,
  );
  copy.addEventListener("click", () => {
    void copyText(text).then((copied) => {
      label.textContent = copied ? "Copied" : "Not allowed";
      setTimeout(() => (label.textContent = "Copy"), 1500);
    });
  });
  return h(
    "div",
    { class: "code-block" },
    h("div", { class: "code-head" }, h("span", {}, language === "" ? "text" : language), copy),
    h("pre", { tabindex: "0" }, code),
  );
}

function inlineNodes(nodes: Inline[]): (Node | string)[] {
  return nodes.map((node) => {
    switch (node.kind) {
      case "text":
        return node.text;
      case "code":
        return h("code", {}, node.text);
      case "break":
        return h("br");
      case "link":
        return h(
          "a",
          { href: node.href, target: "_blank", rel: "noopener noreferrer", title: node.href },
          ...inlineNodes(node.children),
        );
      default:
        return h(node.kind, {}, ...inlineNodes(node.children));
    }
  });
}

// Also where the page has no right to the clipboard: over plain HTTP from another machine.
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { class: "off-screen", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}
