// Markdown to a tree: the part of CommonMark and GFM that models write. What it does not know stays
// text, HTML above all: nothing of a message is ever taken for markup of the page.
//
// Differences from CommonMark, all in favour of chats: a line break is a line break, nothing is code
// only because it is indented, "---" is always a rule, and a nested list may be indented by two.
// Work is linear in the text for any input, and nesting is bounded.

import { Inline, parseInline } from "./markdown_inline";

export type Align = "left" | "center" | "right" | "";

export interface ListItem {
  readonly task: boolean | null; // a check box, and whether it is ticked
  readonly blocks: Block[];
}

export type BlockBody =
  | { readonly kind: "paragraph"; readonly children: Inline[] }
  | { readonly kind: "heading"; readonly level: number; readonly children: Inline[] }
  | { readonly kind: "code"; readonly language: string; readonly text: string }
  | { readonly kind: "quote"; readonly blocks: Block[] }
  | {
      readonly kind: "list";
      readonly start: number | null; // null: bullets
      readonly tight: boolean;
      readonly items: ListItem[];
    }
  | {
      readonly kind: "table";
      readonly align: Align[];
      readonly head: Inline[][];
      readonly rows: Inline[][][];
    }
  | { readonly kind: "rule" };

// `source` is the text that the block was made of: a view that has it need not be made again.
export type Block = BlockBody & { readonly source: string };

const MOST_NESTING = 12;
const MOST_COLUMNS = 64;

export function parseMarkdown(text: string): Block[] {
  return parseBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

interface Marker {
  readonly indent: number; // blanks before it
  readonly content: number; // where the item's text begins
  readonly type: string; // '-', '*', '+', '.' or ')'
  readonly number: number;
}

function indentOf(line: string): number {
  let i = 0;
  while (i < line.length && line[i] === " ") i++;
  return i;
}

function isBlank(line: string): boolean {
  return line.trim() === "";
}

function readMarker(line: string): Marker | null {
  const match = /^( *)(?:([-*+])|(\d{1,9})([.)]))(?= |$)/.exec(line);
  if (match === null) return null;
  const width = match[0]!.length;
  let content = width;
  while (content < line.length && line[content] === " ") content++;
  // More than four blanks belong to the text; none at all is an empty item.
  if (content - width > 4 || content === line.length) content = width + 1;
  return {
    indent: match[1]!.length,
    content,
    type: match[2] ?? match[4]!,
    number: match[3] === undefined ? 0 : Number(match[3]),
  };
}

function isRule(line: string): boolean {
  const marks = line.replace(/[ \t]/g, "");
  if (marks.length < 3) return false;
  const mark = marks[0]!;
  return "-*_".includes(mark) && marks === mark.repeat(marks.length);
}

function readFence(line: string): { mark: string; language: string } | null {
  const match = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line);
  if (match === null) return null;
  const info = match[2]!.trim();
  if (match[1]![0] === "`" && info.includes("`")) return null;
  return { mark: match[1]!, language: info.split(/\s/, 1)[0]! };
}

function closesFence(line: string, mark: string): boolean {
  const text = line.trim();
  return text.length >= mark.length && text === mark[0]!.repeat(text.length) && indentOf(line) < 4;
}

function readHeading(line: string): { level: number; text: string } | null {
  const text = line.trim();
  let level = 0;
  while (text[level] === "#") level++;
  if (level < 1 || level > 6 || indentOf(line) > 3) return null;
  if (text.length > level && text[level] !== " " && text[level] !== "\t") return null;
  let end = text.length;
  while (end > level && text[end - 1] === "#") end--;
  // A closing run of '#' counts only after a blank.
  if (end > level && text[end - 1] !== " ") end = text.length;
  return { level, text: text.slice(level, end).trim() };
}

function splitCells(line: string): string[] {
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  const cells: string[] = [];
  let cell = "";
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") {
      cell += "|";
      i++;
    } else if (text[i] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else {
      cell += text[i];
    }
  }
  if (cell.trim() !== "" || cells.length === 0) cells.push(cell.trim());
  return cells;
}

// The columns' alignment when `line` is the second line of a table.
function readAlign(line: string | undefined): Align[] | null {
  if (line === undefined || !line.includes("-") || !/^[ |:\-\t]+$/.test(line)) return null;
  const align: Align[] = [];
  for (const cell of splitCells(line)) {
    if (!/^:?-+:?$/.test(cell)) return null;
    const left = cell.startsWith(":");
    const right = cell.endsWith(":");
    align.push(left && right ? "center" : right ? "right" : left ? "left" : "");
  }
  return align.length > MOST_COLUMNS ? null : align;
}

function startsTable(lines: string[], i: number): Align[] | null {
  if (!lines[i]!.includes("|")) return null;
  const align = readAlign(lines[i + 1]);
  return align !== null && splitCells(lines[i]!).length === align.length ? align : null;
}

// Whether a line ends the paragraph before it.
function interrupts(lines: string[], i: number): boolean {
  const line = lines[i]!;
  if (isBlank(line) || isRule(line) || readFence(line) !== null) return true;
  if (/^ {0,3}>/.test(line) || readHeading(line) !== null) return true;
  const marker = readMarker(line);
  if (marker !== null && line.length > marker.content - 1 && marker.number <= 1) return true;
  return startsTable(lines, i) !== null;
}

