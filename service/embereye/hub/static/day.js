// One day: each zone's states, dark devices and clips, at a time that can be moved. The chart shows the day or a part of it.

import { ask, asked, onHub } from "./address.js";
import { clockTime, elapsed, fetchJson, get, hubNow, make, milliseconds, nanoseconds, page, problem, RETRY_MS, say, sinceAnswer, span, STALE_MS, STATES, stateWord, sync, toast, view, zoneName } from "./lib.js";
import { openAlarm } from "./alarm.js";
import { hubTime, t, timeOfDay } from "./messages.js";
import { said } from "./said.js";
import { drawThumbnails } from "./thumbnails.js";
import { followGestures } from "./zoom.js";

const HOUR = 3600000, DAY = 24 * HOUR;
const PICTURES = 4;          // pictures shown for one moment
const REFRESH_MS = 10000;    // between two requests for a day that is not over
const NARROWEST = 10000;     // the shortest visible part
const PLAY_MS = 200;         // between two moments while playing
const ORDER = ["alarm", "acknowledged", "pre-alarm", "restored", "fault"];

const day = { from: 0, until: 0, lanes: [], clips: [], at: 0, known: 0, loaded: 0, truncated: false, failing: false };
const chart = { from: 0, width: 26 * HOUR };  // the visible part; wider than the day: all of it
let shown = false, wanted = 0, player = 0;

const midnight = (ms) => new Date(ms).setHours(0, 0, 0, 0);
const spanOf = (item) => [milliseconds(item.fromNs), item.untilNs === "0" ? Math.min(day.until, hubNow()) : milliseconds(item.untilNs)];
const laneKey = (lane) => `${lane.namespace}/${lane.zone}`;

/** The beginning and the end of the visible part of the day. */
function bounds() {
  const width = Math.min(chart.width, day.until - day.from);
  const from = Math.min(Math.max(chart.from, day.from), day.until - width);
  return [from, from + width];
}

/** Make the visible part `width` wide, with the time `at` at the same `share` of it. */
function show(width, at = day.at, share = 0.5) {
  chart.width = Math.min(Math.max(width, NARROWEST), 26 * HOUR);
  chart.from = at - share * Math.min(chart.width, day.until - day.from);
  const hours = String(chart.width / HOUR), select = get("day-span");
  select.value = [...select.options].some((option) => option.value === hours) ? hours : "";
  draw();
}

function zoom(factor, share = 0.5) {
  const [from, until] = bounds();
  show((until - from) * factor, from + share * (until - from), share);
}

function pan(share) {
  const [from, until] = bounds();
  chart.from = from + share * (until - from);
  draw();
}

