// The past: alarms and events. The search is written into the address, so that a link shows the same.

import { asked as address, ask as setAddress, pageName } from "./address.js";
import { bothTimes, button, dateTime, elapsed, describeEvent, fetchJson, get, make, milliseconds, nanoseconds, problem, RETRY_MS, say, sinceAnswer, span, STALE_MS, STATES, stateWord, sync, zoneName } from "./lib.js";
import { openAlarm } from "./alarm.js";
import { t } from "./messages.js";
import { said } from "./said.js";

const PAGE = 100;
const EVENTS = 50;           // events on a page
const ASKED = 20;            // requests for one page; each searches 5,000 events
const FILTERS = ["zone", "device", "level", "kind", "type"];  // filters of events, by their names in the API
const past = { entries: [], next: "", turn: 0 };
const results = { events: [], next: "", turn: 0 };
let failed = null;           // the request that failed, and when

const showsEvents = () => address().get("show") === "events";

// ---- the form and the address

const field = (name) => get(`${showsEvents() ? "events" : "past"}-${name}`);
const names = () => (showsEvents() ? [...FILTERS, "from", "until"] : ["zone", "from", "until", "of"]);

/** Write the form's values and `more` into the address. */
function updateAddress(more = {}, step = false) {
  const wanted = Object.fromEntries(names().map((name) => [name, field(name).value.trim()]));
  for (const name of ["from", "until"]) {
    // A time is written with its time zone, so that the link means the same moment everywhere.
    if (wanted[name].includes("T")) wanted[name] = new Date(wanted[name]).toISOString();
  }
  setAddress({ show: showsEvents() ? "events" : "", ...wanted, ...more }, step);
}

