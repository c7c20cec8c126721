// Plans of the building: devices at their places, zones coloured by state. An admin uploads plans and places devices.

import { asked, ask as address, onHub, pageName } from "./address.js";
import { ask, button, deviceKey, devicePath, elapsed, fetchJson, get, make, page, problem, renew, say, sendJson, stateOf, stateWord, sync, toast, unique, withState, zoneKey, zoneName } from "./lib.js";
import { deviceAddress } from "./device.js";
import { t } from "./messages.js";
import { said } from "./said.js";

const REFRESH_MS = 2000;
const SAVE_MS = 500;         // after the last key press that moved a device
const STEP = 0.01, FINE = 0.001;  // of the plan's width, per key press
const FOUND = 12;            // devices offered at once
const ASKED = 500;           // devices per request when searching for them
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const plan = { all: [], shown: null, known: false, editing: false, dragged: "", unsaved: new Map(), changes: 0, at: -Infinity, chosen: "", inspected: "", coming: null, failing: "" };

const path = (name) => `/v1/plans/${encodeURIComponent(name)}`;
const placePath = (device) => `${path(plan.shown.name)}${devicePath(device).replace("/v1", "")}`;
const mayEdit = () => page.me !== null && page.me.role === "admin";

async function load() {
  plan.at = elapsed();
  const changes = plan.changes;
  try {
    plan.all = (await fetchJson("/v1/plans")).plans;
    const wanted = asked().get("name"), name = (plan.all.find((candidate) => candidate.name === wanted) || plan.all[0] || {}).name;
    const current = name === undefined ? null : await fetchJson(path(name));
    // A device that is being moved stays under the hand, and an answer from before a change is out of date.
    if (!plan.dragged && !plan.unsaved.size && changes === plan.changes) plan.shown = current;
    Object.assign(plan, { known: true, failing: "" });
  } catch (error) { plan.failing = problem(error); }
  if (pageName() !== "plan") return;
  draw();
  refreshPicture();
  if (plan.editing && unknown) find();
}

// ---- drawing

function draw() {
  const shown = plan.shown, editing = plan.editing && mayEdit();
  get("plan-edit").hidden = !mayEdit();
  get("plan-edit").setAttribute("aria-pressed", String(editing));
  get("plan-tools").hidden = !editing;
  get("plan-placing").hidden = !editing || !shown;
  get("plan-remove").hidden = !shown;
  get("plan-view").hidden = !shown;
  const none = mayEdit() ? t("plan.none-admin") : t("plan.none");
  say(get("plan-empty"), plan.failing || (plan.known ? none : t("loading")));
  get("plan-empty").hidden = Boolean(shown) && !plan.failing;
  sync(get("plan-tabs"), plan.all, (candidate) => candidate.name, (candidate) => {
    const item = make("li");
    item.append(button(candidate.name, () => choose(candidate.name)));
    return item;
  }, (item, candidate) => item.firstChild.setAttribute("aria-pressed", String(shown !== null && candidate.name === shown.name)));
  if (!shown) return;
  const image = get("plan-image");
  const picture = onHub(shown.image);
  if (image.getAttribute("src") !== picture) { image.src = picture; image.alt = t("plan.alt", { name: shown.name }); }
  const zones = new Map(page.zones.map((zone) => [zoneKey(zone), zone])), groups = byZone(shown.devices);
  drawAreas(shown, zones, groups);
  sync(get("plan-devices"), shown.devices, deviceKey, makeMarker, (item, device) => drawMarker(item, device, zones));
  drawZones(zones, groups);
  drawInspected();
}

/** A zone's appearance: its state, or fault if one of its devices is dark. */
function lookOf(zone) {
  if (!zone) return ["unknown", stateWord("unknown")];
  const state = stateOf(zone), faults = (zone.faults || []).length;
  const words = [stateWord(state), faults ? t("plan.dark", { faults }) : "", (zone.silences || []).length ? t("tag.silenced") : "", zone.testing ? t("tag.test") : ""].filter(Boolean);
  return [state === "normal" && faults ? "fault" : state, words.join(", ")];
}

