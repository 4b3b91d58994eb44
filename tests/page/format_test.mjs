import assert from "node:assert/strict";
import { formatBytes, formatCount, formatMs, formatRate } from "../../tools/cellm/serve/page/format.ts";
import { highlight } from "../../tools/cellm/serve/page/highlight.ts";
import { test } from "./harness.mjs";

test("format: numbers as people read them", () => {
  const rows = [
    [formatBytes, 0, "0 B"], [formatBytes, 999, "999 B"], [formatBytes, 1500, "1.5 kB"],
    [formatBytes, 15_600_000, "15.6 MB"], [formatBytes, 256e6, "256 MB"], [formatBytes, 7.25e9, "7.25 GB"],
    [formatCount, 5, "5"], [formatCount, 1024, "1\u2009024"], [formatCount, 1234567, "1\u2009234\u2009567"],
    [formatMs, 4.25, "4.3 ms"], [formatMs, 812.4, "812 ms"], [formatMs, 3210, "3.2 s"],
    [formatMs, 125_000, "2 min 5 s"],
    [formatRate, 0, "0"], [formatRate, 7.26, "7.3"], [formatRate, 216.4, "216"],
  ];
  for (const [format, value, expected] of rows) assert.equal(format(value), expected);
});

test("highlight: colours change nothing of the text", () => {
  const code = "# no\nfor x in [1, 2.5e3]: // yes\n  print('a\\'b', \"c\") /* d\n e */ -- f\n\"open";
  for (const language of ["python", "js", "sql", "", "nonsense"]) {
    assert.equal(highlight(code, language).map((token) => token.text).join(""), code, language);
  }
  const kinds = highlight("for i in f(1): # one", "py").filter((token) => token.kind !== "plain");
  assert.deepEqual(kinds.map((token) => token.kind + token.text), ["keywordfor", "keywordin", "number1", "comment# one"]);
});
