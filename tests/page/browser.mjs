// The whole page in Chromium, against real servers with the bundled model.
import assert from "node:assert/strict";
import { after } from "node:test";
import { findBarriers, launchChromium } from "./chromium.mjs";
import { skipAll, test } from "./harness.mjs";
import { MODEL, Server, hasModel } from "./server.mjs";

if (!hasModel()) skipAll("page in a browser", "no bundled model");
const browser = await launchChromium("page in a browser");
const server = await Server.start();
const servers = [server];
after(async () => {
  await browser.close();
  for (const each of servers) await each.kill();
});

// An empty page. Most tests share one, since a new one is slow to make; those that need a browser of
// another kind (`options`) get their own. What it asks of other hosts, and its errors, fail the test.
let shared = null;
async function openPage(options = {}, url = server.url) {
  const own = Object.keys(options).some((name) => name !== "colorScheme");
  const page = own ? await makePage(options) : (shared ??= await makePage({}));
  page.own = own;
  // What the page before still asks for is not this one's.
  if (!own) await page.goto("about:blank");
  page.problems = [];
  page.origin = url;
  await page.emulateMedia({ colorScheme: options.colorScheme ?? "light", reducedMotion: "reduce" });
  if (!own) {
    // From a file of the same origin, so that nothing of the page writes in the meantime.
    await page.goto(`${url}/icon.svg`);
    await page.evaluate(async () => {
      localStorage.clear();
      sessionStorage.clear();
      await new Promise((resolve, reject) => {
        const request = indexedDB.deleteDatabase("cellm");
        request.onsuccess = resolve;
        request.onerror = reject;
      });
    });
  }
  await page.goto(url);
  await page.waitForSelector(".composer-field");
  return page;
}

async function makePage(options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("request", (request) => {
    const target = request.url();
    const own = target.startsWith(`${page.origin}/`) || target.startsWith("blob:");
    if (!own) page.problems.push(`asked ${target}`);
  });
  page.on("pageerror", (error) => page.problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (/Content Security Policy|TrustedHTML/.test(message.text())) page.problems.push(message.text());
  });
  return page;
}

async function closePage(page) {
  assert.deepEqual(page.problems, []);
  if (page.own) await page.context().close();
}

// A test with a page.
function pageTest(name, options, body) {
  test(`page: ${name}`, async () => {
    const page = await openPage(options);
    await body(page);
    await closePage(page);
  });
}

const columns = (page) => page.locator(".column");
const idle = (page, column = 0) =>
  page.waitForFunction(
    (index) => !document.querySelectorAll(".column")[index].classList.contains("running"),
    column,
  );
const replies = (page, column = 0) =>
  columns(page).nth(column).locator(".turn.assistant .markdown").allInnerTexts();

async function ask(page, text, column = 0) {
  await columns(page).nth(column).locator(".composer-field").fill(text);
  await columns(page).nth(column).locator(".composer-field").press("Enter");
}

// All tokens nearly alike, and a seed with which "Tell me a story." finds no end for 900 of them: long
// enough to look at a reply under way on a fast machine too.
async function makeLong(page, column = 0) {
  const place = columns(page).nth(column);
  await place.locator('[aria-label="System prompt and sampling"]').click();
  await place.getByLabel("Temperature").fill("5");
  await place.getByLabel("Top-p").fill("1");
  await place.getByLabel("Top-k").fill("0");
  await place.getByLabel("Min-p").fill("0");
  await place.getByLabel("Seed").fill("2");
  await place.getByLabel("Most tokens").fill("900");
  await place.locator('[aria-label="System prompt and sampling"]').click();
}

pageTest("a question is answered, with what it cost", {}, async (page) => {
  await page.waitForFunction(() => document.querySelector(".model-select").value === "cellm-nano-int8");
  await makeGreedy(page);
  await ask(page, "What is the capital of France?");
  await page.waitForSelector(".cost");
  // What models/README.md says the model answers at temperature 0.
  assert.deepEqual(await replies(page), ["The capital of France is Paris."]);
  assert.match(await page.innerText(".cost"), /tok\/s \u00b7 8 tokens/);
  assert.equal(await page.inputValue(".column-title"), "What is the capital of France?");
  assert.match(await page.innerText(".column [aria-live=polite]"), /Paris/);
});

