// Figures: false alarms a day for the site, each kind, zone and device, with exact limits; a column for each version.

import { loadDifferences } from "./differences.js";
import { elapsed, fetchJson, get, make, problem, RETRY_MS, say, sinceAnswer, STALE_MS, sync } from "./lib.js";
import { figure, t } from "./messages.js";

const REFRESH_MS = 60000;
const DAY_NS = 86400n * 1000000000n;
const SHOWN = 100;         // rows of devices shown; the filter finds the others
const VERSIONS = 6;        // columns at most: the newest versions
const list = { rows: [], truncated: false, at: -Infinity, turn: 0, loading: false, failing: "" };

async function load() {
  Object.assign(list, { at: elapsed(), loading: true });
  const turn = ++list.turn, until = BigInt(Date.now()) * 1000000n;
  const from = until - BigInt(get("figures-days").value) * DAY_NS;
  loadDifferences(from);
  try {
    const body = await fetchJson(`/v1/quality?from=${from}&until=0`, { patience: 15000 });
    if (turn !== list.turn) return;
    [list.rows, list.truncated, list.failing] = [body.rows, body.truncated, ""];
  } catch (error) {
    if (turn !== list.turn) return;
    list.failing = problem(error);
  }
  list.loading = false;
  draw();
}

/** A number of days or alarms with one digit that counts, or as a whole number. */
const short = (value) => figure(value >= 10 ? Math.round(value) : Number(value.toPrecision(value >= 1 ? 2 : 1)));

/** The rate of one row in words: "at most 0.1 a day" if no alarm was false. */
export function rate(row) {
  if (row.perDay === undefined) return t("figures.no-rate");
  if (row.falseAlarms === 0) return t("figures.at-most", { high: short(row.high) });
  return t("figures.rate", { rate: short(row.perDay), low: short(row.low), high: short(row.high) });
}

const counts = (row) => t("figures.counts", { n: row.falseAlarms, alarms: row.alarms, days: short(row.deviceDays) });

function subject(row) {
  if (row.scope === "site") return t("figures.site");
  if (row.scope === "kind") return t(`figures.kind.${row.kind}`);
  if (row.scope === "zone") return row.namespace === "default" ? row.zone : `${row.namespace}/${row.zone}`;
  return `${row.device} · ${row.fleet}`;
}

/** The rows of `scopes`: subjects in their order, each with its row of every version. */
function grouped(scopes) {
  const subjects = new Map();
  for (const row of list.rows.filter(({ scope }) => scopes.includes(scope))) {
    const key = `${row.scope}/${subject(row)}`;
    if (!subjects.has(key)) subjects.set(key, { key, name: subject(row), versions: new Map() });
    subjects.get(key).versions.set(row.version, row);
  }
  return [...subjects.values()];
}

function drawTable(id, subjects, versions) {
  const table = get(id);
  table.closest(".scroll").hidden = !subjects.length;
  sync(table.tHead.rows[0], ["", ...versions], (version) => version, (version) => {
    const cell = make("th", "", version ? t("figures.version", { version }) : t("figures.subject"));
    cell.scope = "col";
    return cell;
  });
  sync(table.tBodies[0], subjects, ({ key }) => key, () => {
    const row = make("tr"), name = make("th");
    name.scope = "row";
    row.append(name);
    return row;
  }, (row, each) => {
    say(row.firstChild, each.name);
    while (row.cells.length > 1) row.lastChild.remove();
    for (const version of versions) {
      const cell = make("td"), found = each.versions.get(version);
      if (found) cell.append(make("b", "", rate(found)), make("br"), make("span", "aside", counts(found)));
      else cell.textContent = "–";
      row.append(cell);
    }
  });
}

function draw() {
  // Rows come in the order of their versions, the oldest first.
  const known = [...new Set(list.rows.map(({ version }) => version))], versions = known.slice(-VERSIONS).reverse();
  const wanted = get("figures-filter").value.trim().toLowerCase();
  const matches = (scopes) => grouped(scopes).filter(({ name }) => name.toLowerCase().includes(wanted));
  const devices = matches(["device"]);
  drawTable("figures-site", grouped(["site", "kind"]), versions);
  drawTable("figures-zones", matches(["zone"]), versions);
  drawTable("figures-devices", devices.slice(0, SHOWN), versions);
  say(get("figures-note"), list.failing || (list.truncated ? t("figures.truncated") : ""));
  say(get("figures-more-devices"), devices.length > SHOWN ? t("figures.more", { shown: SHOWN, total: devices.length }) : "");
  const empty = get("figures-empty");
  empty.hidden = list.rows.length > 0 || Boolean(list.failing);
}

export const showFigures = () => load();

export function refreshFigures() {
  const period = list.failing && sinceAnswer() < STALE_MS ? RETRY_MS : REFRESH_MS;
  if (!list.loading && elapsed() - list.at >= period) load();
}

export function setUpFigures() {
  get("figures-days").onchange = load;
  get("figures-filter").oninput = draw;
}
