// The table of devices, dark ones first. Only visible rows exist, and only these are requested.

import { amount, button, elapsed, fetchJson, get, hubNow, make, measured, milliseconds, problem, say, sinceAnswer, span, STALE_MS, stateWord, zoneKey, zoneName } from "./lib.js";
import { ask as setAddress, asked as address } from "./address.js";
import { deviceAddress } from "./device.js";
import { endSilence, silence, silenceOf, updateSilenceButton } from "./silences.js";
import { figure, t } from "./messages.js";
import { said } from "./said.js";

const ROW = 34;              // pixels; console.css has the same number
const BEYOND = 12;           // rows above and below the visible ones
const PAGE = 60;             // rows per request
const REFRESH_MS = 2000;
const IN_ZONE = "zone:";     // begins a filter for one zone: "zone:NAMESPACE/ZONE"

const list = { total: 0, rows: new Map(), turn: 0, at: -Infinity, failing: "" };

function column(term) {
  const name = term.name || "";
  if (term.unit === "°C" && /max|hot/.test(name)) return "max";
  if (term.unit === "°C" && /mean|average/.test(name)) return "mean";
  if (term.unit === "%" && /smoke/.test(name)) return "smoke";
  if (term.unit === "ppm") return "gas";
  return "also";
}

function analysed(ledger) {
  const offered = Number((ledger || {}).offered || 0);
  if (!offered) return ["–", t("ledger.no-data")];
  const sum = (reasons) => Object.values(reasons || {}).reduce((total, count) => total + Number(count), 0);
  const parts = [t("ledger.part.analysed", { count: ledger.analysed || 0 }), t("ledger.part.duplicate", { count: ledger.duplicate || 0 }), t("ledger.part.waiting", { count: ledger.waiting || 0 })];
  for (const name of ["shed", "rejected"]) {
    const reasons = Object.entries(ledger[name] || {});
    const detail = reasons.length ? ` (${reasons.map((entry) => entry.join(" ")).join(", ")})` : "";
    parts.push(t(`ledger.part.${name}`, { count: `${sum(ledger[name])}${detail}` }));
  }
  const share = Math.floor((1000 * Number(ledger.analysed || 0)) / offered) / 10;
  return [`${figure(share)} %`, t("ledger.sum", { offered, list: parts.join(" + ") })];
}

/** The first and the last row to draw: the visible ones and some beyond. */
function inSight() {
  const box = get("devices-scroll");
  const first = Math.max(0, Math.min(Math.floor(box.scrollTop / ROW), list.total) - BEYOND);  // the list may be shorter now
  return [first, Math.min(list.total, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + BEYOND)];
}

async function load() {
  const turn = ++list.turn, [first, last] = inSight();
  const offset = Math.floor(first / PAGE) * PAGE;
  const asked = new URLSearchParams({ order: "urgent", offset, limit: Math.max(PAGE, Math.ceil((last - offset) / PAGE) * PAGE) });
  const wanted = get("filter").value.trim();
  if (wanted.startsWith(IN_ZONE)) asked.set("zone", wanted.slice(IN_ZONE.length));
  else if (wanted) asked.set("text", wanted);
  try {
    const body = await fetchJson(`/v1/devices?${asked}`);
    if (turn !== list.turn) return;
    list.total = body.total;
    list.rows = new Map(body.devices.map((device, index) => [offset + index, device]));
    list.failing = "";
  } catch (error) { list.failing = problem(error); }
  list.at = elapsed();
  draw();
}

let asked = 0;
function loadSoon() {
  clearTimeout(asked);
  asked = setTimeout(load, 80);
}

