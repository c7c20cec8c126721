// What all pages of the console share. All text from the hub enters the page as text, never as markup.

const REQUEST_MS = 2500;     // that an answer may take
const PICTURE_MS = 10000;    // that a picture may take

export const STATES = {
  ZONE_STATE_NORMAL: "normal", ZONE_STATE_PRE_ALARM: "pre-alarm", ZONE_STATE_ALARM: "alarm",
  ZONE_STATE_ACKNOWLEDGED: "acknowledged", ZONE_STATE_RESTORED: "restored",
};
export const SEVERITY = ["normal", "restored", "pre-alarm", "acknowledged", "alarm"];
export const KINDS = { KIND_HEAT: ["heat", 1], KIND_SMOKE: ["smoke", 2], KIND_GAS: ["gas", 3], KIND_FLAME: ["flame", 4] };

export const RETRY_MS = 2000; // after what failed, where the hub answers
export const STALE_MS = 4000; // without an answer, after which nothing on the page may pass for the present

export const page = {
  zones: [], events: [], declared: 0, covered: 0, failing: "", clips: new Map(), cursor: null, behind: null, answered: null, clockOffset: 0, me: null,
};

export const get = (id) => document.getElementById(id);

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

/** A button that does something; `label` is what it is called where its text alone would not say it. */
export function button(text, action, label = "", className = "quiet") {
  const element = make("button", className, text);
  element.type = "button";
  element.onclick = action;
  if (label) element.setAttribute("aria-label", label);
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make the children of `parent` those of `items`, in order, reusing what is there: focus and scroll stay. */
export function sync(parent, items, keyOf, create, update = () => {}) {
  const held = document.activeElement, known = new Map();
  for (const child of [...parent.children]) {
    if (known.has(child.dataset.key)) child.remove();  // of two items of one key, which nothing tells apart
    else known.set(child.dataset.key, child);
  }
  const keys = new Set(items.map(keyOf));
  for (const [key, child] of known) if (!keys.has(key)) child.remove();  // first, or all that follow them would be moved
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
  // What is moved loses the focus.
  if (held !== document.activeElement && parent.contains(held)) held.focus({ preventScroll: true });
}

// ---- focus: where what had it is gone, hidden or disabled, what was around it has it, for those who have no mouse

let around = [];             // what has the focus, and what it is in, as it was then
const openers = new WeakMap();  // what had the focus before a dialog was opened

const usable = (element) => element.isConnected && !element.disabled && element.getClientRects().length > 0;

export function followFocus() {
  addEventListener("focusin", ({ target }) => {
    const dialog = target.closest("dialog"), places = [target];
    for (let place = target.parentElement; place; place = place.parentElement) if (place.matches("li, section, dialog, main")) places.push(place);
    if (dialog && !around.includes(dialog)) openers.set(dialog, around);
    around = [...places, ...((dialog && openers.get(dialog)) || [])];
  });
}

export function keepFocus() {
  if (document.activeElement !== document.body) return;
  const place = around.find(usable);
  if (!place || place === around[0]) return;  // or somebody clicked beside everything
  if (place.tabIndex < 0) place.tabIndex = -1;
  place.focus({ preventScroll: true });
}

export const milliseconds = (ns) => Number(ns || 0) / 1e6;
export const nanoseconds = (ms) => `${Math.round(ms)}000000`;
export const hubNow = () => Date.now() + page.clockOffset;
/** Milliseconds of a clock that nobody sets: what is due, and what is old, goes by this one. */
export const elapsed = () => performance.now();
/** How long ago the hub answered last. Either clock alone may stand still: one is put back, the other sleeps with the machine. */
export const sinceAnswer = () => (page.answered ? Math.max(Date.now() - page.answered.at, elapsed() - page.answered.elapsed) : Infinity);
export const stateOf = (zone) => STATES[zone.state] || "normal";
let named = [], several = false;
/** How people call the zone that something is of: with its namespace where there are several, each of which may have a hall. */
export function zoneName({ namespace, zone, name = zone }) {
  if (named !== page.zones) several = (named = page.zones).some((other) => other.namespace !== named[0].namespace);
  return several ? `${name} (${namespace})` : name;
}
export const zoneKey = (zone) => `${zone.namespace}/${zone.name}`;
export const deviceKey = (device) => `${device.fleet}/${device.id}`;
export const devicePath = (device) => `/v1/devices/${[...device.fleet.split("/"), device.id].map(encodeURIComponent).join("/")}`;

/** Whether the signed-in person may act. */
export const mayAct = () => page.me !== null && page.me.role !== "viewer";

export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function clockTime(ns) {
  return new Date(milliseconds(ns)).toLocaleTimeString("en-GB");
}

export function dateTime(ns) {
  return new Date(milliseconds(ns)).toLocaleString("en-GB");
}

export function amount(value, unit) {
  const number = Number(value);
  const digits = Math.abs(number) >= 10 ? number.toFixed(1) : number.toFixed(2);
  const short = digits.replace(/\.?0+$/, "");
  if (!unit || unit === "1") return short;
  return unit.startsWith("1/") ? `${short}${unit.slice(1)}` : `${short} ${unit}`;
}

/** What a term measured, or another value of it. */
export const measured = (term, value = term.value) => amount(value || 0, term.unit);

/** What is counted, with its number: "1 shard", "2 shards"; `many` where that is not `one` with an s. */
export const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export function signText(item) {
  const [kind] = KINDS[item.kind] || ["sign"];
  const terms = item.why || [];
  const over = terms.find((term) => term.threshold && term.value >= term.threshold) || terms[0];
  const told = !over ? (item.score ? ` score ${amount(item.score)}` : "")
    : ` ${measured(over)}${over.name === "temperature.over_normal" ? " over normal" : ""}${over.threshold ? ` (limit ${measured(over, over.threshold)})` : ""}`;
  return `${kind}${told} at ${item.device}${item.relative ? ", not calibrated" : ""}${item.note ? ` – ${item.note}` : ""}`;
}

/** How an event looks, and what it is called. */
export function eventLook(event) {
  switch (event.type) {
    case "TYPE_SILENCE": return ["test", Number(event.timeNs) > Number(event.silence.sinceNs) ? "silence over" : "silenced"];
    case "TYPE_FALSE_ALARM": return ["test", "false alarm"];
    case "TYPE_TEST": return ["test", "test"];
    case "TYPE_FAULT_CLEARED": return ["normal", "fault cleared"];
    default: {
      const state = STATES[event.state] || "normal";
      const [look, word] = { TYPE_FAULT: ["fault", "fault"], TYPE_EVIDENCE: ["evidence", "sign"] }[event.type] || [state, state];
      return [look, event.silence ? `${word}, silenced` : word];
    }
  }
}

/** The session is over: what the page shows would only grow old. Whoever signs in again is led back, and types nothing twice. */
function signInAgain() {
  keepDraft();
  location.replace(`/login?${new URLSearchParams({ ended: "", next: `/${location.hash}` })}`);
}

export async function fetchJson(path, options = {}) {
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(options.patience || REQUEST_MS) })
    .catch((error) => { throw error instanceof TypeError ? new Error("The hub cannot be reached.", { cause: error }) : error; });
  if (response.status === 401) signInAgain();
  // What stands in front of a hub that is down answers with a page of its own.
  const body = await response.json().catch((error) => { if (response.ok || !(error instanceof SyntaxError)) throw error; return {}; });
  if (!response.ok) throw new Error(body.error || `The hub answered ${response.status}.`);
  return body;
}

