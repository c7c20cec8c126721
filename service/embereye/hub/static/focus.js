// The alarm in focus: its newest picture, one sentence that keeps up, and its buttons, which never move.

import {
  ask, clockTime, deviceKey, devicePath, drawClips, elapsed, fetchJson, get, hubNow, kindWord, load, make, mayAct, milliseconds, newestFirst, page, postJson, problem, rememberedWho, renew, say, severity, signText, span, stateOf, stateWord, svg, sync, toast, zoneKey,
  zoneName,
} from "./lib.js";
import { endLive, liveAge, livePause, loadThermal, showLive, showThermal } from "./live.js";
import { markFalse, openAlarm } from "./alarm.js";
import { deviceAddress } from "./device.js";
import { endSilence, silence, silenceOf, updateSilenceButton } from "./silences.js";
import { figure, locale, t } from "./messages.js";
import { said } from "./said.js";

const DEVICES_MS = 1000;     // between two requests for the devices of the zone
const STEADY_MS = 400;      // a press sooner after a change of the layout may be meant for something else
const SIGNS = 3;             // signs shown before "more"
const TREND_MS = 20000;      // over which a temperature is called growing or falling
const TREND_KELVIN = 3;      // smallest change that is called so, or …
const TREND_SHARE = 0.04;    // … this share of the temperature
const OLD_MS = 5000;         // an older picture is marked as old
const LIVE_MS = 1000;        // a younger picture is called live
const MOST = 200;            // devices of the zone that are considered

const focus = { key: "", chosen: false, devices: [], of: "", asked: -Infinity, coming: false, place: "", movedAt: -Infinity, trend: [], all: false, camera: "", thermal: "" };

const keyOf = (zone) => `${zone.alarm} ${zoneKey(zone)}`;
const isActive = (sign) => sign.level !== "LEVEL_CLEAR";

/** The open alarms: unacknowledged ones first, then by level and time. */
export const openAlarms = () => page.zones.filter((zone) => zone.alarm).sort((a, b) => severity(b) - severity(a) || newestFirst(a, b));

/** The zone whose alarm is in focus; undefined if no alarm is open. */
export const focused = () => page.zones.find((zone) => zone.alarm && keyOf(zone) === focus.key);

/** The focus remains until its alarm is acknowledged or over: a new alarm must not take the place of another under a hand. */
function choose(open) {
  const current = open.find((zone) => keyOf(zone) === focus.key), first = open[0];
  if (current && (focus.chosen || severity(current) >= severity(first))) return;
  turnTo(first);
}

function turnTo(zone) {
  Object.assign(focus, { key: zone ? keyOf(zone) : "", chosen: false, devices: [], of: "", asked: -Infinity, trend: [], all: false, thermal: "" });
  blank("");
}

/** Turn to the open alarm of `zone`, as a person chose. */
export function focusOn(zone) {
  turnTo(zone);
  focus.chosen = true;
  drawFocus(false);
}

/** Remove the picture, so that the one of another camera is never taken for that of `camera`. */
function blank(camera) {
  get("focus-screen").replaceWith(Object.assign(make("img", "screen"), { id: "focus-screen", alt: "", hidden: true }));
  get("focus-boxes").replaceChildren();
  Object.assign(focus, { camera, shownAt: "0", wanted: "0", loading: null });
}

// ---- presses

/** Note that the buttons moved, or that they are now about another alarm. */
function noteLayout() {
  const { left, top } = get("focus-actions").getBoundingClientRect();
  const place = `${focus.key} ${Math.round(left + scrollX)} ${Math.round(top + scrollY)}`;
  if (place === focus.place) return;
  focus.place = place;
  focus.movedAt = elapsed();
  get("focus").classList.add("moving");
  setTimeout(() => { if (elapsed() - focus.movedAt >= STEADY_MS - 20) get("focus").classList.remove("moving"); }, STEADY_MS);
}

/** Run `action` with the zone in focus, unless the buttons have just moved. */
function press(action) {
  const zone = focused();
  if (!zone) return undefined;
  if (elapsed() - focus.movedAt < STEADY_MS) return toast(t("focus.moved"));
  return action(zone);
}

