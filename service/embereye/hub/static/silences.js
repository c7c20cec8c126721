// Silences: who pauses notifications, why and until when. They are shown on every page while they last.

import { ask, fetchJson, get, hubNow, make, mayAct, milliseconds, page, postJson, problem, say, sendJson, span, sync, toast, button, zoneName } from "./lib.js";

const hourMinute = (ns) => new Date(milliseconds(ns)).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
let zones = null, gathered = [];
/** All silences, gathered once per answer of the hub, because every zone and device searches them. */
function all() {
  if (zones !== page.zones) gathered = (zones = page.zones).flatMap((zone) => zone.silences || []);
  return gathered;
}

/** The silence of a zone, or of a device in it. */
export const silenceOf = (namespace, zone, device = "") =>
  all().find((silence) => silence.namespace === namespace && silence.zone === zone && (silence.device || "") === device);

async function refresh() {
  try {
    const body = await fetchJson("/v1/zones");
    page.zones = body.zones;
  } catch { /* the page shows the age of the last answer */ }
  drawSilences();
}

/** Ask for a reason and a duration, and pause notifications for a zone, or for a device in it. */
export async function silence(namespace, zone, device = "") {
  const path = `/v1/zones/${encodeURIComponent(namespace)}/${encodeURIComponent(zone)}/silences`, called = zoneName({ namespace, zone });
  await ask({
    title: `Silence ${device ? `${device} in ${called}` : `zone ${called}`}`, ok: "Silence", required: "Why (a reason)", hours: 1,
    text: "Pauses notifications for faults, pre-alarms and updates to the current alarm. New alarms still notify, and so does the first critical sign. Devices remain watched and recorded.",
    send: ({ who, note, hours }) => postJson(path, { who, reason: note, minutes: Math.round(60 * hours), device }),
  });
  await refresh();
}

/** End a silence before its time. */
export async function endSilence(silence) {
  try { await sendJson("DELETE", `/v1/silences/${silence.id}`, {}); } catch (error) { toast(problem(error)); }
  await refresh();
}

/** A button that starts a silence, or ends the present one; call `updateSilenceButton` whenever something may have changed. */
export function silenceButton(namespace, zone, device = "") {
  const made = button("Silence …", () => {
    const existing = silenceOf(namespace, zone, device);
    return existing ? endSilence(existing) : silence(namespace, zone, device);
  });
  made.dataset.action = "silence";
  return made;
}

export function updateSilenceButton(element, stale, namespace, zone, device = "") {
  const existing = silenceOf(namespace, zone, device), called = zoneName({ namespace, zone }), name = device ? `${device} in ${called}` : called;
  say(element, existing ? "End silence" : "Silence …");
  element.setAttribute("aria-label", existing ? `End silence of ${name}` : `Silence … ${name}`);
  element.disabled = stale || !mayAct() || Boolean(page.failing);
}

export function drawSilences(stale = false) {
  const silences = [...all()].sort((a, b) => milliseconds(a.untilNs) - milliseconds(b.untilNs));
  get("silenced").hidden = !silences.length;
  say(get("silenced-count"), `${silences.length}`);
  sync(get("silences"), silences, (silence) => silence.id, (silence) => {
    const item = make("li");
    item.append(make("b", "", silence.device ? `${silence.device} · ${zoneName(silence)}` : zoneName(silence)), make("span", "until"), make("span", "why", `${silence.reason} – ${silence.who}`));
    item.append(button("End silence", () => endSilence(silence), `End silence of ${silence.device ? `${silence.device} in ` : ""}${zoneName(silence)}`));
    return item;
  }, (item, silence) => {
    say(item.querySelector(".until"), `until ${hourMinute(silence.untilNs)}, ${span(milliseconds(silence.untilNs) - hubNow())} left`);
    item.querySelector("button").disabled = stale || !mayAct() || Boolean(page.failing);
  });
}
