// Silences: who keeps notifications back, why and until when; told on every page while they last.

import { ask, fetchJson, get, hubNow, make, mayAct, milliseconds, page, postJson, problem, say, sendJson, span, sync, toast, button, zoneName } from "./lib.js";

const hourMinute = (ns) => new Date(milliseconds(ns)).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
let zones = null, gathered = [];
/** All of them, gathered once for each answer of the hub: every zone and device looks for its own. */
function all() {
  if (zones !== page.zones) gathered = (zones = page.zones).flatMap((zone) => zone.silences || []);
  return gathered;
}

/** The silence of a zone, or of a device in it. */
export const silenceOf = (namespace, zone, device = "") =>
  all().find((one) => one.namespace === namespace && one.zone === zone && (one.device || "") === device);

async function refresh() {
  try {
    const body = await fetchJson("/v1/zones");
    page.zones = body.zones;
  } catch { /* the age of the last answer says it */ }
  drawSilences();
}

/** Ask why and for how long, and keep notifications of a zone, or of a device in it, back. */
export async function silence(namespace, zone, device = "") {
  const path = `/v1/zones/${encodeURIComponent(namespace)}/${encodeURIComponent(zone)}/silences`, called = zoneName({ namespace, zone });
  await ask({
    title: `Silence ${device ? `${device} in ${called}` : `zone ${called}`}`, ok: "Silence", required: "Why (a reason)", hours: 1,
    text: "Webhooks are not sent its faults and pre-alarms, nor more of an alarm that is open now. A new alarm, a pre-alarm that becomes one and a first critical sign are told all the same. Everything is watched, recorded and shown as ever.",
    send: ({ who, note, hours }) => postJson(path, { who, reason: note, minutes: Math.round(60 * hours), device }),
  });
  await refresh();
}

/** End a silence before its time. */
export async function endSilence(one) {
  try { await sendJson("DELETE", `/v1/silences/${one.id}`, {}); } catch (error) { toast(problem(error)); }
  await refresh();
}

/** A button that silences, or ends the silence that there is; `look` it over whenever something may have changed. */
export function silenceButton(namespace, zone, device = "") {
  const made = button("Silence …", () => {
    const one = silenceOf(namespace, zone, device);
    return one ? endSilence(one) : silence(namespace, zone, device);
  });
  made.dataset.action = "silence";
  return made;
}

export function lookOver(made, stale, namespace, zone, device = "") {
  const one = silenceOf(namespace, zone, device), called = zoneName({ namespace, zone }), name = device ? `${device} in ${called}` : called;
  say(made, one ? "End silence" : "Silence …");
  made.setAttribute("aria-label", one ? `End silence of ${name}` : `Silence … ${name}`);
  made.disabled = stale || !mayAct() || Boolean(page.failing);
}

export function drawSilences(stale = false) {
  const silences = [...all()].sort((a, b) => milliseconds(a.untilNs) - milliseconds(b.untilNs));
  get("silenced").hidden = !silences.length;
  say(get("silenced-count"), `${silences.length}`);
  sync(get("silences"), silences, (one) => one.id, (one) => {
    const item = make("li");
    item.append(make("b", "", one.device ? `${one.device} · ${zoneName(one)}` : zoneName(one)), make("span", "until"), make("span", "why", `${one.reason} – ${one.who}`));
    item.append(button("End silence", () => endSilence(one), `End silence of ${one.device ? `${one.device} in ` : ""}${zoneName(one)}`));
    return item;
  }, (item, one) => {
    say(item.querySelector(".until"), `until ${hourMinute(one.untilNs)}, ${span(milliseconds(one.untilNs) - hubNow())} left`);
    item.querySelector("button").disabled = stale || !mayAct() || Boolean(page.failing);
  });
}