async function makeGreedy(page, column = 0) {
  const place = columns(page).nth(column);
  await place.locator('[aria-label="System prompt and sampling"]').click();
  await place.getByLabel("Temperature").fill("0");
  await place.getByLabel("System prompt").first().press("Tab");
  await place.locator('[aria-label="System prompt and sampling"]').click();
}

pageTest("two conversations stream at once, and one is stopped", {}, async (page) => {
  await makeLong(page);
  await page.keyboard.press("Alt+n");
  await makeLong(page, 1);
  await columns(page).nth(0).locator(".composer-field").fill("Tell me a story.");
  await columns(page).nth(0).locator(".composer-field").press("Control+Enter");
  const lengths = () =>
    page.evaluate(() =>
      Array.from(document.querySelectorAll(".column"), (each) => ({
        running: each.classList.contains("running"),
        length: each.querySelector(".turn.assistant .markdown")?.textContent.length ?? 0,
      })),
    );
  // Both have begun, and later both have grown while both were still being written.
  await page.waitForFunction(() =>
    Array.from(document.querySelectorAll(".column"), (each) =>
      each.classList.contains("running") &&
      (each.querySelector(".turn.assistant .markdown")?.textContent.length ?? 0) > 20,
    ).every(Boolean),
  );
  const before = await lengths();
  assert.equal(await server.metric("cellm_running"), 2);
  await page.waitForFunction(
    (was) =>
      Array.from(document.querySelectorAll(".column"), (each, i) =>
        each.querySelector(".turn.assistant .markdown").textContent.length > was[i].length,
      ).every(Boolean),
    before,
  );
  const later = await lengths();
  assert.deepEqual(later.map((each) => each.running), [true, true]);
  await columns(page).nth(0).locator(".send").click();
  await idle(page);
  assert.match(await columns(page).nth(0).locator(".turn-note").innerText(), /Stopped/);
  const stopped = (await lengths())[0].length;
  await idle(page, 1);
  const end = await lengths();
  assert.equal(end[0].length, stopped);
  assert.ok(end[1].length > later[1].length);
});

pageTest("answer again and edit make versions that can be gone through", {}, async (page) => {
  await makeGreedy(page);
  await ask(page, "What is 7 plus 5?");
  await page.waitForSelector(".cost");
  const [first] = await replies(page);
  await page.locator(".turn.assistant").hover();
  await page.getByRole("button", { name: "Answer again" }).click();
  await page.waitForSelector(".turn.assistant .branches");
  await idle(page);
  assert.match(await page.innerText(".turn.assistant .branch-place"), /2 \/ 2/);
  assert.deepEqual(await replies(page), [first]); // greedy: the same again
  await page.locator(".turn.user").hover();
  await page.locator(".turn.user").getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit this message").fill("What is the capital of Italy?");
  await page.getByRole("button", { name: "Send" }).first().click();
  await page.waitForSelector(".turn.user .branches");
  await idle(page);
  assert.match((await replies(page))[0], /Rome/);
  await page.locator(".turn.user").getByRole("button", { name: "Earlier version" }).click();
  assert.match(await page.innerText(".turn.user .turn-body"), /7 plus 5/);
  assert.deepEqual(await replies(page), [first]);
  assert.match(await page.innerText(".turn.assistant .branch-place"), /2 \/ 2/);
});

pageTest("going on in a second column copies what is shown, and its prompt is cached", {}, async (page) => {
  await makeGreedy(page);
  await ask(page, "Hello, who are you?");
  await page.waitForSelector(".cost");
  await page.getByRole("button", { name: "Go on in a second column" }).click();
  assert.equal(await columns(page).count(), 2);
  await page.waitForFunction(() => document.querySelectorAll(".column .turn.user").length === 2);
  assert.deepEqual(await replies(page, 1), await replies(page, 0));
  await ask(page, "What is the capital of Japan?", 1);
  await page.waitForFunction(() => document.querySelectorAll(".column:nth-child(2) .cost").length === 2);
  const cost = await columns(page).nth(1).locator(".cost").last().innerText();
  const [, cached, prompt] = /(\d+) of (\d+) cached/.exec(cost);
  assert.ok(Number(cached) > Number(prompt) / 2, cost);
  assert.equal((await replies(page, 0)).length, 1);
});

