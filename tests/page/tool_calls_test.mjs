import assert from "node:assert/strict";
import { addCallDeltas, readCalls, showArguments } from "../../tools/cellm/serve/page/tool_calls.ts";
import { test } from "./harness.mjs";

test("tool calls: deltas join, by their numbers", () => {
  const calls = [];
  const take = (deltas) => addCallDeltas(calls, deltas);
  assert.equal(take([{ index: 0, id: "a", type: "function", function: { name: "f", arguments: "" } }]), true);
  assert.equal(take([{ index: 0, function: { arguments: "{\"x\":" } }]), true);
  assert.equal(take([{ index: 1, function: { name: "g" } }, { index: 0, function: { arguments: "1}" } }]), true);
  assert.deepEqual(calls, [{ name: "f", arguments: "{\"x\":1}" }, { name: "g", arguments: "" }]);
});

test("tool calls: what is none changes nothing", () => {
  const calls = [];
  for (const none of [undefined, null, "x", {}, [], [null], [5], [{ index: 1 }], [{ index: -1 }], [{ index: "0" }]]) {
    assert.equal(addCallDeltas(calls, none), false);
  }
  assert.deepEqual(calls, []);
  assert.deepEqual(readCalls([null, { name: "f" }, { name: 1, arguments: "" }, { name: "f", arguments: "{}", more: 1 }]),
    [{ name: "f", arguments: "{}" }]);
  assert.deepEqual(readCalls("x"), []);
});

test("tool calls: arguments are laid out, half of them stand as they are", () => {
  assert.equal(showArguments({ name: "f", arguments: "{\"a\":[1],\"b\":\"c\"}" }),
    "{\n  \"a\": [\n    1\n  ],\n  \"b\": \"c\"\n}");
  assert.equal(showArguments({ name: "f", arguments: "{\"a\":" }), "{\"a\":");
});
