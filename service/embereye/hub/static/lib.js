// Functions that all pages of the console share. All text from the hub enters the page as text, never as markup.

import { onHub } from "./address.js";
import { dateAndTime, figure, hubTime, locale, t, timeOfDay } from "./messages.js";

const REQUEST_MS = 2500;     // longest wait for an answer
const PICTURE_MS = 10000;    // longest wait for a picture

export const STATES = {
  ZONE_STATE_NORMAL: "normal", ZONE_STATE_PRE_ALARM: "pre-alarm", ZONE_STATE_ALARM: "alarm",
  ZONE_STATE_ACKNOWLEDGED: "acknowledged", ZONE_STATE_RESTORED: "restored",
};
export const SEVERITY = ["normal", "restored", "pre-alarm", "acknowledged", "alarm"];
export const KINDS = { KIND_HEAT: "heat", KIND_SMOKE: "smoke", KIND_GAS: "gas", KIND_FLAME: "flame" };

/** The name of `place` with its state in words, unless that is normal, for people who do not see its colour. */
export const withState = (place, state) => (state === "normal" ? place : `${place} · ${stateWord(state).toLocaleUpperCase(locale)}`);

/** The same for captions, whose end may be cut off: the state comes first. */
export const underState = (place, state) => (state === "normal" ? place : `${stateWord(state).toLocaleUpperCase(locale)} · ${place}`);

/** A state and a kind of fire in the words of the page's language. */
export const stateWord = (state) => t(`state.${state}`);
export const kindWord = (kind) => t(`kind.${KINDS[kind] || "sign"}`);

export const RETRY_MS = 2000; // before a failed request is repeated, while the hub answers
export const STALE_MS = 4000; // without an answer for this time, the page must not look current

export const page = {
  zones: [], events: [], declared: 0, covered: 0, failing: "", clips: new Map(), cursor: null, behind: null, answered: null, clockOffset: 0, timeZone: "", me: null, leaving: false,
};

export const get = (id) => document.getElementById(id);

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

/** A button; `label` names it for screen readers if its text alone is not clear. */
export function button(text, action, label = "", className = "quiet") {
  const element = make("button", className, text);
  element.type = "button";
  element.onclick = action;
  if (label) element.setAttribute("aria-label", label);
  return element;
}

