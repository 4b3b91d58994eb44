import assert from "node:assert/strict";
import { parseMetrics, readEngineState, totalMemory } from "../../tools/cellm/serve/page/metrics.ts";
import { test } from "./harness.mjs";

test("metrics: lines of the exposition format", () => {
  const text = [
    "# HELP a Words.", "# TYPE a gauge", "a 1", 'b{x="1",y="a\\"b\\\\c\\nd"} 2.5e3', "c +Inf", "d NaN",
    'e{le="+Inf"} 3 1395066363000', "not a line at all", "",
  ].join("\n");
  assert.deepEqual(parseMetrics(text), [
    { name: "a", labels: {}, value: 1 },
    { name: "b", labels: { x: "1", y: 'a"b\\c\nd' }, value: 2500 },
    { name: "c", labels: {}, value: Infinity },
    { name: "e", labels: { le: "+Inf" }, value: 3 },
  ]);
});

test("metrics: memory is summed over models, class by class", () => {
  const state = readEngineState(
    [
      'cellm_memory_bytes{model="a",class="weights"} 100',
      'cellm_memory_bytes{model="b",class="weights"} 10',
      'cellm_memory_bytes{model="a",class="cache"} 7',
      'cellm_running{model="a"} 2',
      'cellm_running{model="b"} 1',
      "cellm_prompt_tokens_total 40",
      "cellm_prompt_tokens_reused_total 30",
    ].join("\n"),
    9,
  );
  assert.equal(state.memory.weights, 110);
  assert.equal(state.memory.cache, 7);
  assert.equal(state.memory.other, 0);
  assert.equal(totalMemory(state), 117);
  assert.equal(state.running, 3);
  assert.equal(state.prompt_tokens, 40);
  assert.equal(state.reused_tokens, 30);
  assert.equal(state.at, 9);
});
