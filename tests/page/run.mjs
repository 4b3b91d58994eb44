// Bundles a test file with the page's TypeScript and runs it under node's test runner.
//
//   node run.mjs ESBUILD OUTPUT.mjs TEST.mjs CELLM
//
// With GTEST_OUTPUT=xml:FOLDER/ the results are also written to FOLDER/OUTPUT.mjs.xml in the form that
// scripts/count_tests.py counts.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { pathToFileURL } from "node:url";

const [esbuild, output, test, cellm] = process.argv.slice(2);
mkdirSync(dirname(output), { recursive: true });
const bundled = spawnSync(
  esbuild,
  [test, `--outfile=${output}`, "--bundle", "--platform=node", "--format=esm",
    "--log-level=warning", "--external:playwright-core"],
  { stdio: "inherit" },
);
if (bundled.status !== 0) process.exit(1);
process.env.CELLM_BINARY = cellm;
process.env.CELLM_PAGE_TESTS = dirname(test);
process.env.CELLM_PAGE_RESULTS = basename(output);
await import(pathToFileURL(output).href);