/** Send `action` for `zone`, after a dialog if `dialog` says what to ask. */
async function send(zone, action, dialog) {
  const path = `/v1/zones/${encodeURIComponent(zone.namespace)}/${encodeURIComponent(zone.name)}/${action}`;
  const post = ({ who, note }) => postJson(path, { who, note });
  try {
    if (!dialog) await post({ who: rememberedWho(), note: "" });
    else if (!await ask({ ...dialog, send: post })) return;
    if (action === "acknowledge") focus.chosen = false;
    await focus.reload();
  } catch (error) { toast(problem(error)); }
}

const ACTIONS = {
  acknowledge: (zone) => send(zone, "acknowledge"),
  false: (zone) => markFalse(zone.alarm, zoneName(zone)).then(() => focus.reload()).catch(() => {}),
  escalate: (zone) => send(zone, "escalate", {
    title: t("escalate.title", { zone: zoneName(zone) }), ok: t("escalate.ok"),
    text: t("escalate.text"),
  }),
  reset: (zone) => send(zone, "reset", {
    title: t("reset.title", { zone: zoneName(zone) }), ok: t("reset.ok"), text: t("reset.text"),
  }),
  explain: (zone) => openAlarm(zone.alarm),
  silence: (zone) => {
    const existing = silenceOf(zone.namespace, zone.name);
    return existing ? endSilence(existing) : silence(zone.namespace, zone.name);
  },
};

// ---- the sentence

const ofZone = (zone) => focus.devices.filter((device) => device.namespace === zone.namespace && device.zone === zone.name);
const term = (device, name) => (device.latest || []).find((candidate) => candidate.name === name);

/** The highest temperature of the sensors that see a sign of heat, at present if `devices` say so; undefined if none is known. */
function hottest(signs, devices) {
  const values = [];
  for (const sign of signs.filter((candidate) => candidate.kind === "KIND_HEAT" && !candidate.relative)) {
    const device = devices.find((candidate) => candidate.id === sign.device && candidate.fleet === sign.fleet);
    const isHighest = ({ name }) => name === "temperature.max" || /^area\..*\.highest$/.test(name);
    const present = (device?.latest || []).filter(isHighest), then = (sign.why || []).filter(({ unit }) => unit === "°C").slice(0, 1);
    // The device's latest values may be from before the sign.
    const isPresent = present.length && (!then.length || milliseconds(device.analysedNs) >= milliseconds(sign.untilNs));
    const value = Math.max(...(isPresent ? present : then).map((candidate) => Number(candidate.value)));
    if (Number.isFinite(value)) values.push(value);
  }
  return values.length ? Math.max(...values) : undefined;
}

/** "growing" or "falling" by the temperatures of the last seconds, or by what the signs say themselves. */
function trend(value, signs) {
  const now = elapsed();
  focus.trend = focus.trend.filter(({ at }) => now - at < TREND_MS);
  if (value !== undefined) focus.trend.push({ at: now, value });
  const first = focus.trend[0];
  const change = first && value !== undefined && now - first.at > 2000 ? value - first.value : 0;
  const least = Math.max(TREND_KELVIN, TREND_SHARE * (value || 0));
  if (change > least) return t("focus.growing");
  if (signs.some((sign) => (sign.why || []).some((candidate) => candidate.name === "smoke.growing" && candidate.value))) return t("focus.growing");
  return change < -least ? t("focus.falling") : "";
}

function kindWords(zone, signs, heat) {
  const words = [];
  for (const kind of ["KIND_FLAME", "KIND_HEAT", "KIND_SMOKE", "KIND_GAS"]) {
    const seen = signs.filter((sign) => sign.kind === kind);
    if (!seen.length) continue;
    if (kind === "KIND_HEAT" && heat !== undefined) words.push(`${figure(heat, heat < 100 ? 1 : 0)} °C`);
    else if (kind === "KIND_GAS") {
      const over = (seen[0].why || []).find((candidate) => candidate.unit === "ppm");
      words.push(over ? t("focus.gas", { value: Math.round(over.value) }) : kindWord(kind));
    } else words.push(kindWord(kind));
  }
  const joined = new Intl.ListFormat(locale).format(words);
  return joined && joined[0].toLocaleUpperCase(locale) + joined.slice(1);
}

