// The console: what the hub knows, for people. All text from the hub enters the page as text, never as markup.

const ZONES_MS = 1000;       // between two looks at the zones
const DEVICES_MS = 2000;
const REQUEST_MS = 2500;     // that an answer may take
const STALE_MS = 4000;       // without an answer, after which nothing on the page may pass for the present
const EVENTS = 100;          // shown
const ROWS = 250;            // of the device table
const VIEWS = 12;
const CLIPS_MS = 4000;       // between two looks at an open alarm's clips

const STATES = {
  ZONE_STATE_NORMAL: "normal", ZONE_STATE_PRE_ALARM: "pre-alarm", ZONE_STATE_ALARM: "alarm",
  ZONE_STATE_ACKNOWLEDGED: "acknowledged", ZONE_STATE_RESTORED: "restored",
};
const SEVERITY = ["normal", "restored", "pre-alarm", "acknowledged", "alarm"];
const KINDS = { KIND_HEAT: ["heat", 1], KIND_SMOKE: ["smoke", 2], KIND_GAS: ["gas", 3], KIND_FLAME: ["flame", 4] };

const page = {
  zones: [], devices: [], events: [], declared: 0, covered: 0, failing: "", worst: "unknown",
  clips: new Map(), cursor: null, answered: 0, clockOffset: 0, expanded: false, me: null,
};
const get = (id) => document.getElementById(id);

// ---- small helpers

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make the children of `parent` those of `items`, in order, reusing what is there: focus and scroll stay. */
function sync(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
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
  for (const child of known.values()) child.remove();
}

const milliseconds = (ns) => Number(ns || 0) / 1e6;
const hubNow = () => Date.now() + page.clockOffset;
const stateOf = (zone) => STATES[zone.state] || "normal";
const zoneKey = (zone) => `${zone.namespace}/${zone.name}`;
const deviceKey = (device) => `${device.fleet}/${device.id}`;
const devicePath = (device) => `/v1/devices/${[...device.fleet.split("/"), device.id].map(encodeURIComponent).join("/")}`;

function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

function clockTime(ns) {
  return new Date(milliseconds(ns)).toLocaleTimeString("en-GB");
}

function amount(value, unit) {
  const number = Number(value);
  const digits = Math.abs(number) >= 10 ? number.toFixed(1) : number.toFixed(2);
  const short = digits.replace(/\.?0+$/, "");
  return !unit || unit === "1" ? short : `${short} ${unit}`;
}

/** The session is over: what the page shows would only grow old. */
function signInAgain() {
  location.replace("/login");
}

const postJson = (path, body) => fetchJson(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

async function fetchJson(path, options = {}) {
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(REQUEST_MS) });
  if (response.status === 401) signInAgain();
  const body = await response.json();
  if (!response.ok) throw new Error(body.error || `the hub answered ${response.status}`);
  return body;
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// ---- what the hub tells

async function follow(path, period, take) {
  for (;;) {
    const started = performance.now();
    try { take(await fetchJson(path)); } catch { /* the age of the last answer says it */ }
    draw();
    await wait(Math.max(100, period - (performance.now() - started)));
  }
}

function takeZones(body) {
  page.zones = body.zones;
  page.declared = body.declared;
  page.covered = body.covered;
  page.failing = body.failing;
  page.clipsFailing = body.clipsFailing;
  page.openFleets = body.openFleets || [];
  page.answered = Date.now();
  page.clockOffset = milliseconds(body.timeNs) - Date.now();
  // A hub whose history was lost counts anew.
  if (page.cursor !== null && Number(body.cursor) < page.cursor) page.cursor = Number(body.cursor);
}

/** What was recorded of the open alarms: it comes some seconds after the sign, over the shard's own disk. */
async function followClips() {
  for (;;) {
    const open = page.zones.map((zone) => zone.alarm).filter(Boolean);
    for (const alarm of page.clips.keys()) if (!open.includes(alarm)) page.clips.delete(alarm);
    for (const alarm of open) {
      try { page.clips.set(alarm, (await fetchJson(`/v1/alarms/${encodeURIComponent(alarm)}/clips`)).clips); } catch { /* next time */ }
    }
    await wait(CLIPS_MS);
  }
}

