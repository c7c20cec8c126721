// One alarm: its signs, decisions and actions, in order. People can mark it as false.

import { ask, dateTime, drawClips, describeEvent, fetchJson, get, make, mayAct, milliseconds, page, postJson, problem, say, sendJson, signText, span, STATES, sync, toast, zoneName } from "./lib.js";

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
  say(get("alarm-title"), `${STATES[alarm.worst] === "alarm" ? "Alarm" : "Pre-alarm"} in ${zoneName(alarm)}`);
  say(get("alarm-when"), `${dateTime(alarm.beganNs)}, ${ended ? `for ${span(milliseconds(alarm.endedNs) - milliseconds(alarm.beganNs))}` : "open"} · ${alarm.alarm}`);
  const mark = alarm.falseAlarm;
  get("alarm-marked").hidden = !mark;
  if (mark) say(get("alarm-marked"), `Marked as false by ${mark.who} on ${dateTime(mark.timeNs)}: ${mark.reason}. Similar detections here raise a pre-alarm only, unless stronger, longer or confirmed by another sign.`);
  sync(get("alarm-events"), alarm.events, (event) => event.cursor, (event) => {
    const item = make("li");
    item.dataset.state = STATES[event.state] || "normal";
    const time = make("time", "", new Date(milliseconds(event.timeNs)).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 }));
    time.dateTime = new Date(milliseconds(event.timeNs)).toISOString();
    item.append(time, make("p", "head", describeEvent(event)[1]), make("p", "why", event.why));
    const signs = make("ul", "signs");
    for (const sign of event.contributions || []) signs.append(make("li", "", signText(sign)));
    item.append(signs);
    return item;
  });
  drawClips(get("alarm-clips"), clips);
  const button = get("alarm-mark");
  button.disabled = !mayAct() || Boolean(page.failing);
  say(button, mark ? "Remove the mark" : "Mark as false …");
  button.onclick = () => (mark ? removeMark(alarm) : markFalse(alarm.alarm, zoneName(alarm))).then(refresh);
}

/** Ask for a reason, and mark the alarm as false. */
export async function markFalse(id, zone) {
  await ask({
    title: `False alarm: ${zone}`, ok: "Mark as false", required: "What it was (a reason)",
    text: "The recording is retained. Similar detections here will raise a pre-alarm only, unless stronger, longer or confirmed by another sign.",
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
