// The pictures of docs/page.md: real servers, the bundled model, nothing posed but what is asked.
// Run by scripts/page_screenshots.sh.
import { after } from "node:test";
import { join } from "node:path";
import { launchChromium } from "./chromium.mjs";
import { test } from "./harness.mjs";
import { Server } from "./server.mjs";

const DOCS = join(process.env.CELLM_PAGE_TESTS, "..", "..", "docs");
const browser = await launchChromium("screenshots");
const server = await Server.start();
after(async () => {
  await browser.close();
  await server.kill();
});

async function openPage(options) {
  const page = await (await browser.newContext({ reducedMotion: "reduce", ...options })).newPage();
  await page.goto(server.url);
  await page.waitForFunction(() => document.querySelector(".model-select")?.value !== "");
  return page;
}
const column = (page, index) => page.locator(".column").nth(index);

async function ask(page, text, index = 0) {
  const field = column(page, index).locator(".composer-field");
  const before = await column(page, index).locator(".cost").count();
  await field.fill(text);
  await field.press("Enter");
  await page.waitForFunction(
    ([i, n]) => document.querySelectorAll(".column")[i].querySelectorAll(".cost").length > n,
    [index, before],
  );
}

async function sample(page, index, fields) {
  const button = column(page, index).locator('[aria-label="System prompt and sampling"]');
  await button.click();
  for (const [label, value] of Object.entries(fields)) {
    await column(page, index).getByLabel(label).fill(value);
  }
  await button.click();
  await page.mouse.move(0, 0);
}

// The list has more than one: as after some days of use.
async function fill(page, pause_ms = 0) {
  const texts = ["What is 7 plus 5?", "What is a telescope?", "What is the capital of Italy?", "Tell me a short story about a bird."];
  for (const text of texts) {
    await ask(page, text);
    await page.keyboard.press("Alt+n");
    await page.keyboard.press("Alt+1");
    await page.keyboard.press("Alt+w");
    await page.waitForTimeout(pause_ms);
  }
}

test("screenshot: light", async () => {
  const page = await openPage({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  await fill(page);
  await sample(page, 0, { Temperature: "0" });
  await ask(page, "Hello, who are you?");
  await ask(page, "Tell me a short story about a fox.");
  await page.keyboard.press("Alt+r");
  await page.waitForSelector(".turn.assistant .branches");
  await page.waitForFunction(() => document.querySelectorAll(".cost").length === 2);
  await ask(page, "What is the capital of Japan?");
  await page.waitForTimeout(3000); // the picture of memory has begun
  await page.screenshot({ path: join(DOCS, "page-light.png") });
});

test("screenshot: two conversations, dark", async () => {
  const page = await openPage({ viewport: { width: 1440, height: 860 }, colorScheme: "dark" });
  // Some use first, so that the pictures have something to show.
  await fill(page, 4000);
  await ask(page, "What is the capital of France?");
  await page.keyboard.press("Alt+n");
  await ask(page, "Hello, who are you?", 1);
  await page.waitForTimeout(4000);
  await column(page, 1).locator(".composer-field").fill("Tell me a short story about a fox.");
  await column(page, 1).locator(".composer-field").press("Control+Enter");
  // A reply of this model is over before a picture of it can be taken: from here on the server runs
  // for a fraction of the time.
  const slowly = setInterval(() => {
    server.child.kill("SIGCONT");
    setTimeout(() => server.child.kill("SIGSTOP"), 16);
  }, 200);
  await page.waitForFunction(() =>
    Array.from(document.querySelectorAll(".column"), (each) =>
      (each.querySelector(".turn.streaming .markdown")?.textContent.length ?? 0) > 90,
    ).every(Boolean) && /Running2/.test(document.querySelector(".engine").textContent) &&
    !/second0most/.test(document.querySelectorAll(".engine .card")[1].textContent),
  );
  clearInterval(slowly);
  server.child.kill("SIGSTOP");
  await page.screenshot({ path: join(DOCS, "page-dark.png") });
  server.child.kill("SIGCONT");
}, 180_000);

test("screenshot: phone", async () => {
  const page = await openPage({
    viewport: { width: 360, height: 720 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true,
    colorScheme: "light",
  });
  await sample(page, 0, { Temperature: "0.7", Seed: "3" });
  await ask(page, "What is the capital of Japan?");
  await ask(page, "Tell me a short story about a fox.");
  await page.screenshot({ path: join(DOCS, "page-phone.png") });
});
