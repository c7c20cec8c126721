// What was: alarms, and everything else that happened, by zone, day and kind.

import { button, dateTime, fetchJson, get, make, milliseconds, nanoseconds, say, span, STATES, sync } from "./lib.js";
import { openAlarm } from "./alarm.js";

const PAGE = 100;
const past = { entries: [], next: "", turn: 0 };

function query(after) {
  const asked = new URLSearchParams({ limit: PAGE });
  const day = (id, add) => {
    const [year, month, date] = get(id).value.split("-").map(Number);
    return year ? nanoseconds(new Date(year, month - 1, date + add).getTime()) : "";
  };
  const chosen = { zone: get("past-zone").value.trim(), from: day("past-from", 0), until: day("past-until", 1), of: get("past-of").value, before: after };
  for (const [name, value] of Object.entries(chosen)) if (value) asked.set(name, value);
  return asked;
}

async function load(after = "") {
  const turn = ++past.turn;
  say(get("past-note"), "…");
  try {
    const body = await fetchJson(`/v1/alarms?${query(after)}`, { patience: 15000 });
    if (turn !== past.turn) return;
    past.entries = after ? [...past.entries, ...body.alarms] : body.alarms;
    past.next = body.next || "";
    say(get("past-note"), past.entries.length ? `${past.entries.length}${past.next ? " so far" : ""}` : "No alarm matches.");
  } catch (error) {
    if (turn === past.turn) say(get("past-note"), error.message);
  }
  draw();
}

function draw() {
  get("past-more").hidden = !past.next;
  sync(get("past-alarms"), past.entries, (alarm) => alarm.alarm, (alarm) => {
    const row = make("tr"), open = make("td");
    row.append(make("td"), make("th"), make("td"), make("td", "number"), make("td", "why"), make("td"), open);
    row.children[1].scope = "row";
    open.append(button("Explain", () => openAlarm(alarm.alarm), `Explain the alarm in ${alarm.zone} of ${dateTime(alarm.beganNs)}`));
    return row;
  }, (row, alarm) => {
    const ended = alarm.endedNs !== "0", cells = row.children;
    row.dataset.state = STATES[alarm.worst] || "normal";
    say(cells[0], dateTime(alarm.beganNs));
    say(cells[1], alarm.zone);
    say(cells[2], `${STATES[alarm.worst] || ""}${ended ? "" : ", open"}`);
    say(cells[3], ended ? span(milliseconds(alarm.endedNs) - milliseconds(alarm.beganNs)) : "");
    say(cells[4], alarm.why);
    say(cells[5], alarm.falseAlarm ? `false: ${alarm.falseAlarm.reason}` : "");
  });
}

export function showHistory() { load(); }

export function setUpHistory() {
  get("past-form").onsubmit = (event) => { event.preventDefault(); load(); };
  get("past-form").onchange = () => load();
  get("past-more").onclick = () => load(past.next);
}