const began = (zone) => {
  const times = (zone.contributions || []).map((sign) => milliseconds(sign.sinceNs)).filter(Boolean);
  return times.length ? Math.min(...times) : milliseconds(zone.sinceNs);
};

/** One plain sentence about `zone` as it is now; `inFocus`: also by the latest values of its devices. */
export function sentence(zone, stale, inFocus = false) {
  const signs = (zone.contributions || []).filter(isActive), heat = hottest(signs, inFocus ? focus.devices : []), since = began(zone);
  const time = t("focus.since", { time: clockTime(since * 1e6), span: span(Math.max(0, hubNow() - since)) });
  const words = kindWords(zone, signs, heat), change = inFocus ? trend(heat, signs) : "";
  const lost = stale ? t("focus.last-known") : "";
  if (!words) return t("focus.no-sign", { lost, zone: zoneName(zone), time });
  return t("focus.sentence", { lost, words, zone: zoneName(zone), more: change ? `, ${change}` : "", time });
}

// ---- pictures

async function loadDevices(zone) {
  if (focus.coming || elapsed() - focus.asked < DEVICES_MS) return;
  focus.coming = true;
  focus.asked = elapsed();
  const key = focus.key;
  try {
    const query = new URLSearchParams({ order: "urgent", zone: `${zone.namespace}/${zone.name}`, limit: MOST });
    const { devices } = await fetchJson(`/v1/devices?${query}`);
    if (key === focus.key) Object.assign(focus, { devices, of: key });
  } catch { /* the age of the picture shows it */ }
  focus.coming = false;
}

const isCamera = (device) => device.fleet.includes("/cameras/");
const isOf = (device) => (sign) => sign.device === device.id && sign.fleet === device.fleet;
const seesIt = (signs, device) => signs.some(isOf(device));

/** The device of `candidates` to show: one that sees the fire now, then one that saw it, then any that is watched. */
function pick(zone, candidates) {
  const signs = zone.contributions || [], active = signs.filter(isActive);
  const rank = (device) => 4 * seesIt(active, device) + 2 * seesIt(signs, device) + device.covered;
  return [...candidates].sort((a, b) => rank(b) - rank(a))[0];
}

/** Say no longer that the picture is loading: it is there. */
function endLoading() {
  if (get("focus-none").textContent === t("focus.loading")) say(get("focus-none"), "");
}

/** Draw a box around each place where `device` sees a sign now, over a picture of `width` and `height`. */
function drawBoxes(zone, device, [width, height]) {
  const boxes = get("focus-boxes"), regions = width ? (zone.contributions || []).filter((sign) => isActive(sign) && sign.region && isOf(device)(sign)) : [];
  boxes.setAttribute("viewBox", `0 0 ${width || 1} ${height || 1}`);
  sync(boxes, regions, ({ kind }) => kind, () => svg("rect"), (box, { region: { x = 0, y = 0, width: wide = 0, height: high = 0 } }) => {
    for (const [name, value] of Object.entries({ x: x * width, y: y * height, width: wide * width, height: high * height })) box.setAttribute(name, value);
  });
}

function drawCamera(zone, device) {
  const key = deviceKey(device), at = device.pictureNs;
  if (focus.camera !== key) blank(key);
  const screen = get("focus-screen");
  screen.alt = t("focus.sees-now", { id: device.id });
  if (at !== "0" && focus.wanted !== at && liveAge(get("focus-live")) === Infinity && focus.loading?.complete !== false) {
    focus.wanted = at;
    // Of another camera by then: `screen` has left the page, and the new picture with it.
    focus.loading = renew(screen, `${devicePath(device)}/snapshot.jpg?at=${at}`, () => {
      if (focus.camera !== key) return;
      focus.shownAt = at;
      endLoading();
    });
  }
  const live = get("focus-live");
  showLive(live, device, endLoading);
  drawBoxes(zone, device, liveAge(live) === Infinity ? [get("focus-screen").naturalWidth, get("focus-screen").naturalHeight] : [live.width, live.height]);
  return Math.min(liveAge(live), focus.shownAt === "0" ? Infinity : hubNow() - milliseconds(focus.shownAt));
}

