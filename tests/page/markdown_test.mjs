import assert from "node:assert/strict";
import { parseMarkdown } from "../../tools/cellm/serve/page/markdown.ts";
import { test } from "./harness.mjs";

// The tree in the notation of the CommonMark specification, whose examples some rows are.
const escape = (text) =>
  text.replace(/[<>&]/g, (c) => ({ "<": "&lt;", ">": "&gt;", "&": "&amp;" })[c]);
const inline = (nodes) =>
  nodes
    .map((node) => {
      if (node.kind === "text") return escape(node.text);
      if (node.kind === "code") return `<code>${escape(node.text)}</code>`;
      if (node.kind === "break") return "<br>";
      if (node.kind === "link") return `<a href="${node.href}">${inline(node.children)}</a>`;
      return `<${node.kind}>${inline(node.children)}</${node.kind}>`;
    })
    .join("");
const block = (b) => {
  switch (b.kind) {
    case "paragraph":
      return `<p>${inline(b.children)}</p>`;
    case "heading":
      return `<h${b.level}>${inline(b.children)}</h${b.level}>`;
    case "code":
      return `<pre${b.language ? ` ${b.language}` : ""}>${escape(b.text)}</pre>`;
    case "quote":
      return `<q>${b.blocks.map(block).join("")}</q>`;
    case "rule":
      return "<hr>";
    case "table":
      return (
        `<table ${b.align.map((a) => a || "-").join(" ")}>` +
        [b.head, ...b.rows].map((row) => `<tr>${row.map(inline).join("|")}</tr>`).join("") +
        "</table>"
      );
    case "list": {
      const tag = b.start === null ? "ul" : b.start === 1 ? "ol" : `ol ${b.start}`;
      const items = b.items.map(({ task, blocks }) => {
        const box = task === null ? "" : task ? "[x]" : "[ ]";
        const inside = blocks.map((each) =>
          b.tight && each.kind === "paragraph" ? inline(each.children) : block(each),
        );
        return `<li>${box}${inside.join("")}</li>`;
      });
      return `<${tag}>${items.join("")}</${tag.split(" ")[0]}>`;
    }
  }
};
const show = (text) => parseMarkdown(text).map(block).join("");

