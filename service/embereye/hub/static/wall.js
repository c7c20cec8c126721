// A wall of cameras for a monitor: live pictures, without a mouse. The chosen cameras are in the address.

import { ask as setAddress, asked, pageName } from "./address.js";
import { button, deviceKey, devicePath, elapsed, fetchJson, get, hubNow, make, milliseconds, page, problem, renew, say, span, stateOf, sync, underState, zoneKey, zoneName } from "./lib.js";
import { deviceLink } from "./device.js";
import { liveAge, livePause, showLive } from "./live.js";
import { t } from "./messages.js";
import { said } from "./said.js";

const REFRESH_MS = 2000;
const MOST = 25;             // cameras on the wall
const OFFERED = 200;         // cameras to choose from
const OLD_MS = 5000;

const wall = { cameras: [], total: 0, known: false, at: -Infinity, coming: false, failing: "" };

const chosen = () => (asked().get("cameras") || "").split(",").filter(Boolean);

/** A chosen camera that is not among those offered; undefined: there is none. */
async function find(key) {
  const { devices } = await fetchJson(`/v1/devices?${new URLSearchParams({ pictures: 1, limit: OFFERED, text: key.replaceAll("/", " ") })}`);
  return devices.find((device) => deviceKey(device) === key);
}

async function load() {
  if (wall.coming) return;
  Object.assign(wall, { coming: true, at: elapsed() });
  try {
    const { devices, total } = await fetchJson(`/v1/devices?${new URLSearchParams({ order: "alarm", pictures: 1, limit: OFFERED, text: "/cameras/" })}`);
    const offered = new Set(devices.map(deviceKey)), others = total > devices.length ? chosen().filter((key) => !offered.has(key)) : [];
    const cameras = [...devices, ...await Promise.all(others.slice(0, MOST).map(find))].filter((device) => device?.declared);
    Object.assign(wall, { cameras, total: Math.max(cameras.length, total - devices.filter((device) => !device.declared).length), known: true, failing: "" });
  } catch (error) { wall.failing = problem(error); }
  wall.coming = false;
  draw();
}

/** The cameras on the wall: the chosen ones at their places; without a choice, all, in a fixed order. */
function shown() {
  const known = new Map(wall.cameras.map((device) => [deviceKey(device), device])), wanted = chosen();
  if (wanted.length) return wanted.map((key) => known.get(key)).filter(Boolean).slice(0, MOST);
  return [...wall.cameras].sort((a, b) => deviceKey(a).localeCompare(deviceKey(b))).slice(0, MOST);
}

function choose(key) {
  const wanted = chosen().length ? chosen() : shown().map(deviceKey);
  const next = wanted.includes(key) ? wanted.filter((other) => other !== key) : [...wanted, key];
  setAddress({ cameras: next.join(",") });
  draw();
}

function draw() {
  if (pageName() !== "wall") return;
  const cameras = shown(), keys = cameras.map(deviceKey), states = new Map(page.zones.map((zone) => [zoneKey(zone), stateOf(zone)]));
  say(get("wall-note"), wall.failing || (!wall.known ? t("loading") : wall.cameras.length ? t("of", { covered: cameras.length, declared: wall.total }) : t("wall.none")));
  const columns = Math.ceil(Math.sqrt(cameras.length * (innerWidth > innerHeight ? 1 : 0.4))) || 1;
  get("wall").style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  sync(get("wall"), cameras, deviceKey, (device) => {
    const item = make("li", "view cell"), live = make("canvas", "screen live blank"), caption = make("p", "caption"), name = make("b");
    live.setAttribute("aria-hidden", "true");
    name.append(deviceLink(device, "whole"));
    caption.append(name, make("span"), make("span", "age"));
    item.append(make("img", "screen"), live, make("p", "dark"), caption);
    return item;
  }, (item, device) => {
    const live = item.querySelector("canvas"), still = item.querySelector("img"), at = device.pictureNs;
    item.dataset.state = states.get(`${device.namespace}/${device.zone}`) || "normal";
    item.classList.toggle("unwatched", !device.covered);
    showLive(live, device);
    if (at !== "0" && item.dataset.at !== at && liveAge(live) === Infinity && item.coming?.complete !== false) {
      item.dataset.at = at;
      still.alt = t("picture.sees", { id: device.id });
      item.coming = renew(still, `${devicePath(device)}/snapshot.jpg?at=${at}`, () => { item.dataset.shown = at; });
    }
    const age = Math.min(liveAge(live), item.dataset.shown ? hubNow() - milliseconds(item.dataset.shown) : Infinity);
    const [, about, old] = item.querySelector(".caption").children, dark = item.querySelector(".dark");
    say(about, [underState(zoneName(device), item.dataset.state), livePause(live)].filter(Boolean).join(" · "));
    say(old, Number.isFinite(age) ? (liveAge(live) < OLD_MS ? t("live") : t("picture.old", { span: span(age) })) : "");
    dark.hidden = device.covered;
    say(dark, device.covered ? "" : t("wall.dark", { reason: said(device.reason) }));
  });
  sync(get("wall-choices"), wall.cameras, deviceKey, (device) => {
    const item = make("li");
    item.append(button(device.id, () => choose(deviceKey(device))));
    return item;
  }, (item, device) => item.firstChild.setAttribute("aria-pressed", String(keys.includes(deviceKey(device)))));
}

export function refreshWall() {
  if (elapsed() - wall.at >= REFRESH_MS) load();
  draw();
}

export function setUpWall() {
  get("wall-full").onclick = () => (document.fullscreenElement ? document.exitFullscreen() : get("main").requestFullscreen());
  get("wall-choose").onclick = () => {
    const open = get("wall-choices").toggleAttribute("hidden");
    get("wall-choose").setAttribute("aria-expanded", String(!open));
  };
}
