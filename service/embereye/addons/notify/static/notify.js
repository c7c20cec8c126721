// Shows in the console if people can be reached: a line, and a dialog with routes, escalations and dead letters.

import { clockTime, dateTime, fetchJson, make, mayAct, postJson, problem, say, span, sync, toast, wait } from "../static/lib.js";
import { t } from "../static/messages.js";
import { line, makeDialog, makeList, open, sentence } from "./dialog.js";
import { setUpPush, subscribe } from "./push.js";

const PERIOD_MS = 5000;
const TEST_MS = 65000;  // a service may take a minute
const RECENT = 3;       // messages shown of each route
const DEAD = 20;
const PROOFS = { confirmed: t("notify.confirmed"), waiting: t("notify.waiting"), unconfirmed: t("notify.unconfirmed"), unproved: t("notify.unproved") };

const state = make("p"), rows = make("tbody");
const results = new Map();  // of tests, by route
rows.id = "notify-routes";

function makeTable() {
  const scroll = make("div", "scroll"), table = make("table"), head = make("tr");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", t("notify.table"));
  for (const text of [t("notify.route"), t("notify.service"), t("notify.state"), t("notify.proof"), t("notify.latest"), t("notify.test")]) {
    const cell = make("th", "", text);
    cell.scope = "col";
    head.append(cell);
  }
  const top = make("thead");
  top.append(head);
  table.append(top, rows);
  scroll.append(table);
  return scroll;
}

const [dutyTitle, duties] = makeList(t("notify.duty"), "notify-duties");
const [escalationTitle, escalations] = makeList(t("notify.escalations"), "notify-escalations");
const [deadTitle, dead] = makeList(t("notify.given-up"), "notify-dead");
const resend = make("button", "quiet", t("notify.resend"));
resend.type = "button";
resend.id = "notify-resend";
const dialog = makeDialog(
  [state, makeTable(), dutyTitle, duties, escalationTitle, escalations, deadTitle, dead], resend, subscribe,
);
say(open, t("notify.routes"));

/** Send a test by a route, and show in its row what came of it. */
async function test(name) {
  results.set(name, t("notify.sending"));
  draw();
  try {
    const { failed } = await fetchJson(`/v1/notify/routes/${encodeURIComponent(name)}/test`, { method: "POST", patience: TEST_MS });
    results.set(name, failed ? t("notify.not-accepted", { why: failed }) : t("notify.accepted"));
  } catch (error) { results.set(name, problem(error)); }
  await refresh().catch(() => {});
}

const condition = (route) => [
  route.failing || (route.sentNs === "0" ? t("notify.unused") : t("notify.delivers")),
  route.zones.length ? t("notify.only", { zones: route.zones.join(", ") }) : "",
  route.waiting ? t("notify.number-waiting", { n: route.waiting }) : "", route.deadLetters ? t("notify.number-given-up", { n: route.deadLetters }) : "",
].filter(Boolean).join(", ");

const recent = ({ timeNs, title, failed }) => `${clockTime(timeNs)} ${title}${failed ? `: ${failed}` : ""}`;

function makeRow(route) {
  const row = make("tr"), name = make("th", "", route.name), button = make("button", "quiet", t("notify.test"));
  name.scope = "row";
  button.type = "button";
  button.setAttribute("aria-label", t("notify.test-of", { name: route.name }));
  button.onclick = () => test(route.name);
  const cells = ["service", "state", "proof", "recent", "test"].map((kind) => make("td", kind));
  const result = make("p", "result");
  result.setAttribute("role", "status");
  cells[4].append(button, result);
  cells[3].append(make("ul"));
  row.append(name, ...cells);
  return row;
}

