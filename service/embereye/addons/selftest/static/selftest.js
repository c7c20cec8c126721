// Self-tests on a device's page: the newest result of each, and a button that runs it.

import { asked, pageName } from "../static/address.js";
import { button, elapsed, fetchJson, get, hubNow, make, mayAct, milliseconds, postJson, problem, say, sinceAnswer, span, STALE_MS, sync, toast } from "../static/lib.js";
import { t } from "../static/messages.js";

const REFRESH_MS = 2000;
const STARTS_MS = 500;       // between two looks at the page's name
const section = make("div"), list = make("ul");
section.hidden = true;
list.id = "selftests";
section.append(make("h3", "", t("selftest.title")), list);
get("device-ledger").after(section);

let tests = [], at = -Infinity;

function words({ outcome, detail, startedNs }) {
  if (outcome === "running") return t("selftest.running");
  if (!outcome) return t("selftest.never");
  return t("selftest.result", { detail, ago: t("ago", { span: span(hubNow() - milliseconds(startedNs)) }) });
}

async function start(name) {
  try { await postJson(`/v1/selftests/${encodeURIComponent(name)}/run`, {}); } catch (error) { toast(problem(error)); }
  await load();
}

function draw() {
  const own = tests.filter(({ fleet, device }) => fleet === asked().get("fleet") && device === asked().get("id"));
  section.hidden = !own.length;
  sync(list, own, ({ test }) => test, ({ test }) => {
    const item = make("li");
    item.append(make("span"), " ", button(t("selftest.run"), () => start(test), t("selftest.run-of", { test })));
    return item;
  }, (item, each) => {
    say(item.firstChild, `${each.test}: ${words(each)}`);
    item.classList.toggle("problem", each.failed);
    item.lastChild.disabled = !mayAct() || each.outcome === "running" || sinceAnswer() > STALE_MS;
  });
}

async function load() {
  at = elapsed();
  try { tests = (await fetchJson("/v1/selftests")).selftests; } catch { /* the console says already that the hub does not answer */ }
  draw();
}

setInterval(() => {
  if (pageName() !== "device") return;
  if (elapsed() - at >= REFRESH_MS) load();
  else draw();
}, STARTS_MS);