function drawThermal(canvas, device) {
  const at = `${deviceKey(device)} ${device.thermalNs}`;
  showThermal(canvas, device);
  if (focus.thermal !== at && !focus.painting && liveAge(canvas) === Infinity) {
    focus.painting = true;
    loadThermal(canvas, device).then(() => { focus.thermal = at; }, () => {}).finally(() => { focus.painting = false; });
  }
  canvas.setAttribute("aria-label", t("picture.thermal-of", { id: device.id }));
  return Math.min(liveAge(canvas), hubNow() - milliseconds(device.thermalNs));
}

function caption(place, device, age, paused = "") {
  const [name, about, old] = place.children, link = name.firstChild;
  say(link, device ? device.id : "");
  if (device) link.href = deviceAddress(device);
  else link.removeAttribute("href");
  say(about, device ? [paused, device.location].filter(Boolean).join(" · ") : "");
  say(old, device && Number.isFinite(age) ? (age < LIVE_MS && !paused ? t("live") : t("picture.old", { span: span(age) })) : "");
  old.classList.toggle("bad", age > OLD_MS);
}

function drawPictures(zone) {
  const known = focus.of === focus.key, devices = ofZone(zone);
  const camera = pick(zone, devices.filter((device) => isCamera(device) && (device.pictureNs !== "0" || !device.covered)));
  const sensor = pick(zone, devices.filter((device) => device.thermal && !isCamera(device)));
  const stage = get("focus-stage"), heat = get("focus-heat"), canvas = get("focus-thermal");
  const dark = camera && !camera.covered && camera.declared;
  stage.classList.toggle("unwatched", Boolean(dark));
  // Without a camera, the thermal picture is the large one. The boxes stay the same.
  heat.hidden = Boolean(camera) || !sensor;
  canvas.hidden = !camera || !sensor;
  if (!camera) { get("focus-screen").hidden = true; get("focus-boxes").replaceChildren(); endLive(get("focus-live")); }
  for (const unused of [heat, canvas]) if (unused.hidden) endLive(unused);
  const age = sensor ? drawThermal(camera ? canvas : heat, sensor) : Infinity;
  if (camera) caption(get("focus-camera"), camera, drawCamera(zone, camera), livePause(get("focus-live")));
  else caption(get("focus-camera"), sensor, age);
  if (camera && sensor) caption(get("focus-sensor"), sensor, age);
  else caption(get("focus-sensor"));
  say(get("focus-none"), !known ? t("loading") : dark ? t("focus.dark", { id: camera.id, reason: said(camera.reason) })
    : camera && focus.shownAt === "0" && liveAge(get("focus-live")) === Infinity ? t("focus.loading") : camera || sensor ? "" : t("focus.no-pictures"));
  say(get("focus-side-none"), !known || !camera === !sensor ? "" : camera ? t("focus.no-thermal") : t("focus.no-camera"));
}

// ---- the card

function drawSigns(card, zone) {
  const rank = (sign) => (isActive(sign) ? 1e15 : 0) + milliseconds(sign.untilNs);
  const signs = (zone.contributions || []).map((sign) => ({ ...sign, key: `${sign.fleet}/${sign.device}/${sign.kind}` })).sort((a, b) => rank(b) - rank(a));
  sync(card.querySelector(".signs"), focus.all ? signs : signs.slice(0, SIGNS), (sign) => sign.key, () => {
    const line = make("li");
    line.append(make("span", "what"), make("span", "when"));
    return line;
  }, (line, sign) => {
    line.classList.toggle("over", !isActive(sign));
    say(line.firstChild, signText(sign));
    say(line.lastChild, t(isActive(sign) ? "focus.seen" : "focus.ended", { span: span(hubNow() - milliseconds(sign.untilNs)) }));
  });
  const more = get("focus-more");
  more.hidden = signs.length <= SIGNS;
  more.setAttribute("aria-expanded", String(focus.all));
  say(more, focus.all ? t("focus.fewer") : t("focus.more", { number: signs.length - SIGNS }));
}