function local(text) {
  const at = new Date(text), pad = (number) => String(number).padStart(2, "0");
  if (Number.isNaN(at.getTime())) return "";
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}`;
}

function readAddress() {
  const wanted = address();
  for (const name of names()) {
    const value = wanted.get(name) || "";
    field(name).value = field(name).type === "datetime-local" ? local(value) : value;
  }
}

// ---- failed requests are repeated

function fail(error, note, again) {
  say(get(note), problem(error));
  failed = { again, at: elapsed() };
}

export function refreshHistory() {
  if (showsEvents()) drawEvents();  // the namespaces may be known by now
  else drawAlarms();
  if (!failed || elapsed() - failed.at < RETRY_MS || sinceAnswer() > STALE_MS) return;
  const { again } = failed;
  failed = null;
  again();
}

// ---- alarms

function query(after) {
  const wanted = new URLSearchParams({ limit: PAGE });
  const day = (id, add) => {
    const [year, month, date] = get(id).value.split("-").map(Number);
    return year ? nanoseconds(new Date(year, month - 1, date + add).getTime()) : "";
  };
  const chosen = { zone: get("past-zone").value.trim(), from: day("past-from", 0), until: day("past-until", 1), of: get("past-of").value, before: after };
  for (const [name, value] of Object.entries(chosen)) if (value) wanted.set(name, value);
  return wanted;
}

async function loadAlarms(after = "") {
  const turn = ++past.turn;
  failed = null;
  say(get("past-note"), "…");
  try {
    const body = await fetchJson(`/v1/alarms?${query(after)}`, { patience: 15000 });
    if (turn !== past.turn) return;
    past.entries = after ? [...past.entries, ...body.alarms] : body.alarms;
    past.next = body.next || "";
    say(get("past-note"), past.entries.length ? `${past.entries.length}${past.next ? t("history.so-far") : ""}` : t("history.no-alarm"));
  } catch (error) {
    if (turn === past.turn) fail(error, "past-note", () => loadAlarms(after));
  }
  drawAlarms();
}

function drawAlarms() {
  get("past-more").hidden = !past.next;
  sync(get("past-alarms"), past.entries, (alarm) => `${alarm.alarm} ${zoneName(alarm)}`, (alarm) => {
    const row = make("tr"), open = make("td");
    row.append(make("td"), make("th"), make("td"), make("td", "number"), make("td", "why"), make("td"), open);
    row.children[1].scope = "row";
    open.append(button(t("explain"), () => openAlarm(alarm.alarm), t("explain.of", { zone: zoneName(alarm), time: dateTime(alarm.beganNs) })));
    return row;
  }, (row, alarm) => {
    const ended = alarm.endedNs !== "0", cells = row.children;
    row.dataset.state = STATES[alarm.worst] || "normal";
    say(cells[0], bothTimes(alarm.beganNs));
    say(cells[1], zoneName(alarm));
    say(cells[2], `${stateWord(STATES[alarm.worst] || "normal")}${ended ? "" : t("history.open")}`);
    say(cells[3], ended ? span(milliseconds(alarm.endedNs) - milliseconds(alarm.beganNs)) : "");
    say(cells[4], said(alarm.why));
    say(cells[5], alarm.falseAlarm ? t("history.false", { reason: alarm.falseAlarm.reason }) : "");
  });
}

// ---- events

function eventQuery(before, limit) {
  const chosen = address(), wanted = new URLSearchParams({ newest: limit });
  for (const name of FILTERS) for (const value of chosen.getAll(name)) wanted.append(name, value);
  for (const [name, as] of [["from", "since"], ["until", "until"]]) {
    const at = new Date(chosen.get(name) || "").getTime();
    if (at > 0) wanted.set(as, nanoseconds(at));
  }
  if (before) wanted.set("before", before);
  return wanted;
}

async function loadEvents() {
  const turn = ++results.turn;
  failed = null;
  say(get("events-note"), "…");
  try {
    let before = address().get("before") || "", events = [];
    for (let number = 0; number < ASKED && events.length < EVENTS; number += 1) {
      const body = await fetchJson(`/v1/history?${eventQuery(before, EVENTS - events.length)}`, { patience: 15000 });
      if (turn !== results.turn) return;
      events = [...events, ...body.events.reverse()];
      before = body.next && body.next !== "0" ? body.next : "";
      if (!before) break;
    }
    Object.assign(results, { events, next: before });
    say(get("events-note"), events.length ? `${events.length}${before ? t("history.older") : ""}`
      : before ? t("history.no-match-yet") : t("history.no-event"));
  } catch (error) {
    if (turn === results.turn) fail(error, "events-note", loadEvents);
  }
  drawEvents();
}

function drawEvents() {
  get("events-older").disabled = !results.next;
  get("events-newest").disabled = !address().get("before");
  sync(get("events-found"), results.events, (event) => `${event.cursor} ${zoneName(event)}`, (event) => {
    const row = make("tr"), open = make("td"), [look, word] = describeEvent(event);
    const zone = make("th", "", zoneName(event));
    zone.scope = "row";
    row.dataset.state = look;
    row.append(make("td", "", bothTimes(event.timeNs)), zone, make("td", "what", word), make("td", "why", said(event.why)), make("td", "", event.who || ""), open);
    if (event.alarm) open.append(button(t("explain"), () => openAlarm(event.alarm), t("explain.of", { zone: zoneName(event), time: dateTime(event.timeNs) })));
    return row;
  });
}

// ---- the page

export function showHistory() {
  const events = showsEvents();
  get("past-section").hidden = events;
  get("events-section").hidden = !events;
  for (const name of ["alarms", "events"]) get(`show-${name}`).setAttribute("aria-pressed", String(events === (name === "events")));
  readAddress();
  if (events) loadEvents();
  else loadAlarms();
}

/** Write the changed search into the address, and load its results. */
function search() {
  updateAddress();
  if (showsEvents()) loadEvents();
  else loadAlarms();
}

export function setUpHistory() {
  for (const form of ["past-form", "events-form"]) {
    get(form).onsubmit = (event) => { event.preventDefault(); search(); };
    get(form).onchange = search;
  }
  get("past-more").onclick = () => loadAlarms(past.next);
  get("show-alarms").onclick = () => { setAddress({ zone: address().get("zone") }, true); showHistory(); };
  get("show-events").onclick = () => { setAddress({ show: "events", zone: address().get("zone") }, true); showHistory(); };
  get("events-older").onclick = () => { updateAddress({ before: results.next }, true); loadEvents(); };
  get("events-newest").onclick = () => { updateAddress({}, true); loadEvents(); };
  addEventListener("popstate", () => { if (pageName() === "history") showHistory(); });
}
