// Server-sent events: bytes of a response in, events out. The grammar is that of the HTML standard,
// section "Server-sent events", without `id` and `retry`, which a reply has no use for.

export type StreamItem =
  | { readonly kind: "data"; readonly data: string }
  // The server sends comments while a long prompt is read, so that the connection lives.
  | { readonly kind: "comment"; readonly text: string };

// Text in any pieces in, whole events out. A piece may end anywhere, between "\r" and "\n" too.
export class EventParser {
  private line = "";
  private data: string[] = [];
  private begun = false;
  private after_return = false;

  push(text: string): StreamItem[] {
    const items: StreamItem[] = [];
    if (!this.begun && text.length > 0) {
      this.begun = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    let start = 0;
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (c === "\n" && this.after_return && i === start) {
        // The second half of a "\r\n".
        this.after_return = false;
        start = i + 1;
        continue;
      }
      if (c !== "\n" && c !== "\r") continue;
      this.take(this.line + text.slice(start, i), items);
      this.line = "";
      this.after_return = c === "\r";
      start = i + 1;
    }
    if (start < text.length) {
      this.line += text.slice(start);
      this.after_return = false;
    }
    return items;
  }

  private take(line: string, items: StreamItem[]): void {
    if (line === "") {
      if (this.data.length > 0) items.push({ kind: "data", data: this.data.join("\n") });
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (colon === 0) items.push({ kind: "comment", text: value });
    if (name === "data") this.data.push(value);
  }
}

// Reads a response to its end and hands out what comes, in order. Throws what the reader throws:
// AbortError when it was stopped, TypeError when the connection broke.
export async function readStream(
  body: ReadableStream<Uint8Array>,
  take: (item: StreamItem) => void,
): Promise<void> {
  const parser = new EventParser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (const item of parser.push(decoder.decode(value, { stream: true }))) take(item);
  }
}