async function load(from) {
  if (midnight(from) !== day.from) day.known = 0;
  day.from = midnight(from);
  day.until = midnight(day.from + 1.5 * DAY);  // two days of the year do not have 24 hours
  const loaded = day.from, now = hubNow();
  const date = new Date(day.from);
  get("day-date").value = `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
  try {
    const body = await fetchJson(`/v1/timeline?from=${nanoseconds(day.from)}&until=${nanoseconds(day.until)}`, { patience: 15000 });
    if (loaded !== day.from) return;
    Object.assign(day, { lanes: body.zones, clips: body.clips, truncated: body.truncated, known: body.truncated ? 0 : now, loaded: elapsed(), failing: false });
    say(get("day-note"), day.truncated ? t("day.too-many")
      : day.lanes.length ? "" : t("day.nothing"));
  } catch (error) {
    if (loaded !== day.from) return;
    day.failing = true;
    say(get("day-note"), t("day.failed", { problem: problem(error) }));
  }
  move(Math.min(Math.max(day.at, day.from), day.until - 1000));
}

/** Move to a moment, which becomes visible. */
function move(at) {
  day.at = at;
  const [from, until] = bounds();
  if (at < from || at > until) chart.from = at - (until - from) / 2;
  draw();
}

function draw() {
  const [from, until] = bounds(), width = until - from;
  const place = (ms) => `${(100 * (ms - from)) / width}%`;
  get("day-chart").style.setProperty("--at", place(day.at));
  const slider = get("day-at"), second = (ms) => String(Math.floor((ms - day.from) / 1000));
  [slider.min, slider.max, slider.value] = [second(from), second(until - 1), second(day.at)];
  slider.setAttribute("aria-valuetext", clockTime(nanoseconds(day.at)));
  get("day-export").href = onHub(`/v1/timeline/export.zip?from=${nanoseconds(from)}&until=${nanoseconds(Math.min(until, from + DAY))}`);
  drawScale(from, until, place);
  sync(get("day-lanes"), day.lanes, (lane) => `${laneKey(lane)} ${zoneName(lane)}`, (lane) => {
    const item = make("li", "lane");
    item.append(make("span", "name", zoneName(lane)), make("div", "track"));
    return item;
  }, (item, lane) => drawTrack(item.querySelector(".track"), lane, from, until, place));
  drawThumbnails(day.clips, from, until, remember);
  drawMoment();
}

/** Move to a moment, and write it into the address. */
function remember(at) {
  move(at);
  ask({ at: String(Math.round(day.at)) });
}

function drawScale(from, until, place) {
  const steps = [5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200].map((seconds) => seconds * 1000);
  const most = Math.min(12, Math.max(2, get("day-scale").clientWidth / 70));  // labels that fit side by side
  const step = steps.find((candidate) => (until - from) / candidate <= most) || DAY;
  const ticks = [];
  for (let at = day.from + Math.ceil((from - day.from) / step) * step; at <= until; at += step) ticks.push(at);
  sync(get("day-scale"), ticks, String, () => make("li"), (item, at) => {
    item.style.left = `clamp(2rem, ${place(at)}, 100% - 2rem)`;  // fully visible at both ends
    say(item, timeOfDay(at, step < 60000 ? {} : { second: undefined }));
  });
}

function drawTrack(track, lane, from, until, place) {
  const parts = [
    ...lane.dark.map((dark) => ({ ...dark, look: "dark", text: t("focus.dark", { id: dark.device, reason: said(dark.reason) }) })),
    ...lane.states.map((state) => ({ ...state, look: STATES[state.state], text: `${stateWord(STATES[state.state])}: ${said(state.why)}` })),
    ...day.clips.filter((clip) => clip.namespace === lane.namespace && clip.zone === lane.zone)
      .map((clip) => ({ ...clip, look: "clip", text: t(clip.media === "MEDIA_STILL" ? "clip.still-of" : "clip.clip-of", { device: clip.device }) })),
  ].filter((part) => { const [start, end] = spanOf(part); return end >= from && start <= until; });
  sync(track, parts, (part) => `${part.look}/${part.sha256 || part.device || part.state}/${part.fromNs}`, (part) => {
    const bar = make("div", "part");
    bar.dataset.state = part.look;
    bar.title = part.text;
    return bar;
  }, (bar, part) => {
    const [start, end] = spanOf(part).map((ms) => Math.min(Math.max(ms, from), until));
    bar.style.left = place(start);
    bar.style.width = `${(100 * (end - start)) / (until - from)}%`;
  });
}

const covers = (item, at) => { const [from, until] = spanOf(item); return from <= at && at <= until; };

/** Show the chosen moment: states, dark devices, and pictures of cameras. */
function drawMoment() {
  const at = day.at, lines = [];
  for (const lane of day.lanes) {
    const state = lane.states.find((part) => covers(part, at));
    if (state) lines.push({ key: `${laneKey(lane)}/state`, look: STATES[state.state], title: zoneName(lane), text: said(state.why), alarm: state.alarm });
    for (const dark of lane.dark.filter((part) => covers(part, at))) {
      lines.push({ key: `${laneKey(lane)}/${dark.device}/${dark.fromNs}`, look: "fault", title: zoneName(lane), text: t("day.was-dark", { device: dark.device, reason: said(dark.reason) }), alarm: "" });
    }
  }
  lines.sort((a, b) => ORDER.indexOf(a.look) - ORDER.indexOf(b.look));
  say(get("day-time"), [timeOfDay(at), hubTime(at, page.timeZone)].filter(Boolean).join(" · "));
  get("day-quiet").hidden = lines.length > 0;
  say(get("day-quiet"), at > hubNow() ? t("day.to-come") : at > day.known ? t("day.unknown") : t("day.quiet"));
  sync(get("day-states"), lines, (line) => `${line.key}/${line.look}/${line.text}`, (line) => {
    const item = make("li");
    item.dataset.state = line.look;
    const head = make("p", "head", line.title);
    head.append(make("span", "", stateWord(line.look)));
    item.append(head, make("p", "why", line.text));
    if (line.alarm) {
      const more = make("button", "quiet", t("explain"));
      more.type = "button";
      more.setAttribute("aria-label", t("explain.in", { zone: line.title }));
      more.onclick = () => openAlarm(line.alarm);
      item.append(more);
    }
    return item;
  });
  drawPictures();
}

/** Show each camera's frame of the moment; one request at a time per camera, so that fast moves request no more. */
function drawPictures() {
  const at = day.at;
  const moving = day.clips.filter((clip) => clip.media !== "MEDIA_STILL" && covers(clip, at));
  const stills = day.clips.filter((clip) => clip.media === "MEDIA_STILL" && Math.abs(milliseconds(clip.fromNs) - at) < 2000);
  const clips = [...new Map([...stills, ...moving].map((clip) => [`${clip.fleet}/${clip.device}`, clip])).values()].slice(0, PICTURES);
  sync(get("day-pictures"), clips, (clip) => clip.sha256, (clip) => {
    const item = make("li", "view"), video = clip.media === "MEDIA_VIDEO";
    const screen = make(video ? "video" : "img", "screen");
    if (video) Object.assign(screen, { src: onHub(clip.url), muted: true, playsInline: true, preload: "auto" });
    const caption = make("p", "caption");
    caption.append(make("b", "", clip.device), make("span", "", zoneName(clip)));
    const play = make("button", "quiet", clip.media === "MEDIA_STILL" ? t("clip.show") : t("clip.play"));
    play.type = "button";
    play.onclick = () => view(clip.view, `${clip.device}, ${clockTime(clip.fromNs)}`);
    caption.append(play);
    item.append(screen, caption);
    return item;
  }, (item, clip) => {
    const screen = item.querySelector(".screen"), label = t("clip.at", { device: clip.device, time: clockTime(nanoseconds(at)) });
    if (clip.media === "MEDIA_VIDEO") {
      screen.setAttribute("aria-label", label);
      screen.currentTime = Math.max(0, (at - milliseconds(clip.fromNs)) / 1000);
      return;
    }
    screen.alt = label;
    const address = onHub(clip.media === "MEDIA_STILL" ? clip.url : `/v1/clips/${clip.sha256}/frame.jpg?at=${nanoseconds(at)}`);
    item.dataset.wanted = address;
    if (item.dataset.loading) return;
    const next = () => {
      delete item.dataset.loading;
      if (screen.getAttribute("src") !== item.dataset.wanted) { item.dataset.loading = "1"; screen.src = item.dataset.wanted; }
    };
    screen.onload = screen.onerror = next;
    next();
  });
}

/** The first whole second, in ms, in which something that began at a time shows. */
const secondOf = (ns) => Math.ceil(milliseconds(ns) / 1000) * 1000;

/** The times at which something started, in order. */
function edges() {
  const all = day.lanes.flatMap((lane) => [...lane.states, ...lane.dark]).concat(day.clips).map((part) => secondOf(part.fromNs));
  return [...new Set(all)].filter((ms) => ms >= day.from && ms < day.until).sort((a, b) => a - b);
}

function step(direction) {
  const all = edges();
  const edge = direction > 0 ? all.find((ms) => ms > day.at) : all.findLast((ms) => ms < day.at);
  if (edge !== undefined) remember(edge);
}

/** Move to the start of the next alarm, or of the one before, also on another day. */
async function jump(direction) {
  const times = day.lanes.flatMap((lane) => lane.states).filter((part) => STATES[part.state] === "alarm").map((part) => secondOf(part.fromNs)).filter((ms) => ms > day.from).sort((a, b) => a - b);
  let at = direction > 0 ? times.find((ms) => ms > day.at) : times.findLast((ms) => ms < day.at);
  if (at === undefined) {
    const query = direction > 0 ? `from=${nanoseconds(day.until)}&limit=1000` : `until=${nanoseconds(day.from)}&limit=1`;
    try {
      const { alarms } = await fetchJson(`/v1/alarms?of=alarm&${query}`);
      at = alarms.map((alarm) => secondOf(alarm.beganNs)).filter((ms) => (direction > 0 ? ms >= day.until : ms < day.from)).at(-1);
    } catch (error) { toast(problem(error)); return; }
    if (at === undefined) { toast(t(direction > 0 ? "day.no-later-alarm" : "day.no-earlier-alarm")); return; }
  }
  if (at >= day.from && at < day.until) { remember(at); return; }
  day.at = at;
  await load(at);
  show(chart.width, at);
  remember(at);
}

/** Play all cameras' clips together, until the end of the visible part. */
function play() {
  if (player) { clearInterval(player); player = 0; }
  else {
    let before = elapsed();
    player = setInterval(() => {
      const now = elapsed(), [, until] = bounds();
      const at = day.at + now - before;
      before = now;
      if (at >= Math.min(until, hubNow()) || get("page-day").hidden) play();
      else move(at);
    }, PLAY_MS);
  }
  say(get("day-play"), t(player ? "day.pause" : "day.play"));
}

export function showDay() {
  if (!page.answered) return;  // the present time comes from the hub
  const named = Number(asked().get("at"));
  if (named > 0) day.at = named;
  else if (!shown) day.at = hubNow();
  shown = true;
  load(day.at);
}

export function refreshDay() {
  if (!shown) return showDay();
  const period = day.failing && sinceAnswer() < STALE_MS ? RETRY_MS : REFRESH_MS;
  if ((day.failing || hubNow() < day.until) && elapsed() - Math.max(day.loaded, wanted) > period) {
    wanted = elapsed();
    load(day.from);
  }
}

export function setUpDay() {
  get("day-date").onchange = () => {
    const [year, month, date] = get("day-date").value.split("-").map(Number);
    if (year >= 1970) { day.at = new Date(year, month - 1, date, 12).getTime(); load(day.at); }
  };
  get("day-before").onclick = () => { day.at -= DAY; load(day.from - DAY / 2); };
  get("day-after").onclick = () => { day.at += DAY; load(day.until + DAY / 2); };
  get("day-today").onclick = () => { day.at = hubNow(); load(day.at); };
  get("day-span").onchange = () => show(Number(get("day-span").value) * HOUR);
  get("day-at").oninput = () => move(day.from + Number(get("day-at").value) * 1000);
  get("day-at").onchange = () => {
    const { value, min, max } = get("day-at");
    if (value === max) pan(0.5);
    else if (value === min) pan(-0.5);
    remember(day.at);
  };
  get("day-previous").onclick = () => step(-1);
  get("day-next").onclick = () => step(1);
  get("day-alarm-before").onclick = () => jump(-1);
  get("day-alarm-after").onclick = () => jump(1);
  get("day-play").onclick = play;
  get("day-chart").onkeydown = (event) => {
    if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else return;
    event.preventDefault();
  };
  new ResizeObserver(() => { if (day.loaded) draw(); }).observe(get("day-scale"));
  followGestures(get("day-chart"), {
    seek: (share) => { const [from, until] = bounds(); move(Math.min(from + share * (until - from), day.until - 1000)); },
    done: () => remember(day.at), zoom, pan,
  });
}