function updateRow(row, route) {
  say(row.querySelector(".service"), route.service || t("notify.unknown-service"));
  const shown = row.querySelector(".state");
  say(shown, condition(route));
  shown.classList.toggle("bad", Boolean(route.failing || route.deadLetters));
  say(row.querySelector(".proof"), PROOFS[route.proof]);
  sync(row.querySelector(".recent ul"), route.recent.slice(0, RECENT), (each) => `${each.timeNs} ${each.title} ${each.failed}`, (each) => make("li", each.failed ? "bad" : "", recent(each)));
  row.querySelector("button").disabled = !mayAct() || results.get(route.name) === t("notify.sending");
  say(row.querySelector(".result"), results.get(route.name) || "");
}

const after = (seconds) => (seconds ? t("notify.after", { span: span(1000 * seconds) }) : t("notify.at-once"));

function describe({ name, occasions, zones, steps, repeatSeconds }) {
  const where = zones.join(", ") === "*" ? "" : ` ${t("notify.in", { zones: zones.join(", ") })}`;
  const order = steps.map((step) => `${after(step.afterSeconds)} ${step.routes.join(", ")}`).join("; ");
  return `${name}: ${occasions.join(", ")}${where}: ${order}${repeatSeconds ? `; ${t("notify.again", { span: span(1000 * repeatSeconds) })}` : ""}`;
}

const CONFIRMED = /^(?<confirmed>\d+) of (?<routes>\d+) routes confirmed within (?<span>[\d.]+ \w+)(?:, (?<rest>\d+) not proved)?$/;
const UNPROVED = /^(?<routes>\d+) routes, none of them proved by a canary$/;

/** The hub's sentence on all routes in the page's language, if the page knows it. */
function inWords(text) {
  const { groups } = CONFIRMED.exec(text) || UNPROVED.exec(text) || {};
  if (!groups) return text;
  if (!groups.confirmed) return t("notify.routes-unproved", groups);
  return t("notify.routes-confirmed", groups) + (groups.rest ? t("notify.routes-rest", groups) : "");
}

let latest = null, given = [];

function draw() {
  if (!latest) return;
  const unrouted = latest.unrouted.length ? ` ${t("notify.unrouted", { zones: latest.unrouted.join(", ") })}` : "";
  const text = `${t(latest.reachable ? "notify.reachable" : "notify.not-reachable", { sentence: inWords(latest.sentence) })}${unrouted}`;
  say(sentence, text);
  line.toggleAttribute("data-bad", !latest.reachable || latest.unrouted.length > 0);
  say(state, text);
  sync(rows, latest.routes, (route) => route.name, makeRow, updateRow);
  dutyTitle.hidden = !latest.duties.length;
  sync(duties, latest.duties, (duty) => duty.name, () => make("li"), (item, duty) => {
    say(item, `${duty.name}: ${duty.routes.join(", ") || t("notify.no-one")}${duty.problem ? `. ${duty.problem}` : ""}`);
    item.classList.toggle("bad", Boolean(duty.problem) || !duty.routes.length);
  });
  sync(escalations, latest.escalations, (each) => each.name, () => make("li"), (item, each) => say(item, describe(each)));
  deadTitle.hidden = resend.hidden = !given.length;
  resend.disabled = !mayAct();
  sync(dead, given.slice(-DEAD).reverse(), (each) => `${each.diedNs} ${each.route} ${each.zone} ${each.news}`, (each) => make("li", "", t("notify.dead", { ...each, time: dateTime(each.diedNs) })));
}

async function refresh() {
  latest = await fetchJson("/v1/notify");
  if (dialog.open) given = (await fetchJson("/v1/notify/dead")).dead;
  draw();
}

open.onclick = () => { results.clear(); dialog.showModal(); refresh().catch((error) => toast(problem(error))); };
resend.onclick = async () => {
  try {
    const { resent } = await postJson("/v1/notify/dead/resend", {});
    toast(t("notify.sending-again", { n: resent }));
    await refresh();
  } catch (error) { toast(problem(error)); }
};

setUpPush().catch(() => { /* without push, the console works as before */ });
for (;;) {
  try { await refresh(); } catch { say(sentence, ""); }
  await wait(PERIOD_MS);
}
