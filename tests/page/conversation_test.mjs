import assert from "node:assert/strict";
import {
  addTurn, childrenOf, copyPath, leaveOutOldest, messagesFor, newConversation, path, placeOf,
  removeTurn, sessionOf, sessionsOf, showSibling, titleOf,
} from "../../tools/cellm/serve/page/conversation.ts";
import { fromBackup, toBackup } from "../../tools/cellm/serve/page/backup.ts";
import { test } from "./harness.mjs";

const texts = (conversation) => path(conversation).map((turn) => turn.text);

// user and assistant in turn.
function talk(...said) {
  const conversation = newConversation("m", 1);
  let parent = null;
  for (const [i, text] of said.entries()) {
    const turn = addTurn(conversation, parent, i % 2 === 0 ? "user" : "assistant", text);
    turn.state = "done";
    parent = turn.id;
  }
  return conversation;
}

test("conversation: an edit is a branch, and both can be seen", () => {
  const c = talk("a", "b", "c", "d");
  const [a, , second] = path(c);
  const edited = addTurn(c, second.parent, "user", "C");
  addTurn(c, edited.id, "assistant", "D");
  assert.deepEqual(texts(c), ["a", "b", "C", "D"]);
  assert.deepEqual(placeOf(c, edited), [1, 2]);
  assert.equal(showSibling(c, edited, -1), true);
  assert.deepEqual(texts(c), ["a", "b", "c", "d"]);
  assert.equal(showSibling(c, second, -1), false);
  assert.equal(showSibling(c, second, 1), true);
  assert.deepEqual(texts(c), ["a", "b", "C", "D"]);
  // The very first message can be edited too.
  addTurn(c, null, "user", "A");
  assert.deepEqual(texts(c), ["A"]);
  assert.deepEqual(placeOf(c, a), [0, 2]);
});

test("conversation: removing a turn takes what follows and shows a neighbour", () => {
  const c = talk("a", "b", "c");
  const b = path(c)[1];
  const other = addTurn(c, b.parent, "assistant", "B");
  removeTurn(c, other);
  assert.deepEqual(texts(c), ["a", "b", "c"]);
  removeTurn(c, b);
  assert.deepEqual(texts(c), ["a"]);
  assert.equal(Object.keys(c.turns).length, 1);
});

test("conversation: what is sent", () => {
  const c = talk("a", "b", "c");
  const [, b, last] = path(c);
  const reply = addTurn(c, last.id, "assistant", "");
  assert.deepEqual(messagesFor(c, reply).map((m) => m.role + m.content), ["usera", "assistantb", "userc"]);
  c.system = "be kind";
  b.text = ""; // failed before its first word
  assert.deepEqual(messagesFor(c, reply).map((m) => m.role + m.content), ["systembe kind", "usera", "userc"]);
});

test("conversation: leaving out the oldest turns keeps a user's turn first", () => {
  const c = talk("a".repeat(400), "b".repeat(400), "c".repeat(400), "d".repeat(400), "e");
  assert.equal(leaveOutOldest(c, 0.7), true);
  assert.equal(c.turns[c.first_sent].text[0], "c");
  const reply = addTurn(c, path(c)[4].id, "assistant", "");
  assert.deepEqual(messagesFor(c, reply).map((m) => m.content[0]), ["c", "d", "e"]);
  // Once more, from there.
  assert.equal(leaveOutOldest(c, 0.5), true);
  assert.deepEqual(messagesFor(c, reply).map((m) => m.content[0]), ["e"]);
  assert.equal(leaveOutOldest(c, 0.5), false);
});

test("conversation: sessions follow branches", () => {
  const c = talk("a", "b");
  const [a, b] = path(c);
  assert.equal(sessionOf(c, b), c.id);
  const other = addTurn(c, a.id, "assistant", "B");
  other.session = "s2";
  const more = addTurn(c, other.id, "user", "c");
  assert.equal(sessionOf(c, more), "s2");
  assert.equal(sessionOf(c, b), c.id);
  assert.deepEqual(sessionsOf(c).sort(), [c.id, "s2"].sort());
});

test("conversation: a copy begins with what is shown and shares nothing", () => {
  const c = talk("a", "b", "c", "d");
  addTurn(c, path(c)[0].id, "assistant", "B");
  c.sampling.temperature = 0.5;
  const copy = copyPath(c, 2);
  assert.deepEqual(texts(copy), ["a", "B"]);
  copy.sampling.temperature = 1;
  path(copy)[0].text = "x";
  assert.equal(c.sampling.temperature, 0.5);
  assert.equal(path(c)[0].text, "a");
  assert.notEqual(copy.id, c.id);
});

test("conversation: titles", () => {
  assert.equal(titleOf("  a\n b  "), "a b");
  assert.equal(titleOf(" \n"), "New conversation");
  assert.equal(Array.from(titleOf("\u{1f98a}".repeat(100))).length, 60);
});

test("conversation: after any edits the tree is whole, and a backup gives it back", () => {
  let state = 20240611;
  const random = (n) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % n;
  };
  const c = newConversation("m", 1);
  for (let step = 0; step < 600; step++) {
    const turns = Object.values(c.turns);
    const any = turns[random(Math.max(turns.length, 1))];
    const act = random(10);
    if (any === undefined || act < 5) {
      addTurn(c, any === undefined ? null : any.id, random(2) ? "user" : "assistant", `t${step}`);
    } else if (act < 6) {
      addTurn(c, any.parent, any.role, `e${step}`);
    } else if (act < 8) {
      showSibling(c, any, random(2) ? 1 : -1);
    } else if (act === 9) {
      removeTurn(c, any);
    }
    for (const turn of Object.values(c.turns)) {
      assert.ok(turn.parent === null || c.turns[turn.parent] !== undefined, `step ${step}`);
      if (turn.chosen !== null) assert.equal(c.turns[turn.chosen].parent, turn.id, `step ${step}`);
      const [index, count] = placeOf(c, turn);
      assert.ok(index >= 0 && index < count && count === childrenOf(c, turn.parent).length);
    }
    const shown = path(c);
    assert.equal(shown.length > 0, Object.keys(c.turns).length > 0, `step ${step}`);
  }
  for (const turn of Object.values(c.turns)) turn.state = "done";
  assert.deepEqual(fromBackup(toBackup([c])), [c]);
});
