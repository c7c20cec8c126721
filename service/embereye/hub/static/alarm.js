// One alarm: its signs, decisions and actions, in order. People can mark it as false.

import { ask, bothTimes, dateTime, drawClips, describeEvent, fetchJson, get, make, mayAct, milliseconds, page, postJson, problem, say, sendJson, signText, span, STATES, sync, toast, zoneName } from "./lib.js";
import { t, timeOfDay } from "./messages.js";
import { said } from "./said.js";

let current = "", shown = 0;

export async function openAlarm(id) {
  current = id;
  await refresh();
}

async function refresh() {
  const turn = ++shown;
  try {
    const alarm = await fetchJson(`/v1/alarms/${encodeURIComponent(current)}`);
    // A hub that has just started still reads its clips; the alarm does not wait for them.
    const { clips } = await fetchJson(`/v1/alarms/${encodeURIComponent(current)}/clips`).catch(() => ({ clips: [] }));
    if (turn !== shown) return;
    draw(alarm, clips);
    if (!get("alarm").open) get("alarm").showModal();
  } catch (error) { toast(problem(error)); }
}

function draw(alarm, clips) {
  const ended = alarm.endedNs !== "0";
  say(get("alarm-title"), t(STATES[alarm.worst] === "alarm" ? "alarm.title" : "alarm.title-pre-alarm", { zone: zoneName(alarm) }));
  say(get("alarm-when"), `${bothTimes(alarm.beganNs)}, ${ended ? t("alarm.for", { span: span(milliseconds(alarm.endedNs) - milliseconds(alarm.beganNs)) }) : t("alarm.open")} · ${alarm.alarm}`);
  const mark = alarm.falseAlarm;
  get("alarm-marked").hidden = !mark;
  if (mark) say(get("alarm-marked"), t("alarm.marked", { who: mark.who, time: dateTime(mark.timeNs), reason: mark.reason }));
  sync(get("alarm-events"), alarm.events, (event) => event.cursor, (event) => {
    const item = make("li");
    item.dataset.state = STATES[event.state] || "normal";
    const time = make("time", "", timeOfDay(milliseconds(event.timeNs), { fractionalSecondDigits: 3 }));
    time.dateTime = new Date(milliseconds(event.timeNs)).toISOString();
    item.append(time, make("p", "head", describeEvent(event)[1]), make("p", "why", said(event.why)));
    const signs = make("ul", "signs");
    for (const sign of event.contributions || []) signs.append(make("li", "", signText(sign)));
    item.append(signs);
    return item;
  });
  drawClips(get("alarm-clips"), clips);
  get("alarm-day").onclick = () => { get("alarm").close(); location.hash = `day?at=${Math.round(milliseconds(alarm.beganNs))}`; };
  const button = get("alarm-mark");
  button.disabled = !mayAct() || Boolean(page.failing);
  say(button, mark ? t("alarm.remove-mark") : t("alarm.mark"));
  button.onclick = () => (mark ? removeMark(alarm) : markFalse(alarm.alarm, zoneName(alarm))).then(refresh);
}

/** Ask for a reason, and mark the alarm as false. */
export async function markFalse(id, zone) {
  await ask({
    title: t("alarm.false-title", { zone }), ok: t("alarm.mark-ok"), required: t("alarm.reason"),
    text: t("alarm.false-text"),
    send: ({ who, note }) => postJson(`/v1/alarms/${encodeURIComponent(id)}/false`, { who, reason: note }),
  });
}

async function removeMark(alarm) {
  try {
    await sendJson("DELETE", `/v1/alarms/${encodeURIComponent(alarm.alarm)}/false`, {});
  } catch (error) { toast(problem(error)); }
}

export function setUpAlarm() {
  get("alarm-close").onclick = () => get("alarm").close();
}
