// Fleets: their shards, the number they need, their load, and the reason of the last change.

import { elapsed, fetchJson, get, hubNow, make, milliseconds, problem, say, span, stateWord, sync } from "./lib.js";
import { figure, t } from "./messages.js";

const REFRESH_MS = 2000;
const STALE_MS = 90000;     // after this time the operator's report may be out of date
const SHOWN = 40;           // fleets shown; the filter finds the others
const list = { fleets: [], total: 0, at: -Infinity, turn: 0, failing: "" };

const number = (value) => figure(value >= 100 ? Math.round(value) : Math.round(value * 10) / 10);
const percent = (share) => `${Math.round(100 * share)} %`;
const ago = (ns) => t("ago", { span: span(hubNow() - milliseconds(ns)) });

async function load() {
  list.at = elapsed();
  const turn = ++list.turn, asked = new URLSearchParams({ order: "urgent", limit: SHOWN });
  const wanted = get("fleets-filter").value.trim();
  if (wanted) asked.set("text", wanted);
  try {
    const body = await fetchJson(`/v1/fleets?${asked}`);
    if (turn !== list.turn) return;
    // The fleets that need attention are among the shown ones; ordered by name, each stays in its place.
    list.fleets = body.fleets.sort((a, b) => (a.fleet < b.fleet ? -1 : 1));
    list.total = body.total;
    list.failing = "";
  } catch (error) { list.failing = problem(error); }
  draw();
}

function draw() {
  const some = list.total > list.fleets.length ? t("fleets.some", { shown: list.fleets.length, total: list.total }) : `${list.total}`;
  say(get("fleets-note"), list.failing || some);
  const empty = get("fleets-empty");
  empty.hidden = list.fleets.length > 0 || Boolean(list.failing);
  say(empty, get("fleets-filter").value.trim() ? t("fleets.no-match") : t("fleets.none"));
  sync(get("fleets"), list.fleets, (fleet) => fleet.fleet, (fleet) => {
    const item = make("li", "fleet"), [namespace, kind, name] = fleet.fleet.split("/");
    const table = make("table"), head = make("tr"), body = make("tbody"), section = make("thead");
    const titles = [t("fleets.shard"), t("fleets.state"), t("fleets.devices"), t("fleets.cpu"), t("fleets.arrivals-per-second"), t("fleets.queue"), t("fleets.oldest")];
    for (const [index, title] of titles.entries()) {
      const cell = make("th", index < 2 ? "" : "number", title);
      cell.scope = "col";
      head.append(cell);
    }
    section.append(head);
    table.append(section, body);
    const box = make("div", "scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", t("fleets.shards-of", { name }));
    box.append(table);
    item.append(make("h3", "name", `${name} `), make("dl", "figures"), make("p", "why"), make("p", "last"), make("p", "aside"), box);
    item.firstChild.append(make("span", "aside", t(`fleets.kind.${kind}`, { namespace })));
    return item;
  }, drawFleet);
}

function drawFleet(item, fleet) {
  const scaling = fleet.scaling, load = scaling && scaling.load;
  const figures = [[t("fleets.watched"), t("of", { covered: fleet.covered, declared: fleet.declared }), fleet.covered < fleet.declared]];
  if (scaling) {
    const limits = scaling.mode !== "none" ? t("fleets.limits", { minShards: scaling.minShards, maxShards: scaling.maxShards }) : "";
    figures.push(
      [t("fleets.shards"), t("fleets.ready", { readyShards: scaling.readyShards, shards: scaling.shards, limits }), scaling.readyShards < scaling.shards],
      [t("fleets.required"), scaling.known ? `${scaling.requiredShards}` : stateWord("unknown"), !scaling.known],
      [t("fleets.cpu"), load ? t("fleets.core", { percent: percent(load.utilization) }) : stateWord("unknown"), !load],
      [t("fleets.arrivals"), load ? `${number(load.arrivalRate)} /s` : stateWord("unknown"), !load],
      [t("fleets.queue"), load ? t("fleets.queued", { number: number(load.queueDepth), span: span(1000 * load.oldestAge) }) : stateWord("unknown"), !load],
    );
  }
  sync(item.querySelector(".figures"), figures, ([name]) => name, ([name]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd"));
    return pair;
  }, (pair, [, value, bad]) => { say(pair.lastChild, value); pair.classList.toggle("bad", bad); });
  say(item.querySelector(".why"), scaling ? t("fleets.scaling", { mode: scaling.mode }) + (scaling.reason ? ` – ${scaling.reason}` : "") : "");
  const last = scaling && scaling.last;
  say(item.querySelector(".last"), last ? t("fleets.last", { before: last.before, n: last.after, ago: ago(last.timeNs), reason: last.reason })
    : scaling ? t("fleets.unchanged") : t("fleets.no-operator"));
  const age = scaling ? hubNow() - milliseconds(scaling.timeNs) : 0, aside = item.querySelector("p.aside");
  say(aside, scaling ? t("fleets.as-of", { ago: ago(scaling.timeNs), more: age > STALE_MS ? t("fleets.operator-down") : "" }) : "");
  aside.classList.toggle("bad", age > STALE_MS);
  sync(item.querySelector("tbody"), fleet.shards, (shard) => shard.name, () => {
    const row = make("tr");
    row.append(make("th"), ...[1, 2, 3, 4, 5, 6].map((index) => make("td", index > 1 ? "number" : "")));
    row.firstChild.scope = "row";
    return row;
  }, (row, shard) => {
    const load = shard.load, values = load ? [percent(load.utilization), number(load.arrivalRate), number(load.queueDepth), span(1000 * load.oldestAge)] : ["–", "–", "–", "–"];
    [shard.name, shard.state, t("of", { covered: shard.covered, declared: shard.devices }), ...values].forEach((value, index) => say(row.children[index], value));
  });
}

export const showFleets = () => load();

let typed = 0;

export function setUpFleets() {
  get("fleets-filter").oninput = () => {
    clearTimeout(typed);
    typed = setTimeout(load, 150);
  };
}

export function refreshFleets() {
  if (elapsed() - list.at >= REFRESH_MS) load();
}