function parseBlocks(lines: string[], depth: number): Block[] {
  const blocks: Block[] = [];
  let i = 0;
  while (i < lines.length) {
    if (isBlank(lines[i]!)) {
      i++;
      continue;
    }
    const begin = i;
    const read = readBlock(lines, i, depth);
    i = read.next;
    blocks.push({ ...read.body, source: lines.slice(begin, i).join("\n") });
  }
  return blocks;
}

interface BlockRead {
  readonly body: BlockBody;
  readonly next: number;
}

function readBlock(lines: string[], i: number, depth: number): BlockRead {
  const line = lines[i]!;
  const fence = readFence(line);
  if (fence !== null) return readCode(lines, i, fence);
  if (isRule(line)) return { body: { kind: "rule" }, next: i + 1 };
  const heading = readHeading(line);
  if (heading !== null) {
    const children = parseInline(heading.text);
    return { body: { kind: "heading", level: heading.level, children }, next: i + 1 };
  }
  if (depth < MOST_NESTING) {
    if (/^ {0,3}>/.test(line)) return readQuote(lines, i, depth);
    const marker = readMarker(line);
    if (marker !== null) return readList(lines, i, marker, depth);
  }
  const align = startsTable(lines, i);
  if (align !== null) return readTable(lines, i, align);
  const text = [line.trim()];
  let next = i + 1;
  while (next < lines.length && !interrupts(lines, next)) text.push(lines[next++]!.trimStart());
  return { body: { kind: "paragraph", children: parseInline(text.join("\n")) }, next };
}

// A fence that is still open, as while its text arrives, ends with the text.
function readCode(
  lines: string[],
  i: number,
  fence: { mark: string; language: string },
): BlockRead {
  const indent = indentOf(lines[i]!);
  const text: string[] = [];
  let next = i + 1;
  while (next < lines.length && !closesFence(lines[next]!, fence.mark)) {
    const line = lines[next++]!;
    text.push(line.slice(Math.min(indent, indentOf(line))));
  }
  if (next < lines.length) next++;
  return { body: { kind: "code", language: fence.language, text: text.join("\n") }, next };
}

function readQuote(lines: string[], i: number, depth: number): BlockRead {
  const inner: string[] = [];
  let next = i;
  while (next < lines.length) {
    const match = /^ {0,3}> ?/.exec(lines[next]!);
    if (match !== null) {
      inner.push(lines[next]!.slice(match[0]!.length));
    } else if (interrupts(lines, next) || isBlank(inner[inner.length - 1]!)) {
      break;
    } else {
      inner.push(lines[next]!); // a paragraph goes on without its '>'
    }
    next++;
  }
  return { body: { kind: "quote", blocks: parseBlocks(inner, depth + 1) }, next };
}

function readList(lines: string[], i: number, first: Marker, depth: number): BlockRead {
  const items: ListItem[] = [];
  let tight = true;
  let next = i;
  while (next < lines.length) {
    const marker = readMarker(lines[next]!);
    if (marker === null || marker.type !== first.type || marker.indent > first.indent + 1) break;
    if (isRule(lines[next]!)) break;
    const item = [lines[next]!.slice(marker.content)];
    next++;
    while (next < lines.length && belongsToItem(lines, next, marker, item)) {
      const line = lines[next++]!;
      const indent = Math.min(indentOf(line), marker.content);
      item.push(line.slice(indent));
    }
    // Blank lines at its end stand between this item and what follows.
    let blanks = 0;
    while (item.length > 1 && isBlank(item[item.length - 1]!)) {
      item.pop();
      blanks++;
    }
    const task = /^\[([ xX])\] /.exec(item[0]!);
    if (task !== null) item[0] = item[0]!.slice(4);
    const blocks = parseBlocks(item, depth + 1);
    const paragraphs = blocks.filter((block) => block.kind === "paragraph").length;
    const another = next < lines.length ? readMarker(lines[next]!) : null;
    const goes_on = another !== null && another.type === first.type;
    if (paragraphs > 1 || (blanks > 0 && goes_on)) tight = false;
    items.push({ task: task === null ? null : task[1] !== " ", blocks });
  }
  const start = ".)".includes(first.type) ? first.number : null;
  return { body: { kind: "list", start, tight, items }, next };
}

function belongsToItem(lines: string[], i: number, marker: Marker, item: string[]): boolean {
  const line = lines[i]!;
  if (isBlank(line)) return true;
  const indent = indentOf(line);
  if (indent >= marker.content) return true;
  if (indent >= marker.indent + 2 && readMarker(line) !== null) return true;
  // A paragraph goes on without its indent; another number is the next item, not its text.
  if (isBlank(item[item.length - 1]!) || readMarker(line) !== null) return false;
  return !interrupts(lines, i);
}

function readTable(lines: string[], i: number, align: Align[]): BlockRead {
  const fit = (line: string): Inline[][] => {
    const cells = splitCells(line);
    return align.map((_, column) => parseInline(cells[column] ?? ""));
  };
  const rows: Inline[][][] = [];
  let next = i + 2;
  while (next < lines.length && lines[next]!.includes("|") && !isBlank(lines[next]!)) {
    rows.push(fit(lines[next++]!));
  }
  return { body: { kind: "table", align, head: fit(lines[i]!), rows }, next };
}
