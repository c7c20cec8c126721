// Silences: who pauses notifications, why and until when. They are shown on every page while they last.

import { ask, fetchJson, get, hubNow, make, mayAct, milliseconds, page, postJson, problem, say, sendJson, span, sync, toast, button, zoneName } from "./lib.js";
import { t, timeOfDay } from "./messages.js";

const hourMinute = (ns) => timeOfDay(milliseconds(ns), { second: undefined });
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
    title: device ? t("silence.device", { device, zone: called }) : t("silence.zone", { zone: called }), ok: t("silence.ok"), required: t("silence.reason"), hours: 1,
    text: t("silence.text"),
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
  const made = button(t("silence.button"), () => {
    const existing = silenceOf(namespace, zone, device);
    return existing ? endSilence(existing) : silence(namespace, zone, device);
  });
  made.dataset.action = "silence";
  return made;
}

export function updateSilenceButton(element, stale, namespace, zone, device = "") {
  const existing = silenceOf(namespace, zone, device), called = zoneName({ namespace, zone }), name = device ? t("silence.device-in", { device, zone: called }) : called;
  say(element, existing ? t("silence.end") : t("silence.button"));
  element.setAttribute("aria-label", existing ? t("silence.end-of", { name }) : t("silence.of", { name }));
  element.disabled = stale || !mayAct() || Boolean(page.failing);
}

export function drawSilences(stale = false) {
  const silences = [...all()].sort((a, b) => milliseconds(a.untilNs) - milliseconds(b.untilNs));
  get("silenced").hidden = !silences.length;
  say(get("silenced-count"), `${silences.length}`);
  sync(get("silences"), silences, (silence) => silence.id, (silence) => {
    const item = make("li");
    item.append(make("b", "", silence.device ? `${silence.device} · ${zoneName(silence)}` : zoneName(silence)), make("span", "until"), make("span", "why", `${silence.reason} – ${silence.who}`));
    item.append(button(t("silence.end"), () => endSilence(silence), t("silence.end-of", { name: silence.device ? t("silence.device-in", { device: silence.device, zone: zoneName(silence) }) : zoneName(silence) })));
    return item;
  }, (item, silence) => {
    say(item.querySelector(".until"), t("silence.until", { time: hourMinute(silence.untilNs), span: span(milliseconds(silence.untilNs) - hubNow()) }));
    item.querySelector("button").disabled = stale || !mayAct() || Boolean(page.failing);
  });
}