pageTest("a branch is a fork of its session on the server, and deleting ends them all", {}, async (page) => {
  const sessions = async () =>
    (await (await fetch(`${server.url}/sessions`)).json()).data.map((each) => each.id);
  const before = await sessions();
  const mine = async () => (await sessions()).filter((id) => !before.includes(id));
  await makeGreedy(page);
  await ask(page, "What is 7 plus 5?");
  await page.waitForSelector(".cost");
  assert.equal((await mine()).length, 1);
  await page.keyboard.press("Alt+r");
  await page.waitForSelector(".turn.assistant .branches");
  await idle(page);
  assert.equal((await mine()).length, 2);
  // The other branch is still evaluated: all but the last token of its prompt is known.
  const [, cached, prompt] = /(\d+) of (\d+) cached/.exec(await page.innerText(".cost"));
  assert.equal(Number(cached), Number(prompt) - 1);
  await page.keyboard.press("Alt+k");
  await page.waitForSelector(".column:nth-child(2) .turn.user");
  assert.equal((await mine()).length, 3);
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByRole("button", { name: "Delete all" }).click();
  await page.waitForSelector(".empty");
  for (let tries = 0; (await mine()).length > 0; tries++) assert.ok(tries < 1000, "sessions stay");
});

pageTest("everything by keyboard alone", {}, async (page) => {
  const keys = page.keyboard;
  await keys.type("What is the capital of France?");
  await keys.press("Enter");
  await page.waitForSelector(".cost");
  await keys.press("Alt+n");
  await keys.type("What is 7 plus 5?");
  await keys.press("Shift+Enter");
  await keys.type("Please.");
  await keys.press("Enter");
  await page.waitForSelector(".column:nth-child(2) .cost");
  assert.match(await columns(page).nth(1).locator(".turn.user .turn-body").innerText(), /5\?\nPlease/);
  await keys.press("Alt+1");
  assert.equal(await columns(page).nth(0).locator(".composer-field").evaluate((e) => e === document.activeElement), true);
  await keys.press("Alt+r");
  await page.waitForSelector(".column:nth-child(1) .turn.assistant .branches");
  await idle(page);
  await keys.press("Alt+u"); // to the last reply
  await keys.press("[");
  assert.match(await columns(page).nth(0).locator(".branch-place").innerText(), /1 \/ 2/);
  await keys.press("ArrowUp");
  await keys.press("e");
  await keys.press("Control+a");
  await keys.type("What is the capital of Japan?");
  await keys.press("Control+Enter");
  await page.waitForSelector(".column:nth-child(1) .turn.user .branches");
  await idle(page);
  await keys.press("Alt+i");
  await keys.press("?");
  assert.equal(await page.locator("dialog").count(), 0); // a character like any other here
  await keys.press("Control+/");
  assert.match(await page.innerText("dialog"), /Alt\+N/);
  await keys.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await keys.press("Alt+w");
  assert.equal(await columns(page).count(), 1);
  await keys.press("Alt+b");
  assert.equal(await page.locator(".sidebar").isVisible(), false);
  await keys.press("Alt+m");
  assert.equal(await page.locator(".engine").isVisible(), false);
});