function byZone(devices) {
  const groups = new Map();
  for (const device of devices) {
    if (!device.zone) continue;
    const key = `${device.namespace}/${device.zone}`;
    if (groups.has(key)) groups.get(key).push(device);
    else groups.set(key, [device]);
  }
  return [...groups.entries()].map(([key, members]) => ({ key, name: zoneName(members[0]), members }));
}

/** The smallest convex area that contains all `points` (Andrew's monotone chain). */
function hull(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = (ordered) => {
    const chain = [];
    for (const point of ordered) {
      while (chain.length > 1 && turn(chain.at(-2), chain.at(-1), point) <= 0) chain.pop();
      chain.push(point);
    }
    return chain.slice(0, -1);
  };
  return sorted.length < 2 ? sorted : [...half(sorted), ...half(sorted.reverse())];
}

function svg(tag, parent) {
  return parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
}

function drawAreas(shown, zones, groups) {
  const areas = get("plan-areas"), unit = Math.min(shown.width, shown.height);
  areas.setAttribute("viewBox", `0 0 ${shown.width} ${shown.height}`);
  sync(areas, groups, (zone) => zone.key, () => {
    const group = document.createElementNS("http://www.w3.org/2000/svg", "g");
    svg("path", group);
    svg("text", group);
    return group;
  }, (group, zone) => {
    const points = zone.members.map((device) => [device.x * shown.width, device.y * shown.height]);
    const corners = hull(points), [area, label] = group.children;
    group.dataset.state = lookOf(zones.get(zone.key))[0];
    area.setAttribute("d", `M${(corners.length > 1 ? corners : [points[0], points[0]]).map((point) => point.join(" ")).join("L")}Z`);
    area.setAttribute("stroke-width", String(unit * 0.16));
    label.setAttribute("x", String(points.reduce((sum, point) => sum + point[0], 0) / points.length));
    label.setAttribute("y", String(Math.max(unit * 0.05, Math.min(...points.map((point) => point[1])) - unit * 0.07)));
    label.setAttribute("font-size", String(unit * 0.042));
    say(label, withState(zone.name, group.dataset.state));
  });
}

function makeMarker(device) {
  const item = make("li"), marker = button("", () => select(deviceKey(device)), "", "marker");
  marker.dataset.kind = device.fleet.includes("/cameras/") ? "camera" : "sensor";
  marker.onpointerdown = (event) => drag(event, item, marker);
  marker.onkeydown = (event) => moveByKey(event, item);
  item.append(marker);
  return item;
}

function drawMarker(item, device, zones) {
  const marker = item.firstChild, zone = zones.get(`${device.namespace}/${device.zone}`);
  item.style.left = `${100 * device.x}%`;
  item.style.top = `${100 * device.y}%`;
  marker.dataset.state = device.covered ? lookOf(zone)[0] === "fault" ? "normal" : lookOf(zone)[0] : "dark";
  marker.classList.toggle("chosen", plan.chosen === deviceKey(device));
  say(marker, device.covered ? "" : "!");
  const text = `${device.id}, ${device.zone || t("plan.no-zone")}: ${device.covered ? lookOf(zone)[1] : t("plan.dark-reason", { reason: said(device.reason) })}`;
  if (marker.title !== text) { marker.title = text; marker.setAttribute("aria-label", text); }
  if (plan.editing) marker.setAttribute("aria-describedby", "plan-keys");
  else marker.removeAttribute("aria-describedby");
}

function drawZones(zones, groups) {
  sync(get("plan-zones"), groups, (zone) => zone.key, (zone) => {
    const item = make("li"), head = make("p", "head", zone.name);
    head.append(make("span"));
    item.append(head, make("p", "why"));
    return item;
  }, (item, { key, members }) => {
    const zone = zones.get(key), [look, words] = lookOf(zone), dark = members.filter((device) => !device.covered);
    item.dataset.state = look;
    say(item.querySelector("span"), words);
    const reasons = [zone ? said(zone.why) : "", ...dark.map((device) => t("focus.dark", { id: device.id, reason: said(device.reason) }))].filter(Boolean);
    say(item.querySelector(".why"), reasons.join("; ") || t("plan.devices-here", { n: members.length }));
  });
}

