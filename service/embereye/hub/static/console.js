// The console shows people the hub's state. All text from the hub enters the page as text, never as markup.

import {
  amount, ask, button, bothTimes, clockTime, describeEvent, deviceKey, devicePath, elapsed, fetchJson, followFocus, get, hubNow, make, mayAct, milliseconds, newestFirst, page, paint, postJson, problem, renew, restoreFocus, say,
  severity, SEVERITY, showInDialogs, sinceAnswer, span, STALE_MS, stateOf, stateWord, sync, toast, underState, wait, zoneKey, zoneName,
} from "./lib.js";
import { setUpAlarm } from "./alarm.js";
import { refreshDay, setUpDay, showDay } from "./day.js";
import { onHub, pageName } from "./address.js";
import { deviceAddress, deviceLink, refreshDevice, setUpDevice, showDevice } from "./device.js";
import { devicesAddress, refreshDevices, setUpDevices, showDevices } from "./devices.js";
import { refreshFigures, setUpFigures, showFigures } from "./figures.js";
import { drawFocus, focused, focusOn, sentence, setUpFocus } from "./focus.js";
import { refreshFleets, setUpFleets, showFleets } from "./fleets.js";
import { refreshHistory, setUpHistory, showHistory } from "./history.js";
import { adjustOverlay, describeOverlay, drawOverlay, refreshOverlays, setUpOverlay } from "./overlay.js";
import { setUpKeys } from "./keys.js";
import { setUpMasks } from "./masks.js";
import { endLive, liveAge, livePause, refreshLive, showLive } from "./live.js";
import { refreshPlan, setUpPlan, showPlan } from "./plan.js";
import { refreshWall, setUpWall } from "./wall.js";
import { drawSilences, silenceButton, updateSilenceButton } from "./silences.js";
import { figure, hubTime, locale, offerLanguages, t, timeOfDay } from "./messages.js";
import { said } from "./said.js";
import { testZone } from "./zonetest.js";

const ZONES_MS = 1000;       // between two requests for the zones
const VIEWS_MS = 2000;
const LIVE_MS = 1000;        // a younger picture is called live
const OLD_MS = 5000;         // an older one is marked as old
const DARK_MS = 2000;
const STARTING_MS = 60000;   // in which a device that was never heard is no fault
const EVENTS = 100;          // events shown
const VIEWS = 12;
const DARK = 20;             // dark devices listed by name
const CLIPS_MS = 4000;       // between two requests for the clips of the alarm in focus
const SOON_MS = 200;         // between two requests for the zones after events: many events come together
const DRAW_MS = 50;          // from an event to its drawing, together with later events

page.views = { devices: [], total: 0 };
page.dark = [];

// ---- requests to the hub

async function follow(period, request) {
  for (;;) {
    const started = performance.now();
    try { await request(); } catch { /* the page shows the age of the last answer */ }
    draw();
    await wait(Math.max(100, period - (performance.now() - started)));
  }
}

let asked = 0, answered = 0, listed = 0;  // requests for the zones, the newest answered one, and the cursor of its answer
async function loadZones() {
  const turn = ++asked, body = await fetchJson("/v1/zones"), latest = Number(body.cursor);
  if (turn < answered) return;
  answered = turn;
  page.zones = body.zones;
  page.declared = body.declared;
  page.covered = body.covered;
  page.failing = body.failing;
  page.databaseLoss = body.databaseLoss;
  page.clipsFailing = body.clipsFailing;
  page.busFailing = body.busFailing;
  page.openFleets = body.openFleets || [];
  page.timeZone = body.timeZone || "";
  page.answered = { at: Date.now(), elapsed: elapsed() };
  page.clockOffset = milliseconds(body.timeNs) - Date.now();
  // A hub that lost its history starts counting again. A list that is older than an event is normal: it is shared by many clients.
  if (page.cursor !== null && latest < listed) { page.cursor = latest; page.events = []; }
  listed = latest;
  if (page.cursor === null || latest <= page.cursor) page.behind = null;
  else page.behind ??= elapsed();
}

let reloading = false, reloadDue = false;
/** Load the zones now, and once more if something happens meanwhile. */
async function reloadZones() {
  reloadDue = true;
  if (reloading) return;
  reloading = true;
  while (reloadDue) {
    reloadDue = false;
    try { await loadZones(); draw(); } catch { /* the page shows the age of the last answer */ }
    await wait(SOON_MS);
  }
  reloading = false;
}

