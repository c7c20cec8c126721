// One device: its picture, its state with the reason and a remedy, its last hour and day, its alarms with their clips, and its ledger in words.

import { asked, pageName } from "./address.js";
import { areaName, bothTimes, button, clockTime, dateTime, describeEvent, devicePath, drawClips, elapsed, fetchJson, get, hubNow, make, mayAct, measured, milliseconds, page, problem, renew, say, sinceAnswer, span, STALE_MS, svg, sync, amount, zoneName } from "./lib.js";
import { endLive, liveAge, liveNote, liveReason, loadThermal, showLive, showThermal } from "./live.js";
import { openAlarm } from "./alarm.js";
import { drawJudged, placesOf } from "./judged.js";
import { drawAreas, drawMasks } from "./masks.js";
import { resetQuiet, setUpQuiet } from "./quiet.js";
import { endSilence, silence, silenceOf, updateSilenceButton } from "./silences.js";
import { figure, t } from "./messages.js";
import { said } from "./said.js";
import { testZone } from "./zonetest.js";

const REFRESH_MS = 1000;
const EVENTS_MS = 5000;
const EVENTS = 30;
const CLIPS_MS = 15000;
const ALARMS = 3, CLIPS = 12;  // latest ones whose clips are listed
const CHART = [300, 90];     // the drawing's width and height, in its own units
const OLD_MS = 5000;
const LIVE_MS = 1000;        // a younger picture is called live

const shown = { path: "", body: null, events: [], clips: [], at: -Infinity, eventsAt: -Infinity, clipsAt: -Infinity, turn: 0, failing: "", wanted: "", pictureNs: "0", coming: null, thermalNs: "" };

/** The address of a device's page. */
export const deviceAddress = (device) => `#device?${new URLSearchParams({ fleet: device.fleet, id: device.id })}`;

/** A link to a device's page. */
export function deviceLink(device, className = "") {
  const link = make("a", className, device.id);
  link.href = deviceAddress(device);
  return link;
}

const wanted = () => ({ fleet: asked().get("fleet") || "", id: asked().get("id") || "" });

// First matching line: what to do about a reason.
const REMEDIES = [
  [/cannot connect|connection refused|timed out|timeout|unreachable|no route|name or service/i, t("remedy.address")],
  [/never heard|no check-in yet/, t("remedy.never-heard")],
  [/silent for.*(401|403|unauthori[sz]ed|password|credentials)/i, t("remedy.credentials")],
  [/silent for|last check-in/, t("remedy.silent")],
  [/overload|frames wait|not analysed|last analysed/, t("remedy.overload")],
  [/no shard reports|works under assignment/, t("remedy.shard")],
  [/picture|see|blind|blur|dark scene|covered|moved/, t("remedy.picture")],
  [/not declared/, t("remedy.undeclared")],
];
const remedy = (reason) => (REMEDIES.find(([pattern]) => pattern.test(reason)) || ["", t("remedy.runbook")])[1];

async function load() {
  shown.at = elapsed();
  const { fleet, id } = wanted(), turn = ++shown.turn;
  const path = devicePath({ fleet, id });
  try {
    const body = await fetchJson(path);
    if (turn !== shown.turn) return;
    Object.assign(shown, { path, body, failing: "" });
    if (shown.eventsAt === -Infinity) loadEvents();
  } catch (error) { if (turn === shown.turn) shown.failing = problem(error); }
  draw();
}

async function loadEvents() {
  shown.eventsAt = elapsed();
  const { path } = shown, { id, namespace, zone } = shown.body.device;
  try {
    // The end of an alarm names no device: without the zone, the ends of all alarms would be listed.
    const { events } = await fetchJson(`/v1/history?${new URLSearchParams({ newest: EVENTS, device: id, zone: `${namespace}/${zone}` })}`);
    if (path === shown.path) shown.events = events.reverse();
  } catch { /* next time */ }
  draw();
}

/** Load the device's clips of its latest alarms. */
async function loadClips() {
  shown.clipsAt = elapsed();
  const { fleet, id } = wanted(), alarms = [...new Set(shown.events.map(({ alarm }) => alarm).filter(Boolean))].slice(0, ALARMS);
  try {
    const answers = await Promise.all(alarms.map((alarm) => fetchJson(`/v1/alarms/${encodeURIComponent(alarm)}/clips`)));
    if (id === wanted().id) shown.clips = answers.flatMap(({ clips }) => clips).filter((clip) => clip.fleet === fleet && clip.device === id).slice(0, CLIPS);
  } catch { /* next time */ }
  draw();
}

// ---- drawing

