// node:test, and the results in the form of GoogleTest's XML, which scripts/count_tests.py reads.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import nodeTest from "node:test";

const cases = [];

function escape(text) {
  return text.replace(/[<>&"]/g, (c) => `&#${c.charCodeAt(0)};`);
}

export function test(name, body, timeout = 60_000) {
  nodeTest(name, { timeout }, async (context) => {
    const began = performance.now();
    const entry = { name, seconds: 0, failed: true };
    cases.push(entry);
    try {
      await body(context);
      entry.failed = false;
    } finally {
      entry.seconds = (performance.now() - began) / 1000;
    }
  });
}

// Ends the run: `reason` says what this machine lacks.
export function skipAll(name, reason) {
  console.log(`skipped: ${name}: ${reason}`);
  cases.push({ name, seconds: 0, failed: false, skipped: reason });
  write();
  process.exit(77);
}

function write() {
  const folder = /^xml:(.*)$/.exec(process.env.GTEST_OUTPUT ?? "")?.[1];
  if (folder === undefined) return;
  const rows = cases.map(({ name, seconds, failed, skipped }) => {
    const inner = failed ? "<failure/>" : skipped ? `<skipped message="${escape(skipped)}"/>` : "";
    const head = `name="${escape(name)}" classname="page" status="run" time="${seconds}"`;
    return `<testcase ${head}>${inner}</testcase>`;
  });
  writeFileSync(
    join(folder, `${process.env.CELLM_PAGE_RESULTS}.xml`),
    `<?xml version="1.0"?>\n<testsuites><testsuite name="page">\n${rows.join("\n")}\n</testsuite></testsuites>\n`,
  );
}
process.on("exit", write);