const ROWS = [
  ["paragraphs", "a\n\nb", "<p>a</p><p>b</p>"],
  ["a line break is one", "a\nb", "<p>a<br>b</p>"],
  ["carriage returns", "a\r\n\r\nb\rc", "<p>a</p><p>b<br>c</p>"],
  ["emphasis", "*foo bar*", "<p><em>foo bar</em></p>"],
  ["strong", "**foo bar**", "<p><strong>foo bar</strong></p>"],
  ["both", "***a***", "<p><em><strong>a</strong></em></p>"],
  ["not after a blank", "a * foo bar*", "<p>a * foo bar*</p>"],
  ["not before a mark in a word", 'a*"foo"*', '<p>a*"foo"*</p>'],
  ["inside a word", "foo*bar*", "<p>foo<em>bar</em></p>"],
  ["underscores not inside a word", "foo_bar_baz", "<p>foo_bar_baz</p>"],
  ["rule of three", "*foo**bar*", "<p><em>foo**bar</em></p>"],
  ["nested strong", "*foo **bar** baz*", "<p><em>foo <strong>bar</strong> baz</em></p>"],
  ["unequal runs", "**foo*", "<p>*<em>foo</em></p>"],
  ["strike", "~~a b~~ ~c~", "<p><del>a b</del> ~c~</p>"],
  ["code span", "`a * b` and ``c ` d``", "<p><code>a * b</code> and <code>c ` d</code></p>"],
  ["code binds tighter than emphasis", "*a `b*` c*", "<p><em>a <code>b*</code> c</em></p>"],
  ["a lonely backtick", "a ` b", "<p>a ` b</p>"],
  ["escapes", "\\*a\\* \\q", "<p>*a* \\q</p>"],
  ["entities", "&lt;b&gt; &amp; &madeup;", "<p>&lt;b&gt; &amp; &amp;madeup;</p>"],
  ["link", '[a *b*](https://x.y "t")', '<p><a href="https://x.y">a <em>b</em></a></p>'],
  ["brackets in an address", "[a](https://x.y/(z))", '<p><a href="https://x.y/(z)">a</a></p>'],
  ["no link", "[a] (b) [c]", "<p>[a] (b) [c]</p>"],
  ["an image is a link", "![cat](https://x.y/c.png)", '<p><a href="https://x.y/c.png">cat</a></p>'],
  ["angle link", "<https://x.y/?a=1>", '<p><a href="https://x.y/?a=1">https://x.y/?a=1</a></p>'],
  ["bare link", "see https://x.y/z.", '<p>see <a href="https://x.y/z">https://x.y/z</a>.</p>'],
  ["bare link in brackets", "(https://x.y/a(b))", '<p>(<a href="https://x.y/a(b)">https://x.y/a(b)</a>)</p>'],
  ["headings", "# a\n### b ###\n#c", "<h1>a</h1><h3>b</h3><p>#c</p>"],
  ["seven are none", "####### a", "<p>####### a</p>"],
  ["rule", "a\n\n---\n* * *", "<p>a</p><hr><hr>"],
  ["fence", "```py\na\n\n  b\n```\nc", "<pre py>a\n\n  b</pre><p>c</p>"],
  ["open fence", "```\na", "<pre>a</pre>"],
  ["tildes, longer ends", "~~~\n```\n~~~~", "<pre>```</pre>"],
  ["fence in a list", "- a\n  ```\n  b\n  ```", "<ul><li>a<pre>b</pre></li></ul>"],
  ["quote", "> a\n> - b\nc", "<q><p>a</p><ul><li>b<br>c</li></ul></q>"],
  ["bullets", "- a\n- b\n\nc", "<ul><li>a</li><li>b</li></ul><p>c</p>"],
  ["loose list", "- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
  ["numbers", "3. a\n4. b", "<ol 3><li>a</li><li>b</li></ol>"],
  ["nested by two under a number", "1. a\n  - b\n2. c", "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"],
  ["other bullet, other list", "- a\n+ b", "<ul><li>a</li></ul><ul><li>b</li></ul>"],
  ["tasks", "- [x] a\n- [ ] b", "<ul><li>[x]a</li><li>[ ]b</li></ul>"],
  ["a year begins no list", "It was\n1984. Then", "<p>It was<br>1984. Then</p>"],
  ["table", "| a | b |\n|:--|--:|\n| 1 | *2* |\n| 3 |", "<table left right><tr>a|b</tr><tr>1|<em>2</em></tr><tr>3|</tr></table>"],
  ["escaped bar", "a|b\n-|-\n\\||2", "<table - -><tr>a|b</tr><tr>||2</tr></table>"],
  ["no table", "a | b\nc", "<p>a | b<br>c</p>"],
];
for (const [name, text, expected] of ROWS) {
  test(`markdown: ${name}`, () => assert.equal(show(text), expected));
}

test("markdown: what could harm stays text", () => {
  const rows = [
    ["<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"],
    ["[a](javascript:alert(1))", "<p>a (javascript:alert(1))</p>"],
    ["[a](JaVaScRiPt:x)", "<p>a (JaVaScRiPt:x)</p>"],
    ["[a](data:text/html;base64,x)", "<p>a (data:text/html;base64,x)</p>"],
    ["[a](/etc/passwd)", "<p>a (/etc/passwd)</p>"],
    ["<javascript:x>", "<p>&lt;javascript:x&gt;</p>"],
    ["&lt;img src=x&gt;", "<p>&lt;img src=x&gt;</p>"],
  ];
  for (const [text, expected] of rows) assert.equal(show(text), expected, text);
});

test("markdown: any address that becomes a link is http, https or mailto", () => {
  const schemes = ["javascript", "data", "vbscript", "file", "blob", "about", "ftp", " javascript"];
  const marks = ["[a](%)", "![a](%)", "<%>", "[a](<%>)", "%", '[a](% "t")', "[[a](%)](%)"];
  const links = (node) =>
    Array.isArray(node)
      ? node.flatMap(links)
      : typeof node === "object" && node !== null
        ? [...(node.kind === "link" ? [node.href] : []), ...Object.values(node).flatMap(links)]
        : [];
  for (const scheme of schemes) {
    for (const mark of marks) {
      const text = mark.replaceAll("%", `${scheme}:alert(1)//https://x`);
      for (const href of links(parseMarkdown(text))) assert.match(href, /^(https?:\/\/|mailto:)/, text);
    }
  }
});

const depth = (node) =>
  typeof node !== "object" || node === null
    ? 0
    : 1 + Math.max(0, ...Object.values(node).map((child) => depth(child)));

test("markdown: hostile texts end, in a tree of bounded depth", () => {
  const n = 20_000;
  const texts = [
    "*".repeat(n), "*a ".repeat(n), "a* ".repeat(n), "*a".repeat(n), "_a*b_c*".repeat(n / 4),
    "**a **b ".repeat(n / 4), "[".repeat(n), "[a](".repeat(n), "](".repeat(n), "![".repeat(n),
    "`a``b```c".repeat(n / 4), "~~a".repeat(n), "> ".repeat(n), ">".repeat(n), "- ".repeat(n),
    "1. ".repeat(n / 4), "<https://".repeat(n / 4), `https://${")".repeat(n)}`, "|".repeat(n),
    "|a\n|-\n".repeat(n / 8), "&".repeat(n), "\\".repeat(n), "#".repeat(n), "```\n".repeat(n / 4),
    Array.from({ length: 2000 }, (_, i) => `${" ".repeat(i % 40)}- a`).join("\n"),
    Array.from({ length: 300 }, (_, i) => "`".repeat(i)).join("a"),
    `${"a|".repeat(5000)}\n${"-|".repeat(5000)}`,
  ];
  for (const text of texts) {
    const tree = parseMarkdown(text);
    assert.ok(depth(tree) < 400, text.slice(0, 12));
  }
});

test("markdown: every beginning of a text parses, and finished blocks keep their source", () => {
  const text = "# T\n\na *b* [c](https://x.y)\n\n```js\nf(1)\n```\n\n- x\n  - y\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend";
  const whole = parseMarkdown(text).map((b) => b.source);
  for (let i = 0; i <= text.length; i++) {
    const part = parseMarkdown(text.slice(0, i)).map((b) => b.source);
    // All but the last two: the end of a list or table is known only with the next line.
    part.slice(0, -2).forEach((source, k) => assert.equal(source.trim(), whole[k].trim()));
  }
});
