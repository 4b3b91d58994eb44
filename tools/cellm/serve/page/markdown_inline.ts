// Markdown within a line or paragraph: emphasis, code, links. See markdown.ts.

export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "break" }
  | { readonly kind: "em" | "strong" | "del"; readonly children: Inline[] }
  | { readonly kind: "link"; readonly href: string; readonly children: Inline[] };

// Emphasis that waits for its end; it bounds the work and the depth of the tree.
const MOST_OPEN = 64;

// A run of '*', '_' or '~' that may yet open or close something.
interface Delimiter {
  readonly mark: string;
  count: number;
  readonly opens: boolean;
  readonly closes: boolean;
}

interface Piece {
  node: Inline | null; // null: removed, or a delimiter
  delimiter: Delimiter | null;
}

const ENTITIES: Readonly<Record<string, string>> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  "#39": "'",
};
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;

// Only these leave the page; "javascript:" and its like stay text.
export function safeHref(href: string): string | null {
  return /^(?:https?:\/\/|mailto:)[^\s<>"]+$/i.test(href) ? href : null;
}

export function parseInline(text: string): Inline[] {
  return new InlineParser(text).parse();
}

class InlineParser {
  private readonly pieces: Piece[] = [];
  // Where '[' stand in `pieces`, innermost last.
  private brackets: { piece: number; image: boolean }[] = [];
  private plain = "";
  private at = 0;
  // Run lengths of '`' that are known to have no partner further on.
  private readonly lonely = new Set<number>();

  constructor(private readonly text: string) {}

  parse(): Inline[] {
    while (this.at < this.text.length) this.step();
    this.flush();
    return this.close(0);
  }

  private step(): void {
    const { text, at } = this;
    const c = text[at]!;
    switch (c) {
      case "\\":
        return this.escape();
      case "`":
        return this.code();
      case "\n":
        this.plain = this.plain.trimEnd();
        this.at++;
        return this.push({ kind: "break" });
      case "*":
      case "_":
      case "~":
        return this.run(c);
      case "!":
        if (text[at + 1] === "[") return this.bracket(2);
        break;
      case "[":
        return this.bracket(1);
      case "]":
        return this.endBracket();
      case "<":
        return this.angle();
      case "&":
        return this.entity();
      case "h":
        if (this.bareLink()) return;
        break;
    }
    this.plain += c;
    this.at++;
  }

  private flush(): void {
    if (this.plain === "") return;
    this.pieces.push({ node: { kind: "text", text: this.plain }, delimiter: null });
    this.plain = "";
  }
  private push(node: Inline): void {
    this.flush();
    this.pieces.push({ node, delimiter: null });
  }
  private literal(count: number): void {
    this.plain += this.text.slice(this.at, this.at + count);
    this.at += count;
  }

  private escape(): void {
    const next = this.text[this.at + 1];
    if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) {
      this.plain += next;
      this.at += 2;
    } else {
      this.literal(1);
    }
  }

  private runLength(mark: string, at: number): number {
    let end = at;
    while (this.text[end] === mark) end++;
    return end - at;
  }

  private code(): void {
    const length = this.runLength("`", this.at);
    if (!this.lonely.has(length)) {
      const begin = this.at + length;
      for (let i = this.text.indexOf("`", begin); i >= 0; i = this.text.indexOf("`", i)) {
        const other = this.runLength("`", i);
        if (other === length) {
          let inside = this.text.slice(begin, i).replace(/\n/g, " ");
          if (inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "") {
            inside = inside.slice(1, -1);
          }
          this.at = i + length;
          return this.push({ kind: "code", text: inside });
        }
        i += other;
      }
      this.lonely.add(length);
    }
    this.literal(length);
  }

  private run(mark: string): void {
    const count = this.runLength(mark, this.at);
    if (mark === "~" && count !== 2) return this.literal(count);
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + count] ?? " ";
    const space_before = /\s/.test(before);
    const space_after = /\s/.test(after);
    const mark_before = PUNCTUATION.test(before);
    const mark_after = PUNCTUATION.test(after);
    const left = !space_after && (!mark_after || space_before || mark_before);
    const right = !space_before && (!mark_before || space_after || mark_after);
    const inside_word = mark === "_" && left && right;
    this.flush();
    this.pieces.push({
      node: null,
      delimiter: {
        mark,
        count,
        opens: left && (!inside_word || mark_before),
        closes: right && (!inside_word || mark_after),
      },
    });
    this.at += count;
  }

  private bracket(width: number): void {
    this.flush();
    this.brackets.push({ piece: this.pieces.length, image: width === 2 });
    this.pieces.push({
      node: { kind: "text", text: this.text.slice(this.at, this.at + width) },
      delimiter: null,
    });
    this.at += width;
  }

  // "](address)" makes a link of what stands since the '['; an image becomes a link to it, since
  // showing it would tell its host that somebody reads this.
  private endBracket(): void {
    const open = this.brackets.pop();
    const target = open === undefined ? null : this.readTarget(this.at + 1);
    if (open === undefined || target === null) return this.literal(1);
    this.flush();
    const inner = this.close(open.piece + 1);
    this.pieces.length = open.piece;
    const href = safeHref(target.href);
    this.at = target.next;
    const label: Inline[] = inner.length > 0 ? inner : [{ kind: "text", text: target.href }];
    if (href === null) {
      // Shown as it was written: what it says, and where it would have led.
      for (const node of label) this.push(node);
      this.plain += ` (${target.href})`;
      return;
    }
    this.push({ kind: "link", href, children: label });
    // No links within links.
    if (!open.image) this.brackets = [];
  }

  private readTarget(at: number): { href: string; next: number } | null {
    const { text } = this;
    if (text[at] !== "(") return null;
    const match = /^\(\s*(?:<([^<>\n]{0,2000})>|([^\s()<>]{0,2000}(?:\([^\s()]{0,200}\)[^\s()]{0,2000})?))(?:\s+(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?\s*\)/.exec(
      text.slice(at, at + 5000),
    );
    if (match === null) return null;
    return { href: match[1] ?? match[2] ?? "", next: at + match[0]!.length };
  }

  // <https://...>; any other "<" is a character.
  private angle(): void {
    const match = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(
      this.text.slice(this.at, this.at + 2010),
    );
    const href = match === null ? null : safeHref(match[1]!);
    if (match === null || href === null) return this.literal(1);
    this.at += match[0]!.length;
    this.push({ kind: "link", href, children: [{ kind: "text", text: match[1]! }] });
  }

  private entity(): void {
    const match = /^&(#?[a-z0-9]{1,8});/i.exec(this.text.slice(this.at, this.at + 12));
    const character = match === null ? undefined : ENTITIES[match[1]!];
    if (match === null || character === undefined) return this.literal(1);
    this.plain += character;
    this.at += match[0]!.length;
  }

  private bareLink(): boolean {
    const before = this.text[this.at - 1];
    if (before !== undefined && /[\p{L}\p{N}_]/u.test(before)) return false;
    const match = /^https?:\/\/[^\s<>"`]{1,2000}/.exec(this.text.slice(this.at, this.at + 2010));
    if (match === null) return false;
    // A full stop or a bracket that was not opened inside ends the sentence, not the address.
    let url = match[0]!;
    let unopened = url.split(")").length - url.split("(").length;
    for (;;) {
      const last = url[url.length - 1]!;
      if (!(last === ")" && unopened > 0) && !/[.,;:!?'\]*_~]/.test(last)) break;
      if (last === ")") unopened--;
      url = url.slice(0, -1);
    }
    if (this.brackets.length > 0 || safeHref(url) === null) return false;
    this.at += url.length;
    this.push({ kind: "link", href: url, children: [{ kind: "text", text: url }] });
    return true;
  }

  // Pairs the delimiters from piece `from` on, innermost first, and returns the nodes. As in
  // CommonMark, a closer looks back for its opener; where it found none, no later closer of its kind
  // looks again.
  private close(from: number): Inline[] {
    const { pieces } = this;
    const floor = new Map<string, number>();
    const openers: number[] = []; // indices of delimiters that may open, outermost first
    for (let i = from; i < pieces.length; i++) {
      const closer = pieces[i]!.delimiter;
      if (closer === null) continue;
      while (closer.closes && closer.count > 0) {
        const key = closer.mark + (closer.opens ? "o" : "") + (closer.count % 3);
        const bottom = floor.get(key) ?? 0;
        let slot = openers.length - 1;
        while (slot >= bottom && !matches(pieces[openers[slot]!]!.delimiter!, closer)) slot--;
        if (slot < bottom) {
          floor.set(key, openers.length);
          break;
        }
        const at = openers[slot]!;
        const opener = pieces[at]!.delimiter!;
        const used = closer.mark === "~" || (opener.count >= 2 && closer.count >= 2) ? 2 : 1;
        const children = collect(pieces, at + 1, i);
        for (let k = at + 1; k < i; k++) pieces[k] = { node: null, delimiter: null };
        const kind = closer.mark === "~" ? "del" : used === 2 ? "strong" : "em";
        opener.count -= used;
        closer.count -= used;
        openers.length = opener.count > 0 ? slot + 1 : slot;
        // Between what is left of both; runs of one mark never touch, so a piece lies there.
        pieces[at + 1] = { node: { kind, children }, delimiter: null };
        for (const [k, value] of floor) if (value > openers.length) floor.set(k, openers.length);
      }
      if (closer.opens && closer.count > 0 && openers.length < MOST_OPEN) openers.push(i);
    }
    return collect(pieces, from, pieces.length);
  }
}

function matches(opener: Delimiter, closer: Delimiter): boolean {
  if (opener.mark !== closer.mark || opener.count === 0) return false;
  // The rule of three: "*foo**bar*" is one emphasis.
  if (!(opener.closes || closer.opens)) return true;
  return (opener.count + closer.count) % 3 !== 0 || opener.count % 3 === 0;
}

// Nodes of a range; delimiters that found no partner are text again. Neighbouring texts are joined.
function collect(pieces: Piece[], from: number, to: number): Inline[] {
  const nodes: Inline[] = [];
  for (let i = from; i < to; i++) {
    const { node, delimiter } = pieces[i]!;
    const text = delimiter !== null ? delimiter.mark.repeat(delimiter.count) : null;
    const made: Inline | null = text === null ? node : { kind: "text", text };
    if (made === null || (made.kind === "text" && made.text === "")) continue;
    const last = nodes[nodes.length - 1];
    if (made.kind === "text" && last !== undefined && last.kind === "text") {
      nodes[nodes.length - 1] = { kind: "text", text: last.text + made.text };
    } else {
      nodes.push(made);
    }
  }
  return nodes;
}
