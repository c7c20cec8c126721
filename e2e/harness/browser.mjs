// A real Chromium steered by tests. Each connection to the Unix socket is a window with cookies and storage of its own: one
// JSON request per line, one answer per line. Its end closes the window. Chromium ends with standard input.
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

const [folder, executablePath, socket] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP *.example.com 127.0.0.1"] });

/** Answer the requests of one window. */
async function serve(connection) {
  let context, page;
  const problems = [];  // errors of a page since the last request for them

  const operations = {
    /**
     * `clock`: milliseconds by which the clock of the window is ahead of the system's; `zone`: its time zone; `before`: a
     * script that runs before those of each page; `insecure`: any certificate is accepted.
     */
    async open({ url, width = 1400, height = 900, scheme = "dark", clock = 0, locale = "en-US", zone = undefined, before = "", insecure = false }) {
      if (context) await context.close();
      // Scripts injected for checks are not the page's: its policy would refuse them.
      context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", bypassCSP: false, locale, timezoneId: zone, ignoreHTTPSErrors: insecure });
      if (clock) await context.addInitScript(`{ const now = Date.now; Date.now = () => now() + ${clock}; }`);
      if (before) await context.addInitScript(before);
      page = await context.newPage();
      page.setDefaultTimeout(60000);
      page.on("pageerror", (error) => problems.push(`${error}`));
      page.on("console", (message) => { if (message.type() === "error") problems.push(`${message.text()} ${message.location().url}`); });
      await page.goto(url);
    },
    /** Change the window's size and colours, and show it as people with a deficiency of colour vision see it. */
    async look({ width, height, scheme, vision = "none" }) {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
      await (await context.newCDPSession(page)).send("Emulation.setEmulatedVisionDeficiency", { type: vision });
    },
    /** Slow the page's CPU down by `rate`. */
    async throttle({ rate }) { await (await context.newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate }); },
    goto: ({ url }) => page.goto(url),
    click: ({ selector }) => page.click(selector),
    fill: ({ selector, text }) => page.fill(selector, text),
    select: ({ selector, value }) => page.selectOption(selector, value),
    type: ({ text }) => page.keyboard.type(text),
    press: ({ key }) => page.keyboard.press(key),
    /** Drag the element `selector` to a share of `board`'s width and height. */
    async drag({ selector, board, x, y }) {
      await page.locator(board).evaluate((element) => element.scrollIntoView({ block: "start" }));
      const from = await page.locator(selector).boundingBox(), onto = await page.locator(board).boundingBox();
      await page.mouse.move(from.x + from.width / 2, from.y + from.height / 2);
      await page.mouse.down();
      await page.mouse.move(onto.x + onto.width * x, onto.y + onto.height * y, { steps: 5 });
      await page.mouse.up();
    },
    /** Freeze the page, as browsers do in the background, or wake it: "frozen", "active". */
    async lifecycle({ state }) { await (await context.newCDPSession(page)).send("Page.setWebLifecycleState", { state }); },
    /** Collect the page's garbage; returns the bytes that its objects take then. */
    async collect() {
      const session = await context.newCDPSession(page);
      await session.send("HeapProfiler.collectGarbage");
      const { usedSize } = await session.send("Runtime.getHeapUsage");
      await session.detach();
      return usedSize;
    },
    /** Open `url` in a new tab, on which nobody has clicked or typed yet. */
    async tab({ url }) { page = await context.newPage(); page.setDefaultTimeout(60000); await page.goto(url); },
    /** Wait until `script` is true. Unlike other operations, this does not count as a person's gesture. */
    async observe({ script, seconds = 60 }) {
      const session = await context.newCDPSession(page);
      for (const end = Date.now() + 1000 * seconds; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
        const { result } = await session.send("Runtime.evaluate", { expression: `Boolean(${script})` });
        if (result.value) return true;
      }
      throw new Error(`not within ${seconds} s`);
    },
    grant: ({ permissions }) => context.grantPermissions(permissions),
    /** Push `data` to the service worker whose scope ends with `scope`, as a push service does. */
    async push({ scope, data }) {
      const session = await context.newCDPSession(page), { origin } = new URL(page.url());
      const found = new Promise((done) => session.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
        const registration = registrations.find(({ scopeURL, isDeleted }) => !isDeleted && scopeURL.endsWith(scope));
        if (registration) done(registration.registrationId);
      }));
      await session.send("ServiceWorker.enable");
      await session.send("ServiceWorker.deliverPushMessage", { origin, registrationId: await found, data });
    },
    /** The result of `script` in the service worker whose address ends with `path`. */
    worker: ({ path, script }) => context.serviceWorkers().find((worker) => worker.url().endsWith(path)).evaluate(script),
    upload: ({ selector, path }) => page.setInputFiles(selector, path),
    text: ({ selector }) => page.innerText(selector),
    evaluate: ({ script }) => page.evaluate(script),
    /** Wait until `script` is true; polled from here, because the page forbids `eval`. */
    async until({ script, seconds = 60 }) {
      for (const end = Date.now() + 1000 * seconds; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
        if (await page.evaluate(`Boolean(${script})`).catch(() => false)) return true;
      }
      throw new Error(`not within ${seconds} s; the page says ${(await page.innerText("body")).slice(0, 2000)}`);
    },
    screenshot: ({ path }) => page.screenshot({ path }).then(() => path),
    problems: async () => problems.splice(0),
    /** The problems that axe finds, one sentence each; its source is injected by the debugger, to which no page policy applies. */
    async axe({ rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }) {
      const { readFileSync } = await import("node:fs");
      await page.evaluate(readFileSync(axe, "utf8"));
      const { violations } = await page.evaluate("axe.run({ runOnly: " + JSON.stringify(rules) + " })");
      return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.any.concat(node.all)[0]?.message ?? node.failureSummary}`));
    },
  };

  const lines = createInterface({ input: connection });
  connection.on("error", () => lines.close()); // its test may have ended meanwhile
  for await (const line of lines) {
    const { operation, ...options } = JSON.parse(line);
    let answer;
    try { answer = { value: (await operations[operation](options)) ?? null }; } catch (error) { answer = { error: `${error}` }; }
    connection.write(`${JSON.stringify(answer, (_, value) => (value && value.constructor?.name === "Response" ? null : value))}\n`);
  }
  if (context) await context.close();
  connection.end();
}

browser.on("disconnected", () => process.exit());
createServer({ allowHalfOpen: true }, serve).listen(socket, () => process.stdout.write("ready\n"));
for await (const _ of process.stdin) { /* wait for its end */ }
await browser.close();