pageTest("the focus can be seen wherever Tab leads", {}, async (page) => {
  await ask(page, "What is 7 plus 5?");
  await page.waitForSelector(".cost");
  const seen = new Set();
  for (let i = 0; i < 30; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return null;
      const style = getComputedStyle(element);
      const box = element.getBoundingClientRect();
      // The field to write in shows its focus on the box around it.
      const around = getComputedStyle(element.closest(".composer-box") ?? element);
      return {
        name: element.getAttribute("aria-label") ?? element.textContent.slice(0, 40),
        outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        ringed: around.boxShadow !== "none",
        shown: box.width > 0 && box.height > 0 && style.visibility === "visible",
        labelled: (element.getAttribute("aria-label") ?? element.textContent).trim() !== "" ||
          element.labels?.length > 0,
      };
    });
    if (at === null) continue;
    seen.add(at.name);
    assert.ok(at.outlined || at.ringed, `no focus on ${at.name}`);
    assert.ok(at.shown && at.labelled, `${at.name} cannot be seen or has no name`);
  }
  for (const name of ["Message", "Send", "Answer again", "Copy", "Edit", "Model"]) {
    assert.ok(seen.has(name), `Tab never came to ${name}: ${Array.from(seen).join(", ")}`);
  }
});

pageTest("a phone's screen", { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }, async (page) => {
  await ask(page, "Tell me a short story about a fox.");
  await page.waitForSelector(".cost");
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= 360);
  assert.ok(await fits());
  assert.equal(await page.locator(".sidebar").isVisible(), false);
  await page.getByRole("button", { name: "Conversations" }).tap();
  assert.equal(await page.locator(".sidebar").isVisible(), true);
  await page.getByRole("button", { name: "New conversation", exact: true }).tap();
  assert.equal(await page.locator(".sidebar").isVisible(), false);
  assert.equal(await columns(page).count(), 2);
  await page.waitForFunction(() => document.querySelectorAll(".column")[1].getBoundingClientRect().left === 0);
  const box = await columns(page).nth(1).locator(".composer-box").boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= 740, JSON.stringify(box));
  await page.getByRole("button", { name: /^Column 1/ }).tap();
  await page.waitForFunction(() => document.querySelectorAll(".column")[0].getBoundingClientRect().left === 0);
  const small = await page.evaluate(() =>
    Array.from(document.querySelectorAll("button"))
      .filter((button) => button.checkVisibility() && button.getBoundingClientRect().width > 0)
      .filter((button) => Math.min(button.offsetWidth, button.offsetHeight) < 24)
      .map((button) => button.getAttribute("aria-label") ?? button.textContent),
  );
  assert.deepEqual(small, []); // WCAG 2.2: at least 24 by 24
  assert.ok(await fits());
});

// Contrast of every text that is shown, by WCAG's formula, against the first opaque ground behind it.
function lowContrast() {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) =>
    [r, g, b]
      .map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.textContent.trim() === "" || !element.checkVisibility({ checkOpacity: true })) continue;
    const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${element.className}: ${walker.currentNode.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return found;
}

test("page: dark and light, from the system or chosen, and readable in both", async () => {
  const backgrounds = {};
  for (const colorScheme of ["light", "dark"]) {
    const page = await openPage({ colorScheme });
    await importConversation(page, [
      ["user", "Show me everything"],
      ["assistant", "# T\n\n`code` [link](https://x.y) ~~a~~\n\n> quote\n\n```js\n// c\nlet a = 'b' + 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"],
    ]);
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    backgrounds[colorScheme] = await background();
    assert.deepEqual(await page.evaluate(lowContrast), [], colorScheme);
    await closePage(page);
  }
  assert.notEqual(backgrounds.light, backgrounds.dark);
  const page = await openPage({ colorScheme: "light" });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await background(), backgrounds.light);
  await page.keyboard.press("Alt+l"); // light
  await page.keyboard.press("Alt+l"); // dark
  assert.equal(await background(), backgrounds.dark);
  await page.reload();
  await page.waitForSelector(".composer-field");
  assert.equal(await background(), backgrounds.dark);
  await closePage(page);
});

