// Debian's Chromium, driven by playwright-core. The driver comes from npm into the build folder when
// a test first needs it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { skipAll } from "./harness.mjs";

const DRIVER = "playwright-core@1.65.1";
const FOLDER = join(process.env.CELLM_PAGE_TESTS, "..", "..", "build", "page-tests");
// Nothing but the page's own requests: no updates, no sync, no first-run pages.
const ARGUMENTS = ["--no-sandbox", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

function findChromium() {
  return ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
}

function loadDriver() {
  const require = createRequire(join(FOLDER, "here.js"));
  try {
    return require("playwright-core");
  } catch {
    mkdirSync(FOLDER, { recursive: true });
    const npm = spawnSync(
      "npm",
      ["install", "--prefix", FOLDER, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", DRIVER],
      { encoding: "utf8", timeout: 120_000 },
    );
    if (npm.status !== 0) return null;
    return require("playwright-core");
  }
}

// Ends the run as skipped where there is no Chromium or no driver.
export async function launchChromium(name) {
  const executablePath = findChromium();
  if (executablePath === undefined) skipAll(name, "no Chromium (Debian: chromium)");
  const driver = loadDriver();
  if (driver === null) skipAll(name, `npm could not install ${DRIVER}`);
  return driver.chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
}