/** An element of a drawing. */
export const svg = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make the children of `parent` match `items`, in order. Existing children are reused, so focus and scrolling remain. */
export function sync(parent, items, keyOf, create, update = () => {}) {
  const focused = document.activeElement, known = new Map();
  for (const child of [...parent.children]) {
    if (known.has(child.dataset.key)) child.remove();  // two items with the same key cannot be distinguished
    else known.set(child.dataset.key, child);
  }
  const keys = new Set(items.map(keyOf));
  for (const [key, child] of known) if (!keys.has(key)) child.remove();  // first, or all later ones would be moved
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    if (child) known.delete(key);
    else { child = create(item); child.dataset.key = key; }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  // An element that is moved loses the focus.
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

// ---- focus: if its element disappears or is disabled, the element around it gets the focus, for people without a mouse

let around = [];             // the element with the focus and its ancestors, as they were then
const openers = new WeakMap();  // the element that had the focus before a dialog opened

const usable = (element) => element.isConnected && !element.disabled && element.getClientRects().length > 0;

export function followFocus() {
  addEventListener("focusin", ({ target }) => {
    const dialog = target.closest("dialog"), places = [target];
    for (let place = target.parentElement; place; place = place.parentElement) if (place.matches("li, article, section, dialog, main")) places.push(place);
    if (dialog && !around.includes(dialog)) openers.set(dialog, around);
    around = [...places, ...((dialog && openers.get(dialog)) || [])];
  });
}

export function restoreFocus() {
  if (document.activeElement !== document.body) return;
  const place = around.find(usable);
  if (!place || place === around[0]) return;  // or somebody clicked on the background
  if (place.tabIndex < 0) place.tabIndex = -1;
  place.focus({ preventScroll: true });
}

export const milliseconds = (ns) => Number(ns || 0) / 1e6;
export const nanoseconds = (ms) => `${Math.round(ms)}000000`;
export const hubNow = () => Date.now() + page.clockOffset;
/** Milliseconds of a clock that is never adjusted, for intervals and ages. */
export const elapsed = () => performance.now();
/** Milliseconds since the hub's last answer. Each clock alone may lag: one can be set back, the other sleeps with the machine. */
export const sinceAnswer = () => (page.answered ? Math.max(Date.now() - page.answered.at, elapsed() - page.answered.elapsed) : Infinity);
export const stateOf = (zone) => STATES[zone.state] || "normal";
export const severity = (zone) => SEVERITY.indexOf(stateOf(zone));
/** Order zones by the start of their states. */
export const newestFirst = (a, b) => milliseconds(b.sinceNs) - milliseconds(a.sinceNs);
let named = [], several = false;
/** The zone's name for people: with its namespace if there are several, because each may have a hall. */
export function zoneName({ namespace, zone, name = zone }) {
  if (named !== page.zones) several = (named = page.zones).some((candidate) => candidate.namespace !== named[0].namespace);
  return several ? `${name} (${namespace})` : name;
}
export const zoneKey = (zone) => `${zone.namespace}/${zone.name}`;
export const deviceKey = (device) => `${device.fleet}/${device.id}`;
export const devicePath = (device) => `/v1/devices/${[...device.fleet.split("/"), device.id].map(encodeURIComponent).join("/")}`;

/** True if the signed-in person may act. */
export const mayAct = () => page.me !== null && page.me.role !== "viewer";

export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${figure(seconds, 1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function clockTime(ns) {
  return timeOfDay(milliseconds(ns));
}

export function dateTime(ns) {
  return dateAndTime(milliseconds(ns));
}

/** The date and time, followed by the hub's time if its zone differs from the reader's. */
export function bothTimes(ns) {
  const atHub = hubTime(milliseconds(ns), page.timeZone);
  return atHub ? `${dateTime(ns)} (${atHub})` : dateTime(ns);
}

export function amount(value, unit) {
  const number = Number(value);
  const short = figure(Number(number.toFixed(Math.abs(number) >= 10 ? 1 : 2)));
  if (!unit || unit === "1") return short;
  return unit.startsWith("1/") ? `${short}${unit.slice(1)}` : `${short} ${unit}`;
}

/** The measured value of a term with its unit, or another value in that unit. */
export const measured = (term, value = term.value) => amount(value || 0, term.unit);

const DRIFTS = ["left", "right", "up", "down"];

/** What the appearance network saw of smoke. */
function smokeWords(terms) {
  const values = new Map(terms.map((term) => [term.name, term.value || 0]));
  const percent = (name) => `${Math.round(values.get(name) || 0)} %`;
  const growing = values.get("smoke.growing");
  const drift = DRIFTS.find((direction) => values.has(`smoke.drift.${direction}`));
  return [t("sign.smoke", { likeness: percent("smoke.likeness"), usual: percent("smoke.usual") }),
    growing ? t("sign.growing", { span: span(1000 * growing) }) : "", drift ? t(`sign.drift.${drift}`) : ""].filter(Boolean).join("; ");
}

const AREA = /^area\.(.+)\.(highest|mean|rise)$/;

/** "belt: highest" for what is measured in an area; undefined for another term. */
export function areaName({ name }) {
  const found = AREA.exec(name || "");
  return found ? t(`area.${found[2]}`, { area: found[1] }) : undefined;
}

export function signText(item) {
  const kind = kindWord(item.kind);
  const terms = item.why || [];
  const over = terms.find((term) => term.threshold && term.value >= term.threshold) || terms[0];
  if (terms.some((term) => term.name === "smoke.likeness")) return t("sign.at", { sign: smokeWords(terms), device: item.device });
  const area = over && areaName(over);
  if (area) return `${t("sign.at", { sign: t("area.sign", { area, value: measured(over), limit: measured(over, over.threshold) }), device: item.device })}${item.note ? ` – ${item.note}` : ""}`;
  const reading = !over ? (item.score ? t("sign.score", { score: amount(item.score) }) : "")
    : (over.name === "temperature.over_normal" ? t("sign.over-normal", { value: measured(over) }) : measured(over)) + (over.threshold ? t("limit", { value: measured(over, over.threshold) }) : "");
  const sign = t("sign.at", { sign: [kind, reading].filter(Boolean).join(" "), device: item.device });
  return `${sign}${item.relative ? t("sign.relative") : ""}${item.note ? ` – ${item.note}` : ""}`;
}

/** The appearance and the name of an event. */
export function describeEvent(event) {
  switch (event.type) {
    case "TYPE_SILENCE": {
      const over = Number(event.timeNs) > Number(event.silence.sinceNs), isProfile = (event.silence.id || "").startsWith("profile-");
      return ["test", isProfile ? t(over ? "event.profile-over" : "event.profile") : t(over ? "event.silence-over" : "event.silenced")];
    }
    case "TYPE_FALSE_ALARM": return ["test", t("event.false-alarm")];
    case "TYPE_TEST": return ["test", t("event.test")];
    case "TYPE_FAULT_CLEARED": return ["normal", t("event.fault-cleared")];
    default: {
      const state = STATES[event.state] || "normal";
      if (event.type === "TYPE_EVIDENCE" && event.who) return [state, t("event.escalated")];
      const [look, word] = { TYPE_FAULT: ["fault", stateWord("fault")], TYPE_EVIDENCE: ["evidence", t("kind.sign")] }[event.type] || [state, stateWord(state)];
      return [look, event.silence ? t("title.silenced", { worst: word }) : word];
    }
  }
}

/** The session has ended: go to the sign-in page. After signing in, people return here, and their typed text is still there. */
function signInAgain() {
  saveDraft();
  location.replace(onHub(`/login?${new URLSearchParams({ ended: "", next: onHub(`/${location.hash}`) })}`));
}

/** Send a request and return the answer. A request that changes nothing says in words that the hub is silent. */
export async function fetchJson(path, options = {}) {
  try {
    return await answered(path, options);
  } catch (error) {
    throw error.name === "TimeoutError" && !options.method ? new Error(t("hub.silent"), { cause: error }) : error;
  }
}

async function answered(path, options) {
  const response = await fetch(onHub(path), { ...options, signal: AbortSignal.timeout(options.patience || REQUEST_MS) })
    .catch((error) => { throw error instanceof TypeError ? new Error(t("hub.unreachable"), { cause: error }) : error; });
  if (response.status === 401 && !page.leaving) signInAgain();
  // A proxy in front of a hub that is down answers with its error page.
  const body = await response.json().catch((error) => { if (response.ok || !(error instanceof SyntaxError)) throw error; return {}; });
  if (!response.ok) throw new Error(body.error || t("hub.answered", { status: response.status }));
  return body;
}

export const sendJson = (method, path, body) => fetchJson(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
export const postJson = (path, body) => sendJson("POST", path, body);
export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** The problem in words for people. */
export function problem(error) {
  return error.name === "TimeoutError" ? t("hub.timeout") : error.message;
}

/** The open dialog, if any. Content behind it is neither visible nor read out. */
const inFront = () => document.activeElement?.closest("dialog[open]") || document.querySelector("dialog[open]");

let toastTimer = 0;
export function toast(text) {
  (inFront() || document.body).append(get("toast"));
  say(get("toast"), text);
  get("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { get("toast").hidden = true; }, 8000);
}

// ---- dialogs

function who() {
  try { return localStorage.getItem("embereye.who") || ""; } catch { return ""; }
}

const DRAFT = "embereye.draft";

function rememberWho(name) {
  try { localStorage.setItem("embereye.who", name); } catch { /* private browsing: asked again */ }
}

/** Save the text typed into the dialog in this window, for the next time that the same dialog opens. */
function saveDraft() {
  const dialog = get("ask");
  if (!dialog?.open) return;
  const draft = { about: dialog.dataset.about, who: get("ask-who").value, note: get("ask-note").value, hours: get("ask-hours").value };
  try { sessionStorage.setItem(DRAFT, JSON.stringify(draft)); } catch { /* private browsing: typed again */ }
}

/** Return the text that was typed before the session ended, once. */
function takeDraft(about) {
  try {
    const draft = JSON.parse(sessionStorage.getItem(DRAFT));
    if (draft?.about !== about) return {};
    sessionStorage.removeItem(DRAFT);
    return draft;
  } catch { return {}; }
}

/**
 * Ask for a note and, from people who share a login, for a name, and `send` them; true if that succeeded. While it fails,
 * the dialog shows why and the typed text remains. `required`: the label of a note that must be given; `hours`: also ask
 * for an end, by default after so many hours.
 */
export function ask({ title, text, ok, send, required = "", hours = 0 }) {
  const dialog = get("ask"), note = get("ask-note"), wrong = get("ask-problem");
  say(get("ask-title"), title);
  say(get("ask-text"), text);
  say(get("ask-ok"), ok);
  say(get("ask-note-label"), required || t("ask.note"));
  note.required = Boolean(required);
  get("ask-end").hidden = !hours;
  dialog.dataset.about = title;
  const draft = takeDraft(title);
  get("ask-hours").value = draft.hours || String(hours || 1);
  get("ask-who").value = draft.who || who();
  note.value = draft.note || "";
  say(wrong, "");
  dialog.showModal();
  (required ? note : get("ask-who")).focus();
  return new Promise((done) => {
    let sending = false, sent = false, closed = false;
    get("ask-form").onsubmit = async (event) => {
      event.preventDefault();
      if (sending) return;
      sending = true;
      say(wrong, "");
      const name = get("ask-who").value.trim();
      rememberWho(name);
      try {
        await send({ who: name, note: note.value.trim(), hours: Number(get("ask-hours").value) });
        sent = true;
        if (!closed) dialog.close();
      } catch (error) {
        if (closed) toast(problem(error));
        else say(wrong, problem(error));
      }
      sending = false;
    };
    dialog.onclose = () => { closed = true; done(sent); };
  });
}

export const rememberedWho = who;

// ---- pictures and clips

const LOADED = Math.random().toString(36).slice(2);
let shots = 0;
/** A unique suffix for addresses: it prevents a cached picture from being shown as a new one. */
export const unique = () => `${LOADED}-${shots += 1}`;

const loading = new WeakMap();
/** Load `path` on the hub into `image`. Slow pictures are aborted: a browser makes only six requests to a hub at a time. */
export function load(image, path) {
  const address = onHub(path);
  clearTimeout(loading.get(image));
  image.src = address;
  loading.set(image, setTimeout(() => { if (!image.complete && image.getAttribute("src") === address) image.removeAttribute("src"); }, PICTURE_MS));
}

/** Load the picture of another device into `image`, which shows nothing until it has come; "": there is none. */
export function loadInstead(image, path) {
  image.removeAttribute("src");
  if (path) queueMicrotask(() => load(image, path));  // by then it is empty: a new address alone would keep the old picture
}

/** Load `path` on the hub, then replace `image` by it and call `then`; returns the new image. */
export function renew(image, path, then) {
  const fresh = make("img", image.className);
  if (image.id) fresh.id = image.id;
  const swap = () => { fresh.alt = image.alt; image.replaceWith(fresh); then(); };
  fresh.addEventListener("load", swap, { once: true });  // a listener that stays would retain all earlier pictures
  load(fresh, path);
  return fresh;
}

/**
 * Show a still or play a clip in front of the page. Browsers play MP4, but no Matroska: for that they get a stream of pictures.
 */
export function view(path, caption) {
  const moving = path.endsWith(".mp4"), dialog = get("viewer");
  const picture = get(moving ? "viewer-video" : "viewer-picture");
  get("viewer-video").hidden = !moving;
  get("viewer-picture").hidden = moving;
  picture.src = onHub(path);
  picture.setAttribute(moving ? "aria-label" : "alt", caption);
  say(get("viewer-caption"), caption);
  dialog.onclose = () => { picture.removeAttribute("src"); picture.load?.(); };  // stop the download and the video
  dialog.showModal();
}

let shownWord = "";  // the latest verdict on the page, also when a dialog opens
/** Show in an open dialog what happened since it opened: the page behind it is not visible and not read out. */
export function showInDialogs(word, detail) {
  for (const dialog of document.querySelectorAll("dialog")) {
    if (!dialog.open) { delete dialog.dataset.word; continue; }
    let urgent = dialog.querySelector(".urgent");
    if (!urgent) { urgent = make("p", "urgent"); urgent.setAttribute("role", "alert"); dialog.prepend(urgent); }
    dialog.dataset.word ??= shownWord || word;
    say(urgent, dialog.dataset.word === word ? "" : [word, detail].filter(Boolean).join(": "));
  }
  shownWord = word;
}

export function drawClips(list, clips) {
  sync(list, clips, (clip) => clip.sha256, (clip) => {
    const item = make("li"), still = clip.media === "MEDIA_STILL";
    const seconds = (milliseconds(clip.untilNs) - milliseconds(clip.fromNs)) / 1000;
    const label = `${clip.device}, ${clockTime(clip.fromNs)}${still ? "" : `, ${figure(seconds, 1)} s`}`;
    const show = button(still ? t("clip.show") : t("clip.play"), () => view(clip.view, label), t(still ? "clip.show-of" : "clip.play-of", { label }));
    const download = make("a", "", t("clip.download"));
    download.href = onHub(clip.url);
    download.download = "";
    download.setAttribute("aria-label", t(still ? "clip.download-still" : "clip.download-clip", { label }));
    item.append(make("span", "kind", t(still ? "clip.still" : "clip.clip")), make("span", "what", `${label}${clip.note ? ` (${clip.note})` : ""}`), show, download);
    return item;
  });
}

const MAP = [[0, 0, 4], [40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];

function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (MAP.length - 1);
  const low = Math.min(Math.floor(place), MAP.length - 2), part = place - low;
  return MAP[low].map((value, channel) => value + (MAP[low + 1][channel] - value) * part);
}

/** Draw a thermal picture of 24 rows by 32 columns and mark its hottest pixel; `clear`: cool pixels are transparent. */
export function paint(canvas, body, clear = false) {
  const values = body.celsius;
  const known = values.filter((value) => value !== null);
  if (!known.length) return;
  const most = Math.max(...known), least = Math.min(...known), range = Math.max(most - least, 8);
  const small = new OffscreenCanvas(32, 24);
  const image = new ImageData(32, 24);
  values.slice(0, 768).forEach((value, index) => {
    const share = value === null ? 0 : (value - least) / range;
    const rgb = value === null ? [40, 40, 40] : colour(share);
    image.data.set([...rgb, clear ? 255 * Math.min(1, 0.15 + share) : 255], index * 4);
  });
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d"), scale = canvas.width / 32;
  context.imageSmoothingEnabled = clear;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  const hottest = values.indexOf(most);
  context.strokeStyle = "#fff";
  context.lineWidth = 2;
  context.strokeRect((hottest % 32) * scale - 2, Math.floor(hottest / 32) * scale - 2, scale + 4, scale + 4);
  if (!clear) paintAreas(canvas, body.areas || []);
}

/** Draw the outlines of measuring areas, with their names and limits. */
function paintAreas(canvas, areas) {
  const context = canvas.getContext("2d"), { width, height } = canvas, size = Math.max(11, Math.round(width / 40));
  context.font = `${size}px sans-serif`;
  context.lineWidth = 2;
  for (const { name, kind, limit, x, y } of areas) {
    context.strokeStyle = "#0ff";
    context.beginPath();
    x.forEach((left, corner) => context.lineTo(left * width, y[corner] * height));
    context.closePath();
    context.stroke();
    const words = t("area.label", { area: name, limit: amount(limit, kind === "rise" ? "°C/min" : "°C") });
    const left = Math.max(0, Math.min(Math.min(...x) * width + 3, width - context.measureText(words).width - 3)), top = Math.min(...y) * height + size + 2;
    context.lineJoin = "round";
    context.strokeStyle = "#000";
    context.strokeText(words, left, top);
    context.fillStyle = "#0ff";
    context.fillText(words, left, top);
  }
}
