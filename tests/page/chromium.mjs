// Debian's Chromium, driven by playwright-core, and axe-core, which judges whether a page can be used
// by everybody. Both come from npm into the build folder when a test first needs them.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { skipAll } from "./harness.mjs";

const PACKAGES = ["playwright-core@1.65.1", "axe-core@4.14.1"];
const FOLDER = join(process.env.CELLM_PAGE_TESTS, "..", "..", "build", "page-tests");
// Nothing but the page's own requests: no updates, no sync, no first-run pages.
const ARGUMENTS = ["--no-sandbox", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

function findChromium() {
  return ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
}

const require = createRequire(join(FOLDER, "here.js"));

function installed() {
  return PACKAGES.every((name) => existsSync(join(FOLDER, "node_modules", name.split("@")[0])));
}

function install() {
  mkdirSync(FOLDER, { recursive: true });
  const options = ["--prefix", FOLDER, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"];
  spawnSync("npm", ["install", ...options, ...PACKAGES], { stdio: "inherit", timeout: 120_000 });
}

// What axe-core finds wrong with a page as it is shown now: "rule: element" each.
export async function findBarriers(page) {
  await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  return page.evaluate(async () =>
    (await window.axe.run()).violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`)),
  );
}

// Ends the run as skipped where there is no Chromium or no driver.
export async function launchChromium(name) {
  const executablePath = findChromium();
  if (executablePath === undefined) skipAll(name, "no Chromium (Debian: chromium)");
  if (!installed()) install();
  if (!installed()) skipAll(name, `npm could not install ${PACKAGES.join(" and ")}`);
  return require("playwright-core").chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
}