/** Draw the pictures that devices sent with their signs; one that failed is loaded again after an outage. */
function drawSent(list, pictures) {
  sync(list, pictures, ({ url }) => url, ({ device, url }) => {
    const picture = make("img");
    picture.alt = t("focus.saw", { device });
    picture.onerror = () => { picture.hidden = true; };
    load(picture, url);
    return picture;
  }, (picture, { url }) => { if (!picture.hasAttribute("src")) load(picture, url); });
}

function drawButtons(card, zone, stale) {
  const state = stateOf(zone), may = !stale && mayAct() && !page.failing, name = zoneName(zone);
  const labels = {
    acknowledge: t("acknowledge.label", { name }), reset: t("reset.label", { name }), escalate: t("escalate.label", { name }),
    false: t("false.label", { name }), explain: t("explain.in", { zone: name }),
  };
  const allowed = { acknowledge: state === "alarm", reset: ["acknowledged", "restored"].includes(state), escalate: true, false: !zone.falseAlarm, explain: true };
  for (const element of card.querySelectorAll("button[data-action]:not([data-action=silence])")) {
    const { action } = element.dataset;
    element.setAttribute("aria-label", labels[action]);
    element.disabled = !allowed[action] || (action !== "explain" && !may);
  }
  say(card.querySelector("[data-action=acknowledge]"), ["acknowledged", "restored"].includes(state) ? t("acknowledge.done") : t("acknowledge"));
  updateSilenceButton(card.querySelector("[data-action=silence]"), stale, zone.namespace, zone.name);
}

/** Draw the list of open alarms, and the one in focus. */
export function drawFocus(stale) {
  const open = openAlarms(), card = get("focus");
  choose(open);
  say(get("alarms-count"), open.length ? `${open.length}` : "");
  get("no-alarms").hidden = open.length > 0;
  say(get("no-alarms"), stale ? t("alarms.unknown") : t("alarms.none"));
  card.hidden = !open.length;
  drawQueue(open);
  if (!open.length) return;
  const zone = focused(), state = stateOf(zone), mark = zone.falseAlarm;
  card.dataset.state = state;
  say(get("focus-name"), zoneName(zone));
  say(get("focus-state"), stateWord(state));
  say(get("focus-sentence"), sentence(zone, stale, true));
  say(get("focus-why"), zone.why ? t("focus.began", { why: said(zone.why) }) : "");
  get("focus-marked").hidden = !mark;
  if (mark) say(get("focus-marked"), t("focus.marked", { who: mark.who, reason: mark.reason }));
  drawPictures(zone);
  drawSigns(card, zone);
  const { clips, pictures } = page.clips.get(zone.alarm) || { clips: [], pictures: [] };
  drawSent(card.querySelector(".pictures"), pictures);
  drawClips(card.querySelector(".clips"), clips);
  drawButtons(card, zone, stale);
  noteLayout();
  loadDevices(zone);
}

function drawQueue(open) {
  sync(get("alarm-list"), open, (zone) => `${zone.alarm} ${zoneName(zone)}`, (zone) => {
    const item = make("li", "queued"), name = make("h3", "name"), select = make("button", "plain", zoneName(zone));
    select.type = "button";
    select.onclick = () => {
      const wanted = page.zones.find((candidate) => zoneKey(candidate) === zoneKey(zone) && candidate.alarm);
      if (wanted) focusOn(wanted);
    };
    name.append(select);
    item.append(name, make("span", "state"), make("span", "when"));
    return item;
  }, (item, zone) => {
    item.dataset.state = stateOf(zone);
    const current = keyOf(zone) === focus.key;
    item.classList.toggle("current", current);
    item.querySelector("button").setAttribute("aria-pressed", String(current));
    say(item.querySelector(".state"), stateWord(stateOf(zone)));
    say(item.querySelector(".when"), clockTime(zone.sinceNs));
  });
}

/** `reload` loads the zones and draws them. */
export function setUpFocus(reload) {
  focus.reload = reload;
  for (const element of get("focus").querySelectorAll("button[data-action]")) element.onclick = () => press(ACTIONS[element.dataset.action]);
  get("focus-more").onclick = () => { focus.all = !focus.all; drawFocus(false); };
  // A change that moves the buttons also changes the size of something above them.
  new ResizeObserver(() => { if (!get("focus").hidden) noteLayout(); }).observe(get("main"));
}