test("page: axe-core finds no barrier, in any state of the page", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await openPage({ colorScheme });
    // Colours are the same in all states: in the dark theme one of them is enough.
    const judge = async (state) => {
      if (colorScheme === "dark" && state !== "options and editor") return;
      assert.deepEqual(await findBarriers(page), [], `${state}, ${colorScheme}`);
    };
    await page.waitForSelector(".engine .card");
    await judge("empty");
    await importConversation(page, [
      ["user", "q"],
      ["assistant", "# T\n\n## U\n\n- [x] `a`\n\n```js\nlet a = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"],
      ["user", "r"],
      ["assistant", ""],
    ], { 1: { reasoning: "x", reasoning_ms: 5 }, 3: { state: "failed", note: "The server does not answer." } });
    await page.keyboard.press("Alt+n");
    await judge("three columns");
    await page.keyboard.press("Alt+o");
    await page.keyboard.press("Alt+2");
    await page.keyboard.press("Alt+e");
    await judge("options and editor");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+/");
    await page.waitForSelector("dialog");
    await judge("help");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    await closePage(page);
  }
});

// Brings a conversation in as a user would, from a file.
async function importConversation(page, said, more = {}) {
  const turns = {};
  said.forEach(([role, text], i) => {
    turns[`t${i}`] = {
      id: `t${i}`, parent: i === 0 ? null : `t${i - 1}`, role, text, reasoning: "", reasoning_ms: 0,
      state: "done", note: "", model: "", stats: null, session: null,
      chosen: i + 1 < said.length ? `t${i + 1}` : null, ...more[i],
    };
  });
  const conversation = {
    id: `imported-${said.length}`, title: "Imported", titled: true, created_at: 1, updated_at: 1,
    model: "cellm-nano-int8", system: "", sampling: { temperature: 0 }, turns, chosen: "t0", first_sent: null,
  };
  const file = { kind: "cellm-conversations", version: 1, conversations: [conversation] };
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Import" }).click();
  await (await chooser).setFiles({
    name: "c.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(file)),
  });
  await page.waitForFunction(() => document.querySelector('.column-title[value], .column-title') !== null &&
    Array.from(document.querySelectorAll(".column-title")).some((each) => each.value === "Imported"));
}

pageTest("what a model writes is never markup", {}, async (page) => {
  const hostile = [
    "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script>",
    "<svg onload=window.hacked=3>", "[a](javascript:window.hacked=4)",
    "![b](https://example.com/pixel.png)", "```html\n<script>window.hacked=5</script>\n```",
    "| <b>x</b> | y |\n|---|---|\n| <iframe src=//example.com> | z |",
    "<a href=\"javascript:window.hacked=6\">c</a>", "&lt;img src=x onerror=window.hacked=7&gt;",
  ].join("\n\n");
  await importConversation(page, [["user", hostile], ["assistant", hostile]],
    { 1: { reasoning: hostile, reasoning_ms: 10 } });
  const column = columns(page).last();
  await column.locator("summary").click();
  assert.match(await column.locator(".markdown").last().innerText(), /<img src=x onerror="window.hacked=1"><script>/);
  assert.equal(await column.locator(".log").locator("img, script, iframe, object, embed, b, [onload], [onerror]").count(), 0);
  const links = await column.locator(".log a").evaluateAll((all) => all.map((a) => [a.protocol, a.rel]));
  assert.deepEqual(links, Array(2).fill(["https:", "noopener noreferrer"]));
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  // And were there a way in, the browser would refuse it.
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<b>x</b>";
      return false;
    } catch (error) {
      return error instanceof TypeError;
    }
  });
  assert.equal(refused, true);
  page.problems = page.problems.filter((text) => !text.includes("TrustedHTML"));
});

pageTest("reasoning is folded, code is copied", { permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
  await importConversation(page, [["user", "q"], ["assistant", "```py\nprint(1)\n```"]],
    { 1: { reasoning: "step by step", reasoning_ms: 3200 } });
  assert.equal(await page.locator(".reasoning .markdown").isVisible(), false);
  assert.equal(await page.innerText(".reasoning summary"), "Thought for 3.2 s");
  await page.click(".reasoning summary");
  assert.equal(await page.innerText(".reasoning .markdown"), "step by step");
  await page.getByRole("button", { name: "Copy code" }).click();
  await page.waitForFunction(() => document.querySelector(".code-copy").textContent === "Copied");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "print(1)");
});