let clipsDue = 0;            // when the next request for the clips is due
/** Load the pictures and recordings of the alarm in focus: recordings arrive some seconds after the sign, by way of the shard's disk. */
async function followClips() {
  for (;; await wait(SOON_MS)) {
    if (elapsed() < clipsDue) continue;
    clipsDue = elapsed() + CLIPS_MS;
    const open = page.zones.map((zone) => zone.alarm).filter(Boolean), { alarm } = focused() || {};
    for (const known of page.clips.keys()) if (!open.includes(known)) page.clips.delete(known);
    if (alarm && pageName() === "now") {
      if (!page.clips.has(alarm)) page.clips.set(alarm, { clips: [], pictures: [] });
      try { page.clips.set(alarm, await fetchJson(`/v1/alarms/${encodeURIComponent(alarm)}/clips`)); } catch { /* next time */ }
      drawSoon();
    }
  }
}

function addEvent(event) {
  page.cursor = Number(event.cursor);
  page.events.unshift(event);
  page.events.length = Math.min(page.events.length, EVENTS);
}

async function followEvents() {
  for (;;) {
    while (page.cursor === null) {
      try {
        const body = await fetchJson(`/v1/history?newest=${EVENTS}`);
        page.events = [];
        body.events.forEach(addEvent);
        page.cursor = Number(body.latest);
      } catch { await wait(1000); }
    }
    // A connection that the network dropped stays open without data. The zones' cursor reveals events that it did not bring.
    // The cursor also reveals events that the hub could not store, or that a restored hub never had.
    await new Promise((done) => {
      const watch = setInterval(() => {
        if (page.behind !== null && elapsed() - page.behind > STALE_MS) { page.cursor = null; end(); }
      }, 500);
      const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${onHub("/v1/alarms/ws")}?cursor=${page.cursor}`);
      let opened = false;
      socket.onopen = () => { opened = true; };
      socket.onmessage = (message) => {
        const event = JSON.parse(message.data);
        addEvent(event);
        if (event.alarm === focused()?.alarm) clipsDue = 0;
        page.behind = null;
        reloadZones();
        drawSoon();
      };
      const end = () => {
        if (!opened && page.behind !== null) page.cursor = null;  // a proxy that passes no WebSockets: read the list again
        clearInterval(watch);
        page.behind = null;
        socket.onmessage = socket.onclose = null;
        socket.close();
        done();
      };
      socket.onclose = end;
    });
    await wait(500 + Math.random() * 1000);
  }
}

// ---- actions

async function test(zone) {
  if (await testZone(zone)) await loadZones();
  draw();
}

// ---- drawing

let drawing = 0;
function drawSoon() {
  drawing ||= setTimeout(draw, DRAW_MS);
}

function draw() {
  clearTimeout(drawing);
  drawing = 0;
  const stale = sinceAnswer() > STALE_MS, isBack = !stale && document.body.classList.contains("stale");
  document.body.classList.toggle("stale", stale);
  // Request pictures again that failed while the hub was unreachable.
  for (const picture of isBack ? document.querySelectorAll(".pictures img[hidden]") : []) { picture.hidden = false; picture.removeAttribute("src"); }
  drawBanner(stale);
  drawVerdict(stale);
  drawSilences(stale);
  drawCoverage(stale);
  if (pageName() === "now") {
    drawFocus(stale);
    if (focused() && !page.clips.has(focused().alarm)) clipsDue = 0;
    drawZones(stale);
    drawEvents();
    drawViews();
  }
  say(get("me"), page.me ? `${page.me.name} · ${t(`role.${page.me.role}`)}` : "");
  const open = page.openFleets || [];
  get("open-access").hidden = !open.length;
  say(get("open-access"), open.length ? t("banner.open-access", { list: open.slice(0, 3).join(", "), more: open.length > 3 ? t("and-more", { number: open.length - 3 }) : "" }) : "");
  get("me").title = page.me?.zones ? t("me.zones", { zones: page.me.zones.join(", ") }) : "";
  // These pages are about all zones.
  for (const name of ["fleets", "figures"]) document.querySelector(`nav a[href='#${name}']`).hidden = Boolean(page.me?.zones);
  get("sign-out").hidden = !page.me;
  get("audit-open").hidden = !page.me || page.me.role !== "admin";
  const [clock, clockOfHub] = get("clock").children;
  say(clock, timeOfDay(hubNow()));
  say(clockOfHub, hubTime(hubNow(), page.timeZone));
  requestAnimationFrame(restoreFocus);  // by then the browser has taken the focus from elements that cannot have it
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

function drawBanner(stale) {
  const link = get("link");
  link.className = `link ${stale ? "lost" : "live"}`;
  say(get("link-text"), stale ? (page.answered ? t("link.unreachable") : t("link.connecting")) : t("live"));
  let text = "";
  if (stale && page.answered) text = t("banner.stale");
  else if (stale && elapsed() > STALE_MS) text = t("banner.unreachable");
  else if (page.failing) text = t("banner.failing", { why: capital(page.failing) });
  else if (page.databaseLoss) text = t("banner.database-loss", { why: capital(page.databaseLoss) });
  else if (page.clipsFailing) text = t("banner.clips", { why: capital(page.clipsFailing) });
  else if (page.busFailing) text = t("banner.bus", { why: capital(page.busFailing) });
  get("banner").hidden = !text;
  say(get("banner-text"), text);
  say(get("banner-age"), stale && page.answered ? t("banner.age", { span: span(sinceAnswer()) }) : "");  // not read out every second
}

/** True for a minute after a start, until a device is heard. After it, that is a fault. */
const isStarting = () => page.declared > 0 && !page.covered && page.dark.every(({ heardNs }) => !Number(heardNs))
  && page.zones.every((zone) => (zone.faults || []).every((fault) => hubNow() - milliseconds(fault.sinceNs) < STARTING_MS));

function drawVerdict(stale) {
  const open = page.zones.filter((zone) => stateOf(zone) !== "normal");
  const worst = open.reduce((most, zone) => (severity(zone) > SEVERITY.indexOf(most) ? stateOf(zone) : most), "normal");
  const named = (state) => open.filter((zone) => stateOf(zone) === state).sort(newestFirst);
  const faults = page.zones.reduce((sum, zone) => sum + (zone.faults || []).length, 0), starting = isStarting();
  let look = worst, word = stateWord(worst).toLocaleUpperCase(locale), detail = "";
  if (stale) {
    look = "unknown";
    word = t("verdict.unknown");
    const known = worst === "normal" && (faults || page.failing || page.covered < page.declared) ? "fault" : worst;
    detail = page.answered ? t("verdict.last-known", { worst: stateWord(known) }) : t("verdict.nothing-known");
  } else if (worst !== "normal") {
    const zones = named(worst);
    const number = zones.length > 3 ? ` (${zones.length})` : "";  // first, because a phone cuts the names off
    word = `${word}${number} · ${zones.slice(0, 3).map(zoneName).join(", ")}${zones.length > 3 ? t("and-more", { number: zones.length - 3 }) : ""}`;
    detail = said(zones[0].why);
  } else if (page.failing) {
    look = "fault";
    word = t("verdict.fault");
    detail = t("verdict.cannot-record");
  } else if (!page.declared) {
    look = "unknown";
    word = t("verdict.nothing-watched");
    detail = t("verdict.no-device");
  } else if (starting) {
    look = "unknown";
    word = t("state.starting").toLocaleUpperCase(locale);
    detail = t("verdict.starting", { n: page.declared });
  } else if (faults || page.covered < page.declared) {
    look = faults ? "fault" : "unknown";
    word = faults ? t("verdict.fault") : t("verdict.not-all-watched");
    detail = t("verdict.unreliable", { bad: page.declared - page.covered || faults, n: page.declared });
  } else {
    word = t("verdict.normal");
    detail = t("verdict.all-watched", { n: page.zones.length });
  }
  const shown = worst === "normal" ? [] : named(worst);
  const silenced = !stale && shown.length > 0 && shown.every((zone) => zone.silenced);
  if (silenced) detail = t("verdict.silenced", { detail });
  document.body.toggleAttribute("data-silenced", silenced);
  document.body.dataset.worst = look;
  document.body.toggleAttribute("data-alarm", page.zones.some((zone) => zone.alarm));
  say(get("verdict-word"), word);
  say(get("verdict-detail"), detail);
  drawPresent(!stale && ["alarm", "pre-alarm"].includes(worst) ? named(worst)[0] : undefined);
  showInDialogs(word, detail);
  const urgent = stale ? "? " : silenced ? `${t("title.silenced", { worst: stateWord(worst) })} · ` : ["alarm", "pre-alarm"].includes(worst) ? `${stateWord(worst).toLocaleUpperCase(locale)} · ` : faults && !starting ? `${t("verdict.fault")} · ` : "";
  if (document.title !== `${urgent}EmberEye`) document.title = `${urgent}EmberEye`;
}

/** Say on other pages than Now what burns in `zone` at present. Its cause, which is read out once, is from the beginning. */
function drawPresent(zone) {
  const shows = Boolean(zone) && pageName() !== "now";
  get("verdict-detail").classList.toggle("unseen", shows);
  get("verdict-present").hidden = !shows;
  if (shows) say(get("verdict-present"), sentence(zone, false));
}

function drawCoverage(stale) {
  const box = get("coverage");
  const missing = page.declared - page.covered;
  const dark = missing > 0 ? page.dark.filter((device) => !device.covered && device.declared) : [];
  box.classList.toggle("dark", page.covered < page.declared);
  say(get("coverage-count"), stale && !page.answered ? "–" : t("of", { covered: page.covered, declared: page.declared }));
  get("coverage-bar").style.width = page.declared ? `${(100 * page.covered) / page.declared}%` : "0";
  const lines = dark.map((device) => ({ key: deviceKey(device), address: deviceAddress(device), name: device.id, reason: `: ${said(device.reason)}` }));
  if (dark.length && missing > dark.length) lines.push({ key: "more", address: "#devices", name: t("coverage.more", { number: missing - dark.length }), reason: "" });
  sync(get("coverage-dark"), lines, (line) => line.key, ({ address }) => {
    const item = make("li"), link = make("a");
    link.href = address;
    item.append(link, make("span"));
    return item;
  }, (item, { name, reason }) => { say(item.firstChild, name); say(item.lastChild, reason); });
}

function drawZones(stale) {
  say(get("zones-count"), `${page.zones.length}${page.zones.some((zone) => zone.alarm) ? t("zones.watched", { covered: page.covered, n: page.declared }) : ""}`);
  get("no-zones").hidden = page.zones.length > 0 || !page.answered;
  const severalNamespaces = new Set(page.zones.map((zone) => zone.namespace)).size > 1, starting = isStarting();
  sync(get("zones"), page.zones, zoneKey, (zone) => {
    const item = make("li", "zone");
    const name = make("p", "name"), link = make("a", "", zone.name);
    link.href = devicesAddress(zone);
    link.onclick = (event) => {
      const current = page.zones.find((candidate) => zoneKey(candidate) === zoneKey(zone));
      if (!current?.alarm) return;
      event.preventDefault();
      focusOn(current);
      get("focus").focus();
    };
    name.append(link, make("span", "tag testing", t("tag.test")), make("span", "tag muted", t("tag.silenced")));
    item.append(make("p", "namespace"), name, make("p", "state"), make("p", "facts"));
    const button = make("button", "quiet", t("test.button"));
    button.type = "button";
    button.onclick = () => test(page.zones.find((current) => zoneKey(current) === zoneKey(zone)) || zone);
    const actions = make("div", "actions");
    actions.append(button, silenceButton(zone.namespace, zone.name));
    item.append(actions);
    return item;
  }, (item, zone) => {
    const state = stateOf(zone), faults = zone.faults || [];
    item.dataset.state = state;
    item.classList.toggle("faulty", faults.length > 0);
    const namespace = item.querySelector(".namespace");
    namespace.hidden = !severalNamespaces;
    say(namespace, zone.namespace);
    item.querySelector(".testing").hidden = !zone.testing;
    item.querySelector(".muted").hidden = !(zone.silences || []).some((silence) => !silence.device);
    updateSilenceButton(item.querySelector("[data-action=silence]"), stale, zone.namespace, zone.name);
    const word = [state === "normal" && faults.length ? "" : stateWord(state), faults.length ? stateWord(starting ? "starting" : "fault") : ""].filter(Boolean).join(" · ");
    say(item.querySelector(".state"), `${stale ? t("last-known") : ""}${word}`);
    const declared = zone.declared || 0, covered = zone.covered || 0;
    const since = zone.sinceNs && state !== "normal" ? t("zone.since", { span: span(hubNow() - milliseconds(zone.sinceNs)) }) : "";
    const facts = item.querySelector(".facts");
    say(facts, `${since}${declared ? t("zone.watched", { covered, declared }) : t("zone.no-device")}`);
    facts.classList.toggle("bad", covered < declared);
    const button = item.querySelector("button");
    say(button, zone.testing ? t("test.end") : t("test.button"));
    button.setAttribute("aria-label", t(zone.testing ? "test.end-of" : "test.of", { zone: zoneName(zone) }));
    button.disabled = stale || !mayAct();
  });
}

function drawEvents() {
  get("no-events").hidden = page.events.length > 0 || !page.answered;
  sync(get("events"), page.events, (event) => `${event.cursor} ${zoneName(event)}`, (event) => {
    const item = make("li");
    const [look, word] = describeEvent(event);
    item.dataset.state = look;
    const time = make("time", "", clockTime(event.timeNs));
    time.dateTime = new Date(milliseconds(event.timeNs)).toISOString();
    time.title = bothTimes(event.timeNs);
    const head = make("p", "head", zoneName(event));
    head.append(make("span", "", word));
    item.append(time, head, make("p", "why", said(event.why)));
    return item;
  }, () => {});
}

// ---- views: camera stills and thermal pictures

function drawViews() {
  const states = new Map(page.zones.map((zone) => [zoneKey(zone), stateOf(zone)]));
  const state = (device) => states.get(`${device.namespace}/${device.zone}`) || "normal";
  const { devices: shown, total } = page.views;
  get("views-section").hidden = !total;
  say(get("views-count"), total > shown.length ? t("views.some", { shown: shown.length, total }) : `${total}`);
  sync(get("views"), shown, deviceKey, (device) => {
    const item = make("li", "view");
    const screen = make(device.thermal && device.pictureNs === "0" ? "canvas" : "img", "screen");
    if (screen.tagName === "CANVAS") { screen.width = 320; screen.height = 240; screen.setAttribute("role", "img"); }
    const caption = make("p", "caption");
    const link = deviceLink(device, "whole");
    caption.append(make("b"), make("span"), make("span", "age"));
    caption.firstChild.append(link);
    if (device.fleet.includes("/cameras/")) item.append(button(t("overlay.button"), () => adjustOverlay(device), t("overlay.button-label", { id: device.id }), "quiet over"));
    if (screen.tagName === "IMG") { const live = make("canvas", "screen live blank"); live.setAttribute("aria-hidden", "true"); item.prepend(live); }
    item.prepend(screen, make("p", "hot"), make("p", "dark"), caption);
    return item;
  }, (item, device) => {
    item.dataset.state = state(device);
    item.classList.toggle("unwatched", !device.covered && device.declared);
    const screen = item.querySelector(".screen:not(.live)"), thermal = screen.tagName === "CANVAS", live = item.querySelector(".live");
    if (live && device.covered && !describeOverlay(device)) showLive(live, device);
    else if (live) endLive(live);
    const living = live ? liveAge(live) : Infinity;
    const at = thermal ? device.thermalNs : device.pictureNs;
    if (item.dataset.at !== at && at !== "0" && living === Infinity && (thermal || item.coming?.complete !== false)) {  // do not interrupt a loading picture
      item.dataset.at = at;
      if (thermal) fetchJson(`${devicePath(device)}/thermal`).then((body) => { paint(screen, body); item.dataset.shown = at; }, () => { item.dataset.at = ""; });
      else item.coming = renew(screen, `${devicePath(device)}/snapshot.jpg?at=${at}`, () => { item.dataset.shown = at; });
    }
    const hot = device.thermal && device.thermal.hottest !== null ? device.thermal : null;
    say(item.querySelector(".hot"), hot ? (hot.relative ? t("view.rise", { value: amount(hot.hottest) }) : `${figure(hot.hottest, 1)} °C`) : "");
    const label = `${device.id}, ${zoneName(device)}${hot && !hot.relative ? t("view.hottest", { value: figure(hot.hottest, 1) }) : ""}`;
    if (thermal) screen.setAttribute("aria-label", label);
    else if (screen.alt !== label + describeOverlay(device)) screen.alt = label + describeOverlay(device);
    if (!thermal) drawOverlay(item, device);
    const [, about, age] = item.querySelector(".caption").children;
    const paused = live ? livePause(live) : "";
    say(about, [device.declared ? underState(zoneName(device), item.dataset.state) : t("view.undeclared"), paused].filter(Boolean).join(" · "));
    const old = Math.min(living, item.dataset.shown ? hubNow() - milliseconds(item.dataset.shown) : Infinity);
    say(age, Number.isFinite(old) ? (old < LIVE_MS && !paused ? t("live") : span(old)) : "");
    age.classList.toggle("bad", old > OLD_MS);
    const dark = item.querySelector(".dark");
    dark.hidden = device.covered || !device.declared;
    if (!dark.hidden && dark.dataset.reason !== device.reason) {
      dark.dataset.reason = device.reason;
      dark.replaceChildren(make("b", "", t("dark")), make("span", "", said(device.reason)));
    }
  });
}

// ---- pages

const PAGES = {
  now: {}, day: { show: showDay, refresh: refreshDay }, history: { show: showHistory, refresh: refreshHistory },
  plan: { show: showPlan, refresh: refreshPlan }, devices: { show: showDevices, refresh: refreshDevices },
  device: { show: showDevice, refresh: refreshDevice }, fleets: { show: showFleets, refresh: refreshFleets },
  figures: { show: showFigures, refresh: refreshFigures },
  wall: { show: refreshWall, refresh: refreshWall },
};

function turnPage() {
  const name = pageName();
  document.body.dataset.page = name;
  for (const other of Object.keys(PAGES)) get(`page-${other}`).hidden = other !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name === "device" ? "devices" : name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (PAGES[name].show) PAGES[name].show();
  draw();
}

// ---- the signed-in person, and the audit trail

async function followMe() {
  while (!page.me) {
    try { page.me = await fetchJson("/v1/access/me"); draw(); } catch { await wait(1000); }
  }
  // The hub refuses pages about all zones to people who are limited to some.
  for (const name of ["fleets", "figures"]) document.querySelector(`nav a[href="#${name}"]`).hidden = Boolean(page.me.zones);
}

let audited = 0;
async function showAudit(before) {
  const turn = ++audited;
  try {
    const { entries } = await fetchJson(`/v1/audit?limit=100&before=${before}`);
    if (turn !== audited) return;
    if (!before) get("audit-entries").replaceChildren();
    for (const entry of entries) {
      const row = make("tr");
      const time = bothTimes(entry.timeNs);
      for (const text of [time, `${entry.who} · ${t(`role.${entry.role}`)}`, entry.address, entry.action, entry.subject, entry.detail]) row.append(make("td", "", text));
      get("audit-entries").append(row);
    }
    get("audit-more").disabled = entries.length < 100;
    get("audit-more").onclick = () => showAudit(entries.at(-1).number);
    if (!before) get("audit").showModal();
  } catch (error) { toast(problem(error)); }
}

get("audit-open").onclick = () => showAudit(0);
get("audit-close").onclick = () => get("audit").close();
get("sign-out").onclick = () => {
  page.leaving = true; // requests of this moment are answered with 401, and must not lead elsewhere than `next`
  postJson("/v1/access/logout", {}).then(({ next }) => location.assign(next), (error) => { page.leaving = false; toast(problem(error)); });
};
get("viewer-close").onclick = () => get("viewer").close();
get("menu").onclick = () => get("menu").setAttribute("aria-expanded", String(document.querySelector("header").classList.toggle("open")));
get("zones-more").onclick = () => get("zones-more").setAttribute("aria-pressed", String(get("zones-section").classList.toggle("open")));
get("ask-cancel").onclick = () => get("ask").close();
get("skip").onclick = (event) => { event.preventDefault(); get("main").focus(); };  // the address names a page
followFocus();
setUpAlarm();
setUpDay();
setUpDevice();
setUpDevices();
setUpFleets();
setUpFigures();
setUpFocus(async () => { await loadZones(); draw(); });
setUpHistory();
setUpPlan();
setUpOverlay();
setUpKeys();
setUpMasks();
setUpWall();
offerLanguages(get("language"));
setInterval(() => { refreshLive(); refreshOverlays(); draw(); if (PAGES[pageName()].refresh) PAGES[pageName()].refresh(); }, 1000);
addEventListener("hashchange", turnPage);
follow(ZONES_MS, loadZones);
follow(VIEWS_MS, async () => { page.views = await fetchJson(`/v1/devices?order=alarm&pictures=1&limit=${VIEWS}`); });
follow(DARK_MS, async () => { page.dark = (await fetchJson(`/v1/devices?order=urgent&limit=${DARK}`)).devices; });
followEvents();
followClips();
followMe();
turnPage();
// Only an installed app, or a later visit without the network, needs it. It never stores a page that could look current.
navigator.serviceWorker?.register(new URL("../service-worker.js", import.meta.url)).catch(() => {});