function takeEvent(event) {
  page.cursor = Number(event.cursor);
  page.events.unshift(event);
  page.events.length = Math.min(page.events.length, EVENTS);
}

async function followEvents() {
  while (page.cursor === null) {
    try {
      const body = await fetchJson(`/v1/history?newest=${EVENTS}`);
      body.events.forEach(takeEvent);
      page.cursor = Number(body.latest);
    } catch { await wait(1000); }
  }
  for (;;) {
    await new Promise((done) => {
      const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/alarms/ws?cursor=${page.cursor}`);
      socket.onmessage = (message) => {
        takeEvent(JSON.parse(message.data));
        fetchJson("/v1/zones").then((body) => { takeZones(body); draw(); }, () => {});
        draw();
      };
      socket.onclose = done;
    });
    await wait(500 + Math.random() * 1000);
  }
}

// ---- what people do

function who() {
  try { return localStorage.getItem("embereye.who") || ""; } catch { return ""; }
}

function rememberWho(name) {
  try { localStorage.setItem("embereye.who", name); } catch { /* private browsing: asked again */ }
}

/** Whether the signed-in person may act on alarms. */
const mayAct = () => page.me !== null && page.me.role !== "viewer";

/** Ask for a note and, of who shares a login, for a name; null where the person cancelled. */
function ask({ title, text, ok }) {
  const dialog = get("ask");
  say(get("ask-title"), title);
  say(get("ask-text"), text);
  say(get("ask-ok"), ok);
  get("ask-who").value = who();
  get("ask-note").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.onclose = () => {
      const name = get("ask-who").value.trim();
      if (dialog.returnValue !== "ok") return done(null);
      rememberWho(name);
      done({ who: name, note: get("ask-note").value.trim() });
    };
  });
}

let toastTimer = 0;
function toast(text) {
  say(get("toast"), text);
  get("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { get("toast").hidden = true; }, 8000);
}

async function act(action, zone) {
  const words = {
    acknowledge: ["Acknowledge the alarm", "You confirm that you know of it and see to it.", "Acknowledge"],
    reset: ["Reset the alarm", "The alarm is over. If there are still signs of fire, a new one follows.", "Reset"],
    test: [zone.testing ? "End the test" : "Test the zone", "Alarms are raised all the same, and say that it is a test.",
      zone.testing ? "End test" : "Begin test"],
  }[action];
  let answer = { who: who(), note: "" };
  if (action !== "acknowledge") answer = await ask({ title: `${words[0]}: ${zone.name}`, text: words[1], ok: words[2] });
  if (!answer) return;
  const path = `/v1/zones/${encodeURIComponent(zone.namespace)}/${encodeURIComponent(zone.name)}/${action}`;
  try {
    await postJson(path, answer);
    takeZones(await fetchJson("/v1/zones"));
  } catch (error) {
    toast(error.name === "TimeoutError" ? "The hub did not answer: this may not have taken effect." : error.message);
  }
  draw();
}

// ---- what is drawn

function draw() {
  const age = Date.now() - page.answered;
  const stale = !page.answered || age > STALE_MS;
  document.body.classList.toggle("stale", stale);
  drawBanner(stale, age);
  drawVerdict(stale);
  drawCoverage(stale);
  drawZones(stale);
  drawAlarms(stale);
  drawEvents();
  drawViews();
  drawDevices();
  say(get("me"), page.me ? `${page.me.name} · ${page.me.role}` : "");
  const open = page.openFleets || [];
  get("open-access").hidden = !open.length;
  say(get("open-access"), open.length ? `Open to everybody: ${open.slice(0, 3).join(", ")}${open.length > 3 ? ` and ${open.length - 3} more` : ""}. Whoever reaches their ports may speak for any device; spec.access restricts it.` : "");
  get("sign-out").hidden = !page.me;
  get("audit-open").hidden = !page.me || page.me.role !== "admin";
  say(get("clock"), new Date(hubNow()).toLocaleTimeString("en-GB"));
}

function drawBanner(stale, age) {
  const link = get("link");
  link.className = `link ${stale ? "lost" : "live"}`;
  say(get("link-text"), stale ? (page.answered ? "hub unreachable" : "connecting …") : "live");
  let text = "";
  if (stale && page.answered) text = `The hub is unreachable. What you see is ${span(age)} old and may no longer be true.`;
  else if (stale && performance.now() > STALE_MS) text = "The hub is unreachable. Nothing is known about any zone.";
  else if (page.failing) text = `${page.failing[0].toUpperCase()}${page.failing.slice(1)}. Alarms are shown, but nothing is recorded and nobody can act.`;
  else if (page.clipsFailing) text = `${page.clipsFailing[0].toUpperCase()}${page.clipsFailing.slice(1)}. Alarms are not affected; clips wait with their shards.`;
  get("banner").hidden = !text;
  say(get("banner"), text);
}

function drawVerdict(stale) {
  const open = page.zones.filter((zone) => stateOf(zone) !== "normal");
  const worst = open.reduce((most, zone) => (SEVERITY.indexOf(stateOf(zone)) > SEVERITY.indexOf(most) ? stateOf(zone) : most), "normal");
  const named = (state) => open.filter((zone) => stateOf(zone) === state);
  const faults = page.zones.reduce((sum, zone) => sum + (zone.faults || []).length, 0);
  let look = worst, word = worst.toUpperCase(), detail = "";
  if (stale) {
    look = "unknown";
    word = "UNKNOWN";
    detail = page.answered ? `The hub does not answer. Last known: ${worst}.` : "Nothing is known yet.";
  } else if (worst !== "normal") {
    const zones = named(worst);
    word = `${word} · ${zones.map((zone) => zone.name).slice(0, 3).join(", ")}${zones.length > 3 ? ` and ${zones.length - 3} more` : ""}`;
    detail = zones[0].why || "";
  } else if (page.failing) {
    look = "fault";
    word = "FAULT";
    detail = "No alarm, but the hub cannot record anything.";
  } else if (!page.declared) {
    look = "unknown";
    word = "NOTHING WATCHED";
    detail = "No device is declared, or no shard has reported yet.";
  } else if (faults || page.covered < page.declared) {
    look = faults ? "fault" : "unknown";
    word = faults ? "FAULT" : "NOT ALL WATCHED";
    detail = `No alarm, but ${page.declared - page.covered || faults} of ${page.declared} devices cannot be relied on.`;
  } else {
    word = "NORMAL";
    detail = `No alarm in ${page.zones.length} ${page.zones.length === 1 ? "zone" : "zones"}; every device is watched.`;
  }
  document.body.dataset.worst = look;
  say(get("verdict-word"), word);
  say(get("verdict-detail"), detail);
  const urgent = stale ? "? " : ["alarm", "pre-alarm"].includes(worst) ? `${worst.toUpperCase()} · ` : faults ? "FAULT · " : "";
  if (document.title !== `${urgent}EmberEye`) document.title = `${urgent}EmberEye`;
}

function drawCoverage(stale) {
  const box = get("coverage");
  const dark = page.devices.filter((device) => !device.covered && device.declared);
  box.classList.toggle("dark", page.covered < page.declared);
  say(get("coverage-count"), stale && !page.answered ? "–" : `${page.covered} of ${page.declared}`);
  get("coverage-bar").style.width = page.declared ? `${(100 * page.covered) / page.declared}%` : "0";
  const lines = dark.slice(0, 20).map((device) => ({ key: deviceKey(device), text: `${device.id}: ${device.reason}` }));
  if (dark.length > 20) lines.push({ key: "more", text: `and ${dark.length - 20} more` });
  sync(get("coverage-dark"), lines, (line) => line.key, () => make("li"), (item, line) => say(item, line.text));
}

function drawZones(stale) {
  say(get("zones-count"), `${page.zones.length}`);
  const severalNamespaces = new Set(page.zones.map((zone) => zone.namespace)).size > 1;
  sync(get("zones"), page.zones, zoneKey, (zone) => {
    const item = make("li", "zone");
    const name = make("p", "name", zone.name);
    name.append(make("span", "tag", "test"));
    item.append(make("p", "namespace"), name, make("p", "state"), make("p", "facts"));
    const button = make("button", "quiet", "Test");
    button.type = "button";
    button.onclick = () => act("test", page.zones.find((other) => zoneKey(other) === zoneKey(zone)) || zone);
    item.append(button);
    return item;
  }, (item, zone) => {
    const state = stateOf(zone), faults = zone.faults || [];
    item.dataset.state = state;
    item.classList.toggle("faulty", faults.length > 0);
    const namespace = item.querySelector(".namespace");
    namespace.hidden = !severalNamespaces;
    say(namespace, zone.namespace);
    item.querySelector(".tag").hidden = !zone.testing;
    say(item.querySelector(".state"), `${stale ? "last known: " : ""}${state}${faults.length ? " · fault" : ""}`);
    const declared = zone.declared || 0, covered = zone.covered || 0;
    const since = zone.sinceNs && state !== "normal" ? `for ${span(hubNow() - milliseconds(zone.sinceNs))} · ` : "";
    const facts = item.querySelector(".facts");
    say(facts, `${since}${declared ? `${covered} of ${declared} watched` : "no device declared"}`);
    facts.classList.toggle("bad", covered < declared);
    const button = item.querySelector("button");
    say(button, zone.testing ? "End test" : "Test");
    button.setAttribute("aria-label", `${zone.testing ? "End test of" : "Test"} ${zone.name}`);
    button.disabled = stale || !mayAct();
  });
}

function signText(item) {
  const [kind] = KINDS[item.kind] || ["sign"];
  const terms = item.why || [];
  const over = terms.find((term) => term.threshold && term.value >= term.threshold) || terms[0];
  const measured = !over ? `score ${amount(item.score || 0)}`
    : over.threshold ? `${amount(over.value, over.unit)} (limit ${amount(over.threshold, over.unit)})` : amount(over.value || 0, over.unit);
  return `${kind} ${measured} at ${item.device}${item.relative ? ", not calibrated" : ""}${item.note ? ` – ${item.note}` : ""}`;
}

function drawAlarms(stale) {
  const open = page.zones.filter((zone) => zone.alarm);
  say(get("alarms-count"), open.length ? `${open.length}` : "");
  const none = get("no-alarms");
  none.hidden = open.length > 0;
  say(none, stale ? "Unknown: the hub does not answer." : "No alarm is open.");
  sync(get("alarm-list"), open, (zone) => zone.alarm, (zone) => {
    const item = make("li", "alarm");
    const title = make("div", "title");
    title.append(make("h3", "name", zone.name), make("span", "state"));
    const buttons = make("div", "buttons");
    for (const [action, word] of [["acknowledge", "Acknowledge"], ["reset", "Reset"]]) {
      const button = make("button", "", word);
      button.type = "button";
      button.dataset.action = action;
      button.setAttribute("aria-label", `${word} the alarm in ${zone.name}`);
      button.onclick = () => act(action, zone);
      buttons.append(button);
    }
    buttons.append(make("span", "aside"));
    item.append(title, make("p", "why"), make("ul", "signs"), make("div", "pictures"), make("ul", "clips"), buttons);
    return item;
  }, (item, zone) => {
    const state = stateOf(zone);
    item.dataset.state = state;
    say(item.querySelector(".state"), state);
    say(item.querySelector(".why"), zone.why || "");
    const signs = (zone.contributions || []).map((sign) => ({ ...sign, key: `${sign.fleet}/${sign.device}/${sign.kind}` }));
    sync(item.querySelector(".signs"), signs, (sign) => sign.key, () => {
      const line = make("li");
      line.append(make("span", "what"), make("span", "when"));
      return line;
    }, (line, sign) => {
      const over = sign.level === "LEVEL_CLEAR";
      line.classList.toggle("over", over);
      say(line.firstChild, signText(sign));
      say(line.lastChild, `${over ? "ended" : "seen"} ${span(hubNow() - milliseconds(sign.untilNs))} ago`);
    });
    const seen = signs.filter((sign) => sign.sense === "SENSE_CAMERA" && KINDS[sign.kind]);
    sync(item.querySelector(".pictures"), seen, (sign) => sign.key, (sign) => {
      const picture = make("img");
      picture.alt = `What ${sign.device} saw`;
      picture.onerror = () => { picture.hidden = true; };
      picture.src = `/v1/alarms/${zone.alarm}/${encodeURIComponent(sign.device)}/${KINDS[sign.kind][1]}.jpg`;
      return picture;
    }, () => {});
    drawClips(item.querySelector(".clips"), page.clips.get(zone.alarm) || []);
    const [acknowledge, reset] = item.querySelectorAll(".buttons button");
    acknowledge.hidden = state !== "alarm";
    reset.hidden = state !== "acknowledged" && state !== "restored";
    acknowledge.disabled = reset.disabled = stale || !mayAct() || Boolean(page.failing);
    say(item.querySelector(".aside"), `since ${clockTime(zone.sinceNs)}`);
  });
}

/**
 * Show a still, or play a clip, over the page; a browser plays no Matroska, but picture after picture it does, and MP4.
 */
function view(address, caption) {
  const moving = address.endsWith(".mp4"), dialog = get("viewer");
  const picture = get(moving ? "viewer-video" : "viewer-picture");
  get("viewer-video").hidden = !moving;
  get("viewer-picture").hidden = moving;
  picture.src = address;
  picture.setAttribute(moving ? "aria-label" : "alt", caption);
  say(get("viewer-caption"), caption);
  dialog.onclose = () => picture.removeAttribute("src");  // the hub need not play on
  dialog.showModal();
}

function drawClips(list, clips) {
  sync(list, clips, (clip) => clip.sha256, (clip) => {
    const item = make("li"), still = clip.media === "MEDIA_STILL";
    const seconds = (milliseconds(clip.untilNs) - milliseconds(clip.fromNs)) / 1000;
    const what = `${clip.device}, ${clockTime(clip.fromNs)}${still ? "" : `, ${seconds.toFixed(1)} s`}`;
    const button = make("button", "quiet", still ? "Show" : "Play");
    button.type = "button";
    button.setAttribute("aria-label", `${still ? "Show the still" : "Play the clip"} of ${what}`);
    button.onclick = () => view(clip.view, what);
    const download = make("a", "", "download");
    download.href = clip.url;
    download.download = "";
    download.setAttribute("aria-label", `Download the ${still ? "still" : "clip"} of ${what}`);
    item.append(make("span", "kind", still ? "still" : "clip"), make("span", "what", `${what}${clip.note ? ` (${clip.note})` : ""}`), button, download);
    return item;
  }, () => {});
}

function eventLook(event) {
  switch (event.type) {
    case "TYPE_FAULT": return ["fault", "fault"];
    case "TYPE_FAULT_CLEARED": return ["normal", "fault cleared"];
    case "TYPE_TEST": return ["test", "test"];
    case "TYPE_EVIDENCE": return ["evidence", "sign"];
    default: return [STATES[event.state] || "normal", STATES[event.state] || "normal"];
  }
}

function drawEvents() {
  sync(get("events"), page.events, (event) => event.cursor, (event) => {
    const item = make("li");
    const [look, word] = eventLook(event);
    item.dataset.state = look;
    const time = make("time", "", clockTime(event.timeNs));
    time.dateTime = new Date(milliseconds(event.timeNs)).toISOString();
    time.title = new Date(milliseconds(event.timeNs)).toLocaleString("en-GB");
    const head = make("p", "head", event.zone);
    head.append(make("span", "", word));
    item.append(time, head, make("p", "why", event.why));
    return item;
  }, () => {});
}

// ---- views: camera stills and thermal pictures

const MAP = [[0, 0, 4], [40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];

function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (MAP.length - 1);
  const low = Math.min(Math.floor(place), MAP.length - 2), part = place - low;
  return MAP[low].map((value, channel) => value + (MAP[low + 1][channel] - value) * part);
}

function paint(canvas, body) {
  const values = body.celsius;
  const known = values.filter((value) => value !== null);
  if (!known.length) return;
  const most = Math.max(...known), least = Math.min(...known), range = Math.max(most - least, 8);
  const small = new OffscreenCanvas(32, 24);
  const image = new ImageData(32, 24);
  values.slice(0, 768).forEach((value, index) => {
    const rgb = value === null ? [40, 40, 40] : colour((value - least) / range);
    image.data.set([...rgb, 255], index * 4);
  });
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d"), scale = canvas.width / 32;
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  const hottest = values.indexOf(most);
  context.strokeStyle = "#fff";
  context.lineWidth = 2;
  context.strokeRect((hottest % 32) * scale - 2, Math.floor(hottest / 32) * scale - 2, scale + 4, scale + 4);
}

function drawViews() {
  const states = new Map(page.zones.map((zone) => [zoneKey(zone), stateOf(zone)]));
  const state = (device) => states.get(`${device.namespace}/${device.zone}`) || "normal";
  const all = page.devices.filter((device) => device.pictureNs !== "0" || device.thermal || device.fleet.includes("/cameras/"));
  all.sort((a, b) => SEVERITY.indexOf(state(b)) - SEVERITY.indexOf(state(a)) || a.covered - b.covered || a.id.localeCompare(b.id, "en", { numeric: true }));
  get("views-section").hidden = !all.length;
  const shown = all.slice(0, VIEWS);
  say(get("views-count"), all.length > shown.length ? `${shown.length} of ${all.length}, the most urgent first` : `${all.length}`);
  sync(get("views"), shown, deviceKey, (device) => {
    const item = make("li", "view");
    const screen = make(device.thermal && device.pictureNs === "0" ? "canvas" : "img", "screen");
    if (screen.tagName === "CANVAS") { screen.width = 320; screen.height = 240; screen.setAttribute("role", "img"); }
    const caption = make("p", "caption");
    caption.append(make("b"), make("span"), make("span", "age"));
    item.append(screen, make("p", "hot"), make("p", "dark"), caption);
    return item;
  }, (item, device) => {
    item.dataset.state = state(device);
    item.classList.toggle("unwatched", !device.covered && device.declared);
    const screen = item.querySelector(".screen"), thermal = screen.tagName === "CANVAS";
    const at = thermal ? device.thermalNs : device.pictureNs;
    if (item.dataset.at !== at && at !== "0") {
      item.dataset.at = at;
      if (thermal) fetchJson(`${devicePath(device)}/thermal`).then((body) => paint(screen, body), () => { item.dataset.at = ""; });
      else screen.src = `${devicePath(device)}/snapshot.jpg?at=${at}`;
    }
    const hot = device.thermal && device.thermal.hottest !== null ? device.thermal : null;
    say(item.querySelector(".hot"), hot ? (hot.relative ? `${amount(hot.hottest)} (rise)` : `${hot.hottest.toFixed(1)} °C`) : "");
    const label = `${device.id}, ${device.zone}${hot && !hot.relative ? `, hottest ${hot.hottest.toFixed(1)} °C` : ""}`;
    if (thermal) screen.setAttribute("aria-label", label);
    else if (screen.alt !== label) screen.alt = label;
    const [name, about, age] = item.querySelector(".caption").children;
    say(name, device.id);
    say(about, device.declared ? device.zone : "not declared");
    say(age, at === "0" ? "" : span(hubNow() - milliseconds(at)));
    const dark = item.querySelector(".dark");
    dark.hidden = device.covered || !device.declared;
    if (!dark.hidden && dark.dataset.reason !== device.reason) {
      dark.dataset.reason = device.reason;
      dark.replaceChildren(make("b", "", "DARK"), make("span", "", device.reason));
    }
  });
}

// ---- the device table

function column(term) {
  const name = term.name || "";
  if (term.unit === "°C" && /max|hot/.test(name)) return "max";
  if (term.unit === "°C" && /mean|average/.test(name)) return "mean";
  if (term.unit === "%" && /smoke/.test(name)) return "smoke";
  if (term.unit === "ppm") return "gas";
  return "also";
}

function analysed(ledger) {
  const offered = Number((ledger || {}).offered || 0);
  if (!offered) return ["–", "nothing was offered yet"];
  const sum = (reasons) => Object.values(reasons || {}).reduce((total, count) => total + Number(count), 0);
  const parts = [`analysed ${ledger.analysed || 0}`, `duplicate ${ledger.duplicate || 0}`, `waiting ${ledger.waiting || 0}`];
  for (const name of ["shed", "rejected"]) {
    const reasons = Object.entries(ledger[name] || {});
    const detail = reasons.length ? ` (${reasons.map((entry) => entry.join(" ")).join(", ")})` : "";
    parts.push(`${name} ${sum(ledger[name])}${detail}`);
  }
  const share = Math.floor((1000 * Number(ledger.analysed || 0)) / offered) / 10;
  return [`${share} %`, `offered ${offered} = ${parts.join(" + ")}`];
}

function drawDevices() {
  const wanted = get("filter").value.trim().toLowerCase();
  const text = (device) => [device.id, device.zone, device.location, device.state, device.reason, device.fleet, device.covered ? "watched" : "dark"].join(" ").toLowerCase();
  const all = page.devices.filter((device) => !wanted || text(device).includes(wanted));
  all.sort((a, b) => a.covered - b.covered || a.zone.localeCompare(b.zone, "en", { numeric: true }) || a.id.localeCompare(b.id, "en", { numeric: true }));
  const shown = all.slice(0, ROWS);
  say(get("devices-count"), all.length > shown.length ? `${shown.length} of ${all.length}: filter to see others` : `${all.length}`);
  sync(get("devices"), shown, deviceKey, (device) => {
    const row = make("tr");
    for (let index = 0; index < 11; index += 1) row.append(make(index ? "td" : "th", [3, 4, 5, 6, 8, 9].includes(index) ? "number" : ""));
    row.firstChild.scope = "row";
    row.children[2].append(make("span"));
    row.firstChild.title = device.fleet;
    return row;
  }, (row, device) => {
    const cells = row.children, values = { max: [], mean: [], smoke: [], gas: [], also: [] };
    for (const term of device.latest || []) {
      const where = column(term);
      values[where].push(where === "also" ? `${(term.name || "").replaceAll(".", " ")} ${amount(term.value || 0, term.unit)}` : amount(term.value || 0));
    }
    row.classList.toggle("unwatched", !device.covered);
    say(cells[0], device.id);
    say(cells[1], device.location ? `${device.zone} · ${device.location}` : device.zone);
    const watched = cells[2].firstChild;
    watched.className = device.covered ? "yes" : "no";
    say(watched, device.covered ? `yes${device.state ? ` · ${device.state}` : ""}` : `${device.declared ? "dark" : "not watched"}: ${device.reason}`);
    ["max", "mean", "smoke", "gas"].forEach((name, index) => say(cells[3 + index], values[name].join(" / ")));
    say(cells[7], values.also.join(", "));
    say(cells[8], Number(device.heardNs || 0) ? span(hubNow() - milliseconds(device.heardNs)) : "never");
    const [share, detail] = analysed(device.ledger);
    say(cells[9], share);
    if (cells[9].title !== detail) cells[9].title = detail;
    say(cells[10], (device.shards || []).join(", "));
  });
}

// ---- begin

// ---- who is signed in, and what people did

async function followMe() {
  while (!page.me) {
    try { page.me = await fetchJson("/v1/access/me"); draw(); } catch { await wait(1000); }
  }
}

async function showAudit(before) {
  try {
    const { entries } = await fetchJson(`/v1/audit?limit=100&before=${before}`);
    if (!before) get("audit-entries").replaceChildren();
    for (const entry of entries) {
      const row = make("tr");
      const time = new Date(milliseconds(entry.timeNs)).toLocaleString("en-GB");
      for (const text of [time, `${entry.who} · ${entry.role}`, entry.address, entry.action, entry.subject, entry.detail]) row.append(make("td", "", text));
      get("audit-entries").append(row);
    }
    get("audit-more").disabled = entries.length < 100;
    get("audit-more").onclick = () => showAudit(entries.at(-1).number);
    if (!before) get("audit").showModal();
  } catch (error) { toast(error.message); }
}

get("audit-open").onclick = () => showAudit(0);
get("audit-close").onclick = () => get("audit").close();
get("sign-out").onclick = () => postJson("/v1/access/logout", {}).then(({ next }) => location.assign(next), (error) => toast(error.message));
get("viewer-close").onclick = () => get("viewer").close();
get("ask-cancel").onclick = () => get("ask").close();
get("filter").oninput = drawDevices;
setInterval(draw, 1000);
follow("/v1/zones", ZONES_MS, takeZones);
follow("/v1/devices", DEVICES_MS, (body) => { page.devices = body.devices; });
followEvents();
followClips();
followMe();
draw();