pageTest("calls of tools can be read", {}, async (page) => {
  const hostile = "<img src=x onerror=window.hacked=1>";
  await importConversation(page, [["user", "q"], ["assistant", "Let me look."]],
    { 1: { calls: [{ name: "get_weather", arguments: "{\"city\":\"Rome\",\"days\":2}" },
      { name: hostile, arguments: hostile }] } });
  const calls = columns(page).last().locator(".call");
  assert.equal(await calls.count(), 2);
  assert.equal(await calls.first().locator(".call-name").innerText(), "get_weather");
  assert.equal(await calls.first().locator("pre").innerText(), "{\n  \"city\": \"Rome\",\n  \"days\": 2\n}");
  assert.equal(await calls.last().locator("pre").innerText(), hostile);
  assert.equal(await page.locator(".log img").count(), 0);
});

pageTest("a reload keeps conversations, columns and options; clear removes them", {}, async (page) => {
  await makeGreedy(page);
  await ask(page, "What is the capital of France?");
  await page.waitForSelector(".cost");
  await page.keyboard.press("Alt+n");
  await ask(page, "What is 7 plus 5?", 1);
  await page.waitForSelector(".column:nth-child(2) .cost");
  const before = [await replies(page, 0), await replies(page, 1)];
  await page.reload();
  await page.waitForSelector(".column:nth-child(2) .cost");
  assert.deepEqual([await replies(page, 0), await replies(page, 1)], before);
  await columns(page).nth(0).locator('[aria-label="System prompt and sampling"]').click();
  assert.equal(await columns(page).nth(0).getByLabel("Temperature").inputValue(), "0");
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const chunks = [];
  for await (const chunk of await (await saved).createReadStream()) chunks.push(chunk);
  assert.equal(JSON.parse(Buffer.concat(chunks)).conversations.length, 2);
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByRole("button", { name: "Delete all" }).click();
  await page.waitForSelector(".empty");
  await page.reload();
  await page.waitForSelector(".empty");
  assert.equal(await page.locator(".turn").count(), 0);
});