function drawState(device, stale) {
  const box = get("device-state");
  const state = stale ? "unknown" : device.covered ? (device.degraded ? "degraded" : "watched") : device.declared ? "dark" : "undeclared";
  box.dataset.state = state;
  say(box.children[0], { unknown: t("device.unknown"), watched: t("device.watched"), degraded: t("device.degraded"), dark: t("device.dark"), undeclared: t("device.undeclared") }[state]);
  say(box.children[1], said(state === "dark" || state === "undeclared" ? device.reason : state === "degraded" ? device.degraded : device.state));
  say(box.children[2], state === "dark" || state === "undeclared" ? remedy(device.reason) : "");
}

function drawPicture(device) {
  const hasPicture = device.pictureNs !== "0", canvas = get("device-thermal");
  canvas.hidden = hasPicture || device.thermalNs === "0";
  // A hub that started again has no picture yet, and the one from before would look current.
  if (!hasPicture) { get("device-picture").hidden = true; Object.assign(shown, { pictureNs: "0", shownNs: "" }); }
  const live = get("device-live");
  if (device.fleet.includes("/cameras/") && !judging()) showLive(live, device);  // what was judged belongs to the still
  else endLive(live);
  if (canvas.hidden || !device.declared) endLive(canvas);
  else showThermal(canvas, device);
  let age = Infinity;
  if (hasPicture) {
    if (shown.pictureNs !== device.pictureNs && liveAge(live) === Infinity && shown.coming?.complete !== false) {
      const at = shown.pictureNs = device.pictureNs, { path } = shown;
      get("device-picture").alt = t("picture.sees", { id: device.id });
      shown.coming = renew(get("device-picture"), `${path}/snapshot.jpg?at=${at}`, () => { if (path === shown.path) { get("device-picture").hidden = false; shown.shownNs = at; } });
    }
    age = Math.min(liveAge(live), shown.shownNs ? hubNow() - milliseconds(shown.shownNs) : Infinity);
  } else if (device.thermalNs !== "0") {
    age = Math.min(liveAge(canvas), hubNow() - milliseconds(device.thermalNs));
    if (shown.thermalNs !== device.thermalNs && liveAge(canvas) === Infinity) {
      shown.thermalNs = device.thermalNs;
      loadThermal(canvas, device).catch(() => { shown.thermalNs = ""; });
      canvas.setAttribute("aria-label", t("picture.thermal-of", { id: device.id }));
    }
  }
  say(get("device-none"), hasPicture || device.thermalNs !== "0" ? "" : t("device.no-picture"));
  const why = liveReason(canvas.hidden ? live : canvas);
  say(get("device-age"), Number.isFinite(age) ? (age < LIVE_MS && !why ? t("live") : t("picture.old", { span: span(age) })) : "");
  say(get("device-why"), why ? t("device.not-live", { why }) : liveNote(live));
  get("device-age").classList.toggle("bad", age > OLD_MS);
}

/** True if the page shows what the detectors see. */
const judging = () => get("device-judged").getAttribute("aria-pressed") === "true";

/** Draw what the detectors see: masked parts are filled, and each place has its score. */
function drawDetectors(device, judged) {
  const isCamera = device.fleet.includes("/cameras/") && device.pictureNs !== "0", shows = isCamera && judging();
  get("device-judged").hidden = !isCamera;
  get("device-judgement").hidden = !shows;
  get("device-regions").classList.toggle("judging", shows);
  if (shows) drawJudged(judged, span(hubNow() - milliseconds(shown.shownNs || device.pictureNs)), nameOf);
  return shows ? placesOf(judged) : [];
}

/** Draw the outlines of masks and measuring areas over the picture. */
function drawRegions(regions) {
  const drawing = get("device-regions"), { naturalWidth: width, naturalHeight: height } = get("device-picture");
  drawing.toggleAttribute("hidden", !regions.length || !width);
  drawing.setAttribute("viewBox", `0 0 ${width || 1} ${height || 1}`);
  sync(drawing, regions, ({ kind, name, x, y }) => [kind, name, x, y].join(), ({ kind, name, limit, x, y }) => {
    const group = svg("g"), outline = svg("polygon"), caption = svg("text"), unit = kind === "rise" ? "°C/min" : "°C";
    outline.setAttribute("points", x.map((left, corner) => `${left * width},${y[corner] * height}`).join(" "));
    caption.setAttribute("x", Math.min(...x) * width);
    caption.setAttribute("y", Math.min(...y) * height + height / 30);
    caption.setAttribute("font-size", height / 30);
    caption.textContent = kind === "mask" || kind === "privacy" ? t(`device.${kind}`) : limit === undefined ? name : `${name}${t("limit", { value: amount(limit, unit) })}`;
    if (Math.min(...x) > 0.6) { caption.setAttribute("x", Math.max(...x) * width); caption.setAttribute("text-anchor", "end"); }
    group.setAttribute("class", kind);
    group.append(outline, caption);
    return group;
  });
}