export const sendJson = (method, path, body) => fetchJson(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
export const postJson = (path, body) => sendJson("POST", path, body);
export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** What went wrong, for people. */
export function problem(error) {
  return error.name === "TimeoutError" ? "The hub did not answer: this may not have taken effect." : error.message;
}

/** The dialog that is in front, if any: what is behind it is neither read out nor in sight. */
const inFront = () => document.activeElement?.closest("dialog[open]") || document.querySelector("dialog[open]");

let toastTimer = 0;
export function toast(text) {
  (inFront() || document.body).append(get("toast"));
  say(get("toast"), text);
  get("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { get("toast").hidden = true; }, 8000);
}

// ---- asking people

function who() {
  try { return localStorage.getItem("embereye.who") || ""; } catch { return ""; }
}

const DRAFT = "embereye.draft";

function rememberWho(name) {
  try { localStorage.setItem("embereye.who", name); } catch { /* private browsing: asked again */ }
}

/** Keep what was typed into the dialog that asks, in this window, for when the same is asked again. */
function keepDraft() {
  const dialog = get("ask");
  if (!dialog?.open) return;
  const draft = { about: dialog.dataset.about, who: get("ask-who").value, note: get("ask-note").value, hours: get("ask-hours").value };
  try { sessionStorage.setItem(DRAFT, JSON.stringify(draft)); } catch { /* private browsing: typed again */ }
}

/** What was typed as this was asked before the session was over, once. */
function takeDraft(about) {
  try {
    const draft = JSON.parse(sessionStorage.getItem(DRAFT));
    if (draft?.about !== about) return {};
    sessionStorage.removeItem(DRAFT);
    return draft;
  } catch { return {}; }
}

/**
 * Ask for a note and, of who shares a login, for a name, and `send` them; whether that was done. While it fails, the
 * dialog says why and keeps what was typed. `required`: the note has to be given, and is called so; `hours`: ask for an
 * end as well, which is so many hours away unless another one is chosen.
 */
export function ask({ title, text, ok, send, required = "", hours = 0 }) {
  const dialog = get("ask"), note = get("ask-note"), wrong = get("ask-problem");
  say(get("ask-title"), title);
  say(get("ask-text"), text);
  say(get("ask-ok"), ok);
  say(get("ask-note-label"), required || "Note (optional)");
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
/** What an address has that no other of this or any other window has: no picture of a cache is taken for a new one. */
export const unique = () => `${LOADED}-${shots += 1}`;

const loading = new WeakMap();
/** Have `image` show what is at `address`. What does not come is given up: a browser asks a hub for six things at a time. */
export function load(image, address) {
  clearTimeout(loading.get(image));
  image.src = address;
  loading.set(image, setTimeout(() => { if (!image.complete && image.getAttribute("src") === address) image.removeAttribute("src"); }, PICTURE_MS));
}

/** Put what is at `address` in the place of `image` once it is there, and then do what follows; returns what is to be there. */
export function renew(image, address, then) {
  const fresh = make("img", image.className);
  if (image.id) fresh.id = image.id;
  const settle = () => { fresh.alt = image.alt; image.replaceWith(fresh); then(); };
  fresh.addEventListener("load", settle, { once: true });  // what would stay holds the one before, and that all before it
  load(fresh, address);
  return fresh;
}

/**
 * Show a still, or play a clip, over the page; a browser plays no Matroska, but picture after picture it does, and MP4.
 */
export function view(address, caption) {
  const moving = address.endsWith(".mp4"), dialog = get("viewer");
  const picture = get(moving ? "viewer-video" : "viewer-picture");
  get("viewer-video").hidden = !moving;
  get("viewer-picture").hidden = moving;
  picture.src = address;
  picture.setAttribute(moving ? "aria-label" : "alt", caption);
  say(get("viewer-caption"), caption);
  dialog.onclose = () => { picture.removeAttribute("src"); picture.load?.(); };  // neither hub nor video need play on
  dialog.showModal();
}

let told = "";  // what was in sight until now, also as a dialog was opened
/** In an open dialog, what happened since it was opened: behind it nobody sees it, and nothing is read out. */
export function tellInFront(word, detail) {
  for (const dialog of document.querySelectorAll("dialog")) {
    if (!dialog.open) { delete dialog.dataset.word; continue; }
    let urgent = dialog.querySelector(".urgent");
    if (!urgent) { urgent = make("p", "urgent"); urgent.setAttribute("role", "alert"); dialog.prepend(urgent); }
    dialog.dataset.word ??= told || word;
    say(urgent, dialog.dataset.word === word ? "" : [word, detail].filter(Boolean).join(": "));
  }
  told = word;
}

export function drawClips(list, clips) {
  sync(list, clips, (clip) => clip.sha256, (clip) => {
    const item = make("li"), still = clip.media === "MEDIA_STILL";
    const seconds = (milliseconds(clip.untilNs) - milliseconds(clip.fromNs)) / 1000;
    const what = `${clip.device}, ${clockTime(clip.fromNs)}${still ? "" : `, ${seconds.toFixed(1)} s`}`;
    const show = button(still ? "Show" : "Play", () => view(clip.view, what), `${still ? "Show the still" : "Play the clip"} of ${what}`);
    const download = make("a", "", "download");
    download.href = clip.url;
    download.download = "";
    download.setAttribute("aria-label", `Download the ${still ? "still" : "clip"} of ${what}`);
    item.append(make("span", "kind", still ? "still" : "clip"), make("span", "what", `${what}${clip.note ? ` (${clip.note})` : ""}`), show, download);
    return item;
  });
}

const MAP = [[0, 0, 4], [40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];

function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (MAP.length - 1);
  const low = Math.min(Math.floor(place), MAP.length - 2), part = place - low;
  return MAP[low].map((value, channel) => value + (MAP[low + 1][channel] - value) * part);
}

/** Draw a thermal picture of 24 rows by 32 columns, its hottest pixel marked; `clear`: what is cool lets shine through. */
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
}