pageTest("what is deleted while it is written stays deleted", {}, async (page) => {
  await makeLong(page);
  await ask(page, "Tell me a story.");
  await page.waitForFunction(() => (document.querySelector(".turn.assistant .markdown")?.textContent.length ?? 0) > 20);
  await page.locator(".row").hover();
  await page.getByRole("button", { name: /^Delete / }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.waitForSelector(".empty");
  await page.reload();
  await page.waitForSelector(".empty");
  assert.equal(await page.locator(".row").count(), 1); // the new one
  assert.equal(await server.metric("cellm_running"), 0);
});

pageTest("two tabs show the same conversation", {}, async (page) => {
  await makeGreedy(page);
  await ask(page, "What is 7 plus 5?");
  await page.waitForSelector(".cost");
  const other = await page.context().newPage();
  await other.goto(server.url);
  await other.waitForSelector(".cost");
  await ask(other, "What is the capital of Italy?");
  await other.waitForFunction(() => document.querySelectorAll(".cost").length === 2);
  await page.waitForFunction(() => document.querySelectorAll(".cost").length === 2);
  assert.deepEqual(await replies(page), await replies(other));
  await ask(page, "What is the capital of France?");
  await other.waitForFunction(() => document.querySelectorAll(".cost").length === 3);
  await other.close();
});

pageTest("memory by class is shown and moves", {}, async (page) => {
  await page.waitForSelector(".engine .area-weights");
  const weights = await page.locator(".engine .legend dd").first().innerText();
  const bytes = await server.metric('cellm_memory_bytes{model="cellm-nano-int8",class="weights"}');
  assert.equal(weights, `${(bytes / 1e6).toFixed(1)} MB`);
  const points = () => page.locator(".engine .area-weights").getAttribute("d");
  const before = await points();
  await page.waitForFunction((was) => document.querySelector(".engine .area-weights").getAttribute("d") !== was, before);
});

pageTest("a conversation that is too long says how much, and can be shortened", {}, async (page) => {
  const long = "the river runs to the sea and the fox sits by the tree ".repeat(12);
  const said = Array.from({ length: 12 }, (_, i) => [i % 2 === 0 ? "user" : "assistant", long]);
  await importConversation(page, said);
  const column = (await columns(page).count()) - 1;
  await ask(page, "What is the capital of France?", column);
  await page.waitForSelector(".problem");
  assert.match(await page.innerText(".problem"), /needs \d\u2009\d{3} tokens; the model takes 1\u2009024/);
  await page.getByRole("button", { name: "Leave out the oldest turns" }).click();
  await page.waitForSelector(".cost");
  assert.equal(await page.locator(".left-out-line").count(), 1);
  assert.ok((await page.locator(".turn.left-out").count()) >= 2);
});

test("page: a server that is gone is said, and found again", async () => {
  const first = await Server.start();
  servers.push(first);
  const page = await openPage({}, first.url);
  await makeLong(page);
  await ask(page, "Tell me a story.");
  await page.waitForFunction(() => (document.querySelector(".turn.assistant .markdown")?.textContent.length ?? 0) > 20);
  await first.kill();
  await page.waitForSelector(".problem");
  assert.match(await page.innerText(".problem"), /connection broke/);
  assert.match(await page.innerText(".banner"), /does not answer/);
  assert.ok((await replies(page))[0].length > 20); // what came is kept
  await ask(page, "Are you there?");
  await page.waitForFunction(() => document.querySelectorAll(".problem").length === 2);
  assert.match(await page.locator(".problem").last().innerText(), /does not answer/);
  const second = await Server.startAt(first.port);
  servers.push(second);
  await page.waitForSelector(".banner", { state: "hidden" });
  await page.locator(".problem").last().getByRole("button", { name: "Try again" }).click();
  await page.waitForFunction(() => (document.querySelectorAll(".turn.assistant .markdown")[1]?.textContent.length ?? 0) > 0);
  await page.keyboard.press("Escape");
  await idle(page);
  await closePage(page);
});

test("page: a busy server is asked again", async () => {
  const busy = await Server.start("--max-requests", "1");
  servers.push(busy);
  const page = await openPage({}, busy.url);
  await makeLong(page);
  await page.keyboard.press("Alt+n");
  await ask(page, "Tell me a story.", 0);
  await page.waitForFunction(() => (document.querySelector(".turn.assistant .markdown")?.textContent.length ?? 0) > 20);
  await ask(page, "What is the capital of France?", 1);
  await page.waitForFunction(() => /busy/.test(document.querySelectorAll(".status-text")[1].textContent));
  await columns(page).nth(0).locator(".send").click(); // makes room
  await page.waitForSelector(".column:nth-child(2) .cost");
  assert.equal((await replies(page, 1)).length, 1);
  assert.ok((await busy.metric("cellm_requests_refused_total")) >= 1);
  await closePage(page);
});

test("page: another model can be chosen in the middle of a conversation", async () => {
  const two = await Server.start("--model", `second=${MODEL}`);
  servers.push(two);
  const page = await openPage({}, two.url);
  await makeGreedy(page);
  await ask(page, "What is the capital of France?");
  await page.waitForSelector(".cost");
  await page.locator(".model-select").selectOption("second");
  // The conversation's session is the first model's; this one reads all of it for itself.
  await ask(page, "What is the capital of Japan?");
  await page.waitForFunction(() => document.querySelectorAll(".cost").length === 2);
  assert.match((await replies(page))[1], /Tokyo/);
  assert.equal(await page.locator(".turn.assistant").last().getAttribute("aria-label"), "Reply of second");
  await page.waitForFunction(() => /of 1\u2009024 tokens/.test(document.querySelector(".context-text").textContent));
  await closePage(page);
});

test("page: a key is asked for and used", async () => {
  const locked = await Server.start("--api-key", "open sesame");
  servers.push(locked);
  const page = await openPage({}, locked.url);
  await page.getByRole("textbox", { name: "Key" }).fill("open sesame");
  await page.getByRole("button", { name: "Use it" }).click();
  await page.waitForFunction(() => document.querySelector(".model-select").value === "cellm-nano-int8");
  await ask(page, "What is 7 plus 5?");
  await page.waitForSelector(".cost");
  await closePage(page);
});