function select(key) {
  plan.chosen = key;
  if (!plan.editing) plan.inspected = key;
  for (const picture of [get("plan-picture"), plan.coming]) picture?.removeAttribute("src");  // of another camera
  draw();
  refreshPicture();
}

/** The device whose details are shown. */
const inspected = () => plan.shown?.devices.find((device) => deviceKey(device) === plan.inspected);

function drawInspected() {
  const device = inspected();
  get("plan-chosen").hidden = !device;
  if (!device) return;
  say(get("plan-detail"), `${device.id}, ${device.zone || t("plan.no-zone")}: ${device.covered ? t("page.watched") : t("plan.dark-reason", { reason: said(device.reason) })}`);
  say(get("plan-open"), t("plan.open", { id: device.id }));
  get("plan-open").href = deviceAddress(device);
  get("plan-picture").hidden = !device.hasPicture;
  get("plan-picture").alt = t("picture.sees", { id: device.id });
}

/** Load the shown camera's present picture, unless one is loading. */
function refreshPicture() {
  const picture = get("plan-picture"), device = inspected();
  if (!device?.hasPicture || plan.coming?.complete === false) return;
  plan.coming = renew(picture, `${devicePath(device)}/snapshot.jpg?at=${unique()}`, draw);
}

// ---- changes by an admin

const deviceOf = (item) => plan.shown.devices.find((device) => deviceKey(device) === item.dataset.key);
const within = (share) => Math.min(1, Math.max(0, share));

function put(device, x, y) {
  device.x = within(x);
  device.y = within(y);
  plan.unsaved.set(deviceKey(device), { x: device.x, y: device.y });
  plan.changes += 1;
  say(get("plan-note"), t("plan.place", { id: device.id, left: Math.round(100 * device.x), top: Math.round(100 * device.y) }));
  draw();
}

async function save(device) {
  const key = deviceKey(device), moved = plan.unsaved.get(key);
  if (!moved) return;
  try { await sendJson("PUT", placePath(device), moved); } catch (error) { toast(problem(error)); }
  if (plan.unsaved.get(key) === moved) plan.unsaved.delete(key);
  plan.changes += 1;
}

const saving = new Map();    // by device: the timer that saves it when nobody has moved it for a moment
function moveByKey(event, item) {
  const device = deviceOf(item), move = MOVES[event.key];
  if (!plan.editing || !device) return;
  if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); removeDevice(device); return; }
  if (!move) return;
  event.preventDefault();
  const step = event.shiftKey ? FINE : STEP, ratio = plan.shown.width / plan.shown.height;
  put(device, device.x + move[0] * step, device.y + move[1] * step * ratio);
  clearTimeout(saving.get(deviceKey(device)));
  saving.set(deviceKey(device), setTimeout(() => save(device), SAVE_MS));
}

function drag(event, item, marker) {
  if (!plan.editing || event.button !== 0) return;
  event.preventDefault();  // or the browser would drag the picture
  marker.focus();
  const device = deviceOf(item);
  plan.dragged = item.dataset.key;
  marker.setPointerCapture(event.pointerId);
  marker.onpointermove = (moved) => {
    const { left, top, width, height } = get("plan-board").getBoundingClientRect();
    put(device, (moved.clientX - left) / width, (moved.clientY - top) / height);
  };
  marker.onpointerup = marker.onpointercancel = () => {
    marker.onpointermove = marker.onpointerup = marker.onpointercancel = null;
    plan.dragged = "";
    save(device);
  };
}