const NAMES = { "temperature.max": t("term.temperature-max"), "temperature.mean": t("term.temperature-mean"), fps: t("term.pictures"), "fps.target": t("term.pictures-wanted"), age: t("term.age"), motion: t("term.motion"), smoke: t("term.smoke"), gas: t("term.gas"), "view.familiar": t("term.view") };
const nameOf = (term) => areaName(term) || NAMES[term.name] || (term.name || t("term.value")).replaceAll(".", " ").replace(/^./, (letter) => letter.toUpperCase());

/** The points of a line chart, without gaps being bridged. */
function line(values, low, high) {
  let path = "", open = false;
  values.forEach((value, index) => {
    if (value === null) { open = false; return; }
    const x = (index / Math.max(1, values.length - 1)) * CHART[0], y = CHART[1] - ((value - low) / (high - low)) * CHART[1];
    path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!open) path += `h.5`;
    open = true;
  });
  return path;
}

function drawHour(body) {
  const span = get("device-span").value, series = body[span === "day" ? "day" : "measured"] || [];
  say(get("device-hour-none"), series.length ? "" : t("device.not-measured"));
  sync(get("device-hour"), series, (one) => `${one.name} ${one.unit}`, (one) => {
    const item = make("li", "hour"), figure = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    figure.setAttribute("viewBox", `0 0 ${CHART.join(" ")}`);
    figure.setAttribute("preserveAspectRatio", "none");
    figure.setAttribute("role", "img");
    figure.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
    item.append(make("p", "head", nameOf(one)), make("b", "now"), figure, make("p", "aside"));
    return item;
  }, (item, one) => {
    const latest = (body.device.latest || []).find((term) => term.name === one.name);
    const values = [...one.values, latest && latest.unit === one.unit ? Number(latest.value || 0) : null].filter(Number.isFinite);
    if (!values.length) return;
    const least = Math.min(...values), most = Math.max(...values), room = Math.max((most - least) * 0.1, Math.abs(most) * 0.02, 0.5);
    const [, now, figure, about] = item.children;
    figure.firstChild.setAttribute("d", line(one.values, least - room, most + room));
    const words = t("device.range", { least: amount(least, one.unit), most: amount(most, one.unit) });
    figure.setAttribute("aria-label", `${nameOf(one)}: ${words}`);
    say(now, latest ? measured(latest) : "");
    say(about, words);
  });
}

/** The ledger in plain words: every message is accounted for. */
function ledgerWords(ledger) {
  if (!Number((ledger || {}).offered || 0)) return [t("ledger.none")];
  const count = (number) => figure(Number(number || 0));
  const reasons = (found) => Object.entries(found || {}).map(([reason, number]) => `${count(number)} ${reason}`).join(", ");
  const words = [t("ledger.arrived", { offered: count(ledger.offered), more: Number(ledger.sinceNs || 0) ? t("ledger.since", { time: dateTime(ledger.sinceNs) }) : "" }), t("ledger.analysed", { analysed: count(ledger.analysed) })];
  if (Number(ledger.duplicate || 0)) words.push(t("ledger.duplicate", { duplicate: count(ledger.duplicate) }));
  if (ledger.shed) words.push(t("ledger.shed", { shed: reasons(ledger.shed) }));
  if (ledger.rejected) words.push(t("ledger.rejected", { rejected: reasons(ledger.rejected) }));
  if (Number(ledger.waiting || 0)) words.push(t("ledger.waiting", { waiting: count(ledger.waiting) }));
  return words;
}

/** The limits of this device's present signs, by quantity. */
function limitsOf(device) {
  const signs = ((zoneOf(device) || {}).contributions || []).filter((sign) => sign.device === device.id && sign.fleet === device.fleet);
  return new Map(signs.flatMap((sign) => (sign.why || []).filter((term) => term.threshold).map((term) => [term.name, measured(term, term.threshold)])));
}