function draw() {
  const [first, last] = inSight(), table = get("devices-table");
  say(get("devices-count"), list.failing || (list.total ? `${list.total}` : get("filter").value.trim() ? t("devices.no-match") : t("devices.none")));
  table.setAttribute("aria-rowcount", String(list.total + 1));
  get("devices-above").style.height = `${first * ROW}px`;
  get("devices-below").style.height = `${Math.max(0, list.total - last) * ROW}px`;
  const body = get("devices");
  while (body.children.length > last - first) body.lastElementChild.remove();
  while (body.children.length < last - first) body.append(makeRow());
  for (let number = first; number < last; number += 1) fill(body.children[number - first], number, list.rows.get(number));
}

function makeRow() {
  const row = make("tr");
  for (let index = 0; index < 12; index += 1) row.append(make(index ? "td" : "th", [3, 4, 5, 6, 8, 9].includes(index) ? "number" : ""));
  row.firstChild.scope = "row";
  row.firstChild.append(make("a", "device"));
  row.children[2].append(make("span"));
  row.children[11].append(button(t("silence.button"), () => {
    const { namespace, zone, id } = row.device, existing = silenceOf(namespace, zone, id);
    return existing ? endSilence(existing) : silence(namespace, zone, id);
  }));
  return row;
}

function fill(row, number, device) {
  const cells = row.children, link = cells[0].firstChild;
  row.setAttribute("aria-rowindex", String(number + 2));
  row.classList.toggle("unwatched", Boolean(device) && !device.covered);
  row.device = device;
  const silencing = cells[11].firstChild;
  silencing.hidden = !device || !device.declared;
  if (!device) {
    for (const cell of cells) if (cell !== cells[0] && cell !== cells[2] && cell !== cells[11]) say(cell, "");
    say(link, "…");
    say(cells[2].firstChild, "");
    return;
  }
  updateSilenceButton(silencing, sinceAnswer() > STALE_MS, device.namespace, device.zone, device.id);
  const values = { max: [], mean: [], smoke: [], gas: [], also: [] };
  for (const term of device.latest || []) {
    const where = column(term);
    values[where].push(where === "also" ? `${(term.name || "").replaceAll(".", " ")} ${measured(term)}` : amount(term.value || 0));
  }
  if (row.title !== device.fleet) row.title = device.fleet;
  say(link, device.id);
  link.href = deviceAddress(device);
  say(cells[1], device.location ? `${zoneName(device)} · ${device.location}` : zoneName(device));
  const watched = cells[2].firstChild;
  watched.className = device.covered ? "yes" : "no";
  say(watched, device.covered ? [t("yes"), said(device.state)].filter(Boolean).join(" · ") : `${device.declared ? stateWord("dark") : t("devices.not-watched")}: ${said(device.reason)}`);
  if (cells[2].title !== watched.textContent) cells[2].title = watched.textContent;
  ["max", "mean", "smoke", "gas"].forEach((name, index) => say(cells[3 + index], values[name].join(" / ")));
  say(cells[7], values.also.join(", "));
  if (cells[7].title !== cells[7].textContent) cells[7].title = cells[7].textContent;
  say(cells[8], Number(device.heardNs || 0) ? span(hubNow() - milliseconds(device.heardNs)) : t("never"));
  const [share, detail] = analysed(device.ledger);
  say(cells[9], share);
  if (cells[9].title !== detail) cells[9].title = detail;
  say(cells[10], (device.shards || []).join(", "));
}

/** The address of the table with the devices of `zone`. */
export const devicesAddress = (zone) => `#devices?${new URLSearchParams({ text: IN_ZONE + zoneKey(zone) })}`;

/** Show the devices that the address asks for. */
export function showDevices() {
  const text = address().get("text") || "";
  if (get("filter").value.trim() !== text) { get("filter").value = text; list.at = -Infinity; }
  refreshDevices();
}

export function refreshDevices() {
  if (elapsed() - list.at >= REFRESH_MS) { list.at = elapsed(); load(); }
}

export function setUpDevices() {
  get("devices-scroll").onscroll = () => { draw(); loadSoon(); };
  get("filter").oninput = () => {
    get("devices-scroll").scrollTop = 0;
    setAddress({ text: get("filter").value.trim() });
    loadSoon();
  };
}
