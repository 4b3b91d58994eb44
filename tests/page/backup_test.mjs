import assert from "node:assert/strict";
import { fromBackup, readConversation, toBackup } from "../../tools/cellm/serve/page/backup.ts";
import { addTurn, newConversation } from "../../tools/cellm/serve/page/conversation.ts";
import { test } from "./harness.mjs";

function sample() {
  const c = newConversation("m", 5);
  const user = addTurn(c, null, "user", "hello");
  const reply = addTurn(c, user.id, "assistant", "hi");
  reply.state = "done";
  reply.calls = [{ name: "f", arguments: "{\"a\":1}" }];
  reply.stats = { prompt_tokens: 1, cached_tokens: 0, generated_tokens: 2, first_token_ms: 3, tokens_per_second: 4, seed: 5 };
  return c;
}

test("backup: what goes out comes in", () => {
  const list = [sample(), sample()];
  assert.deepEqual(fromBackup(toBackup(list)), list);
});

test("backup: a reply that was being written is a stopped one", () => {
  const c = sample();
  Object.values(c.turns)[1].state = "streaming";
  assert.equal(Object.values(fromBackup(toBackup([c]))[0].turns)[1].state, "stopped");
});

test("backup: what is none is refused by name", () => {
  assert.throws(() => fromBackup("{"), /not JSON/);
  assert.throws(() => fromBackup("[]"), /no conversations/);
  assert.throws(() => fromBackup('{"kind": "other"}'), /no conversations/);
  assert.throws(() => fromBackup(toBackup([]).replace('"version": 1', '"version": 2')), /newer/);
  const two = JSON.parse(toBackup([sample(), sample()]));
  delete two.conversations[1].turns;
  assert.throws(() => fromBackup(JSON.stringify(two)), /Conversation 2/);
});

test("backup: damaged trees are refused", () => {
  const damages = [
    (c) => (c.id = "../x"),
    (c) => (c.id = "__proto__"),
    (c) => (c.chosen = "nowhere"),
    (c, [user]) => (user.chosen = user.id),
    (c, [user, reply]) => (user.parent = reply.id), // a circle
    (c, [, reply]) => (reply.parent = "nowhere"),
    (c, [, reply]) => (reply.role = "system"),
    (c, [, reply]) => (reply.text = 5),
    (c, [, reply]) => (reply.id = "other"),
    (c, [user]) => (c.chosen = user.chosen),
    (c) => (c.turns = []),
  ];
  for (const damage of damages) {
    const c = JSON.parse(JSON.stringify(sample()));
    damage(c, Object.values(c.turns));
    assert.equal(readConversation(c), null, String(damage));
  }
});

test("backup: any field of a wrong type is refused or brought to a default", () => {
  const wrong = [null, 5, "x", [], {}, true, Infinity];
  const good = JSON.stringify(sample());
  for (const key of Object.keys(sample())) {
    for (const value of wrong) {
      const c = JSON.parse(good);
      c[key] = value;
      const read = readConversation(c);
      if (read === null) continue;
      for (const [name, right] of Object.entries(sample())) {
        const nullable = name === "chosen" || name === "first_sent";
        assert.ok(nullable || typeof read[name] === typeof right, `${key} = ${JSON.stringify(value)}`);
      }
    }
  }
});
