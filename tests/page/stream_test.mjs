import assert from "node:assert/strict";
import { EventParser, readStream } from "../../tools/cellm/serve/page/stream.ts";
import { test } from "./harness.mjs";

const STREAM = ": hello\n\ndata: {\"a\": 1}\n\ndata: one\ndata:two\ndata\n\nevent: x\nid: 3\ndata:  b\n\ndata: [DONE]\n\ndata: cut";
const ITEMS = [
  { kind: "comment", text: "hello" },
  { kind: "data", data: '{"a": 1}' },
  { kind: "data", data: "one\ntwo\n" },
  { kind: "data", data: " b" },
  { kind: "data", data: "[DONE]" },
];

function parse(pieces) {
  const parser = new EventParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

for (const [name, end] of [["LF", "\n"], ["CRLF", "\r\n"], ["CR", "\r"]]) {
  test(`stream: ${name}, cut at every place`, () => {
    const text = STREAM.replaceAll("\n", end);
    assert.deepEqual(parse([text]), ITEMS);
    assert.deepEqual(parse(Array.from(text)), ITEMS);
    for (let i = 0; i <= text.length; i++) {
      assert.deepEqual(parse([text.slice(0, i), "", text.slice(i)]), ITEMS, `cut at ${i}`);
    }
  });
}

test("stream: a mark of byte order is no text", () => {
  assert.deepEqual(parse(["\ufeffdata: a\n\n"]), [{ kind: "data", data: "a" }]);
});

test("stream: an event that was not ended is none", () => {
  assert.deepEqual(parse(["data: a\n"]), []);
});

test("stream: bytes of a character in several pieces", async () => {
  const bytes = new TextEncoder().encode("data: \u00e9\u20ac\u{1f98a}\n\n");
  for (let i = 1; i < bytes.length; i++) {
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(bytes.slice(0, i));
        controller.enqueue(bytes.slice(i));
        controller.close();
      },
    });
    const items = [];
    await readStream(body, (item) => items.push(item));
    assert.deepEqual(items, [{ kind: "data", data: "\u00e9\u20ac\u{1f98a}" }]);
  }
});
