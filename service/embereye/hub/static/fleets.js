// Fleets: their shards, the number they need, their load, and the reason of the last change.

import { counted, elapsed, fetchJson, get, hubNow, make, milliseconds, problem, say, span, sync } from "./lib.js";

const REFRESH_MS = 2000;
const STALE_MS = 90000;     // after this time the operator's report may be out of date
const SHOWN = 40;           // fleets shown; the filter finds the others
const list = { fleets: [], total: 0, at: -Infinity, turn: 0, failing: "" };

const number = (value) => (value >= 100 ? Math.round(value) : Math.round(value * 10) / 10).toLocaleString("en-GB");
const percent = (share) => `${Math.round(100 * share)} %`;
const ago = (ns) => `${span(hubNow() - milliseconds(ns))} ago`;

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
  const some = list.total > list.fleets.length ? `${list.fleets.length} of ${list.total}, including all that need attention` : `${list.total}`;
  say(get("fleets-note"), list.failing || some);
  const empty = get("fleets-empty");
  empty.hidden = list.fleets.length > 0;
  say(empty, get("fleets-filter").value.trim() ? "No fleet matches." : "No fleet is known.");
  sync(get("fleets"), list.fleets, (fleet) => fleet.fleet, (fleet) => {
    const item = make("li", "fleet"), [namespace, kind, name] = fleet.fleet.split("/");
    const table = make("table"), head = make("tr"), body = make("tbody"), section = make("thead");
    for (const title of ["Shard", "State", "Devices", "CPU", "Arrivals /s", "Queue", "Oldest"]) {
      const cell = make("th", ["Shard", "State"].includes(title) ? "" : "number", title);
      cell.scope = "col";
      head.append(cell);
    }
    section.append(head);
    table.append(section, body);
    const box = make("div", "scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `Shards of ${name}`);
    box.append(table);
    item.append(make("h3", "name", `${name} `), make("dl", "figures"), make("p", "why"), make("p", "last"), make("p", "aside"), box);
    item.firstChild.append(make("span", "aside", `${kind} in ${namespace}`));
    return item;
  }, drawFleet);
}

function drawFleet(item, fleet) {
  const scaling = fleet.scaling, load = scaling && scaling.load;
  const figures = [["Watched", `${fleet.covered} of ${fleet.declared}`, fleet.covered < fleet.declared]];
  if (scaling) {
    const limits = scaling.mode !== "none" ? `, from ${scaling.minShards} to ${scaling.maxShards}` : "";
    figures.push(
      ["Shards", `${scaling.readyShards} of ${scaling.shards} ready${limits}`, scaling.readyShards < scaling.shards],
      ["Required", scaling.known ? `${scaling.requiredShards}` : "unknown", !scaling.known],
      ["CPU", load ? `${percent(load.utilization)} of a core each` : "unknown", !load],
      ["Arrivals", load ? `${number(load.arrivalRate)} /s` : "unknown", !load],
      ["Queue", load ? `${number(load.queueDepth)}, oldest ${span(1000 * load.oldestAge)}` : "unknown", !load],
    );
  }
  sync(item.querySelector(".figures"), figures, ([name]) => name, ([name]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd"));
    return pair;
  }, (pair, [, value, bad]) => { say(pair.lastChild, value); pair.classList.toggle("bad", bad); });
  say(item.querySelector(".why"), scaling ? `Scaling: ${scaling.mode}${scaling.reason ? ` – ${scaling.reason}` : ""}` : "");
  const last = scaling && scaling.last;
  say(item.querySelector(".last"), last ? `Last change: from ${last.before} to ${counted(last.after, "shard")}, ${ago(last.timeNs)}: ${last.reason}`
    : scaling ? "The number of shards has not changed." : "No operator reports on this fleet: only its shards' reports are shown.");
  const age = scaling ? hubNow() - milliseconds(scaling.timeNs) : 0, aside = item.querySelector("p.aside");
  say(aside, scaling ? `as of ${ago(scaling.timeNs)}${age > STALE_MS ? ": the operator may be down" : ""}` : "");
  aside.classList.toggle("bad", age > STALE_MS);
  sync(item.querySelector("tbody"), fleet.shards, (shard) => shard.name, () => {
    const row = make("tr");
    row.append(make("th"), ...[1, 2, 3, 4, 5, 6].map((index) => make("td", index > 1 ? "number" : "")));
    row.firstChild.scope = "row";
    return row;
  }, (row, shard) => {
    const load = shard.load, values = load ? [percent(load.utilization), number(load.arrivalRate), number(load.queueDepth), span(1000 * load.oldestAge)] : ["–", "–", "–", "–"];
    [shard.name, shard.state, `${shard.covered} of ${shard.devices}`, ...values].forEach((value, index) => say(row.children[index], value));
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