async function removeDevice(device) {
  try {
    await sendJson("DELETE", placePath(device), {});
    plan.unsaved.delete(deviceKey(device));
    plan.changes += 1;
    plan.shown.devices = plan.shown.devices.filter((placed) => placed !== device);
    say(get("plan-note"), t("plan.removed", { id: device.id }));
    (get("plan-devices").querySelector("button") || get("plan-find")).focus();
  } catch (error) { toast(problem(error)); }
  draw();
}

let finding = 0;
let unknown = false;         // no device was declared at the last request: a starting hub learns of them later
async function find() {
  const turn = ++finding, wanted = get("plan-find").value.trim();
  try {
    const free = [];
    let declared = 0;
    for (let offset = 0, total = 1; offset < total && free.length < FOUND; offset += ASKED) {
      const body = await fetchJson(`/v1/devices?${new URLSearchParams({ text: wanted, offset, limit: ASKED })}`);
      if (turn !== finding || !plan.shown) return;
      total = body.total;
      const placed = new Set(plan.shown.devices.map(deviceKey)), known = body.devices.filter((device) => device.declared);
      declared += known.length;
      free.push(...known.filter((device) => !placed.has(deviceKey(device))));
    }
    unknown = !declared;
    free.splice(FOUND);
    say(get("plan-found"), free.length ? "" : t("plan.no-device"));
    sync(get("plan-free"), free, deviceKey, (device) => {
      const item = make("li");
      item.append(button(`${device.id} · ${device.zone}`, () => add(device), t("plan.place-device", { id: device.id, zone: device.zone })));
      return item;
    });
  } catch (error) { say(get("plan-found"), problem(error)); }
}

/** Place a new device in the middle of the visible part, with the keyboard's focus. */
async function add(device) {
  const view = get("plan-scroll"), board = get("plan-board").getBoundingClientRect(), frame = view.getBoundingClientRect();
  const x = within((frame.left + frame.width / 2 - board.left) / board.width);
  const y = within((Math.min(frame.bottom, board.bottom) + Math.max(frame.top, board.top)) / 2 / board.height - board.top / board.height);
  try {
    const placed = await sendJson("PUT", placePath(device), { x, y });
    plan.changes += 1;
    plan.shown.devices.push(placed);
    draw();
    await find();
    [...get("plan-devices").children].find((item) => item.dataset.key === deviceKey(device)).firstChild.focus();
    say(get("plan-note"), t("plan.placed", { id: device.id }));
  } catch (error) { toast(problem(error)); }
}

async function upload(event) {
  event.preventDefault();
  const [file] = get("plan-file").files, name = get("plan-name").value.trim();
  if (!file) { say(get("plan-note"), t("plan.choose")); return; }
  say(get("plan-note"), t("plan.uploading"));
  try {
    await fetchJson(path(name), { method: "PUT", headers: { "Content-Type": file.type || "application/octet-stream" }, body: file, patience: 90000 });
    say(get("plan-note"), t("plan.stored", { name }));
    get("plan-form").reset();
    choose(name);
  } catch (error) { say(get("plan-note"), problem(error)); }
}

async function remove() {
  const { name } = plan.shown;
  const text = t("plan.remove-text");
  if (!await ask({ title: t("plan.remove-title", { name }), text, ok: t("plan.remove-ok"), send: () => sendJson("DELETE", path(name), {}) })) return;
  address({});
  load();
}

function choose(name) {
  address({ name });
  plan.chosen = plan.inspected = "";
  load();
}

function edit() {
  plan.editing = !plan.editing;
  get("plan-name").value = plan.editing && plan.shown ? plan.shown.name : "";
  draw();
  if (plan.editing) find();
}

export const showPlan = () => load();

export function refreshPlan() {
  if (elapsed() - plan.at >= REFRESH_MS) load();
  else draw();
}

export function setUpPlan() {
  get("plan-edit").onclick = edit;
  get("plan-form").onsubmit = upload;
  get("plan-remove").onclick = remove;
  get("plan-find").oninput = find;
  get("plan-zoom").onchange = () => { get("plan-board").style.width = `${get("plan-zoom").value}%`; };
}