function drawFacts(device) {
  const heard = Number(device.heardNs || 0), analysed = Number(device.analysedNs || 0), limits = limitsOf(device);
  const facts = [
    [t("device.zone"), zoneName(device) || "–"], [t("device.location"), device.location || "–"], [t("device.fleet"), device.fleet], [t("device.address"), device.source || "–"], [t("device.login"), shown.body.login || t("device.no-login")],
    [t("device.last-data"), heard ? t("ago", { span: span(hubNow() - milliseconds(device.heardNs)) }) : t("never")],
    [t("device.last-analysed"), analysed ? t("ago", { span: span(hubNow() - milliseconds(device.analysedNs)) }) : t("never")],
    [t("device.shard"), (device.shards || []).join(", ") || t("device.no-shard")],
    ...(device.latest || []).map((term) => [nameOf(term), `${measured(term)}${limits.has(term.name) ? t("limit", { value: limits.get(term.name) }) : ""}`]),
  ];
  sync(get("device-facts"), facts, ([name]) => name, ([name]) => {
    const item = make("div");
    item.append(make("dt", "", name), make("dd"));
    return item;
  }, (item, [, value]) => say(item.lastChild, value));
  const words = ledgerWords(device.ledger);
  sync(get("device-ledger"), words.map((text, index) => ({ text, index })), ({ index }) => String(index), () => make("li"), (item, { text }) => say(item, text));
}

function drawEvents() {
  say(get("device-events-none"), shown.events.length ? "" : t("device.no-event"));
  sync(get("device-events"), shown.events, (event) => event.cursor, (event) => {
    const item = make("li"), [look, word] = describeEvent(event), head = make("p", "head", zoneName(event));
    item.dataset.state = look;
    head.append(make("span", "", word));
    const time = make("time", "", clockTime(event.timeNs));
    time.dateTime = new Date(milliseconds(event.timeNs)).toISOString();
    time.title = bothTimes(event.timeNs);
    const why = make("p", "why", said(event.why));
    if (event.alarm) why.append(" ", button(t("explain"), () => openAlarm(event.alarm), t("explain.of", { zone: zoneName(event), time: dateTime(event.timeNs) })));
    item.append(time, head, why);
    return item;
  });
}

const zoneOf = (device) => page.zones.find((zone) => zone.namespace === device.namespace && zone.name === device.zone);

function drawTest(device, stale) {
  const zone = zoneOf(device), press = get("device-test");
  press.hidden = !zone;
  press.disabled = !mayAct() || stale;
  if (zone) say(press, t(zone.testing ? "test.end-of" : "test.of", { zone: zoneName(zone) }));
}

function draw() {
  if (pageName() !== "device") return;
  const { id } = wanted(), { body } = shown, known = body && shown.path === devicePath(wanted());
  say(get("device-title"), id || t("device.none"));
  say(get("device-note"), known && !shown.failing ? "" : shown.failing || "…");
  get("device-body").hidden = !known;
  if (!known) return;
  const { device } = body, stale = sinceAnswer() > STALE_MS;
  drawState(device, stale);
  drawPicture(device);
  drawRegions([...(body.regions || []), ...drawDetectors(device, body.judged || [])]);
  drawHour(body);
  drawFacts(device);
  drawEvents();
  say(get("device-clips-none"), shown.clips.length ? "" : t("device.no-clip"));
  drawClips(get("device-clips"), shown.clips);
  drawTest(device, stale);
  get("device-silence").hidden = !device.declared;
  get("device-masks").hidden = !device.declared || device.pictureNs === "0" || !device.fleet.includes("/cameras/");
  get("device-areas").hidden = !device.declared || device.thermalNs === "0";
  updateSilenceButton(get("device-silence"), stale, device.namespace, device.zone, device.id);
}

export function refreshDevice() {
  if (elapsed() - shown.at >= REFRESH_MS) load();
  if (shown.body && elapsed() - shown.eventsAt >= EVENTS_MS) loadEvents();
  if (shown.events.length && elapsed() - shown.clipsAt >= CLIPS_MS) loadClips();
  draw();
}

export function showDevice() {
  resetQuiet(wanted());
  if (shown.path !== devicePath(wanted())) {
    Object.assign(shown, { path: "", body: null, events: [], clips: [], pictureNs: "0", shownNs: "", thermalNs: "", coming: null, failing: "" });
    get("device-picture").replaceWith(Object.assign(make("img", "screen"), { id: "device-picture", alt: "", hidden: true }));
  }
  shown.at = shown.eventsAt = shown.clipsAt = -Infinity;
  refreshDevice();
}

export function setUpDevice() {
  setUpQuiet(nameOf);
  get("device-masks").onclick = () => drawMasks(shown.body.device, shown.body.regions);
  get("device-span").onchange = draw;
  get("device-judged").onclick = () => { get("device-judged").setAttribute("aria-pressed", String(!judging())); draw(); };
  get("device-test").onclick = () => testZone(zoneOf(shown.body.device));
  get("device-areas").onclick = () => drawAreas(shown.body.device);
  get("device-silence").onclick = () => {
    const { namespace, zone, id } = shown.body.device, existing = silenceOf(namespace, zone, id);
    return existing ? endSilence(existing) : silence(namespace, zone, id);
  };
  addEventListener("popstate", () => { if (pageName() === "device") showDevice(); });
}
