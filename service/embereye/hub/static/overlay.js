// A sensor's thermal picture over a camera's picture, as somebody has adjusted it; stored for all users.

import { deviceKey, devicePath, elapsed, fetchJson, get, hubNow, loadInstead, make, mayAct, milliseconds, page, paint, problem, say, sendJson, toast, unique } from "./lib.js";
import { t } from "./messages.js";

const OVERLAYS_MS = 5000;
const THERMAL_MS = 2000;
const OLD_MS = 60000;        // an older thermal picture is not shown; with thousands of sensors, each waits for its turn
const ASKED = 500;           // devices per request when searching for thermal pictures
const DEFAULT = { x: 0.5, y: 0.5, scale: 0.6, opacity: 0.6 };
const CONTROLS = ["x", "y", "scale", "opacity"];

const overlays = { all: new Map(), at: -Infinity, pictures: new Map() };
let camera = null;           // the camera whose overlay is being adjusted

const path = (device) => {
  const [namespace, , fleet] = device.fleet.split("/");
  return `/v1/overlays/${[namespace, fleet, device.id].map(encodeURIComponent).join("/")}`;
};
const sensorOf = (overlay) => ({ fleet: overlay.fleet, id: overlay.sensor });

async function load() {
  overlays.at = elapsed();
  try {
    const body = await fetchJson("/v1/overlays");
    overlays.all = new Map(body.overlays.map((overlay) => [deviceKey(overlay.camera), overlay]));
  } catch { /* the known overlays remain */ }
}

/** Draw the thermal picture of `sensor` on `canvas`; draw nothing if there is no current one. */
async function draw(canvas, sensor) {
  const key = deviceKey(sensor), known = overlays.pictures.get(key) || { at: -Infinity, body: null };
  if (elapsed() - known.at > THERMAL_MS) {
    overlays.pictures.set(key, { ...known, at: elapsed() });
    try { known.body = await fetchJson(`${devicePath(sensor)}/thermal`); } catch { known.body = null; }
    overlays.pictures.set(key, { ...known, at: elapsed() });
  }
  const shown = overlays.pictures.get(key).body;
  if (shown && hubNow() - milliseconds(shown.timeNs) < OLD_MS) paint(canvas, shown, true);
  else canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
}

/** Place `canvas` over `image` as `overlay` says; `cover`: the sides of the image are cut off. */
function lay(canvas, image, overlay, cover) {
  const width = image.clientWidth, height = image.clientHeight;
  if (!image.naturalWidth || !width) return;
  const across = width / image.naturalWidth, down = height / image.naturalHeight;
  const share = cover ? Math.max(across, down) : Math.min(across, down);
  const full = [image.naturalWidth * share, image.naturalHeight * share], wide = full[0] * overlay.scale;
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${wide * 0.75}px`;
  canvas.style.left = `${image.offsetLeft + (width - full[0]) / 2 + overlay.x * full[0] - wide / 2}px`;
  canvas.style.top = `${image.offsetTop + (height - full[1]) / 2 + overlay.y * full[1] - wide * 0.375}px`;
  canvas.style.opacity = String(overlay.opacity);
}

function makeCanvas() {
  const canvas = make("canvas", "thermal");
  Object.assign(canvas, { width: 320, height: 240 });
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

/** Draw the overlay of a camera's view: `item` contains its `.screen`. */
export function drawOverlay(item, device) {
  const overlay = overlays.all.get(deviceKey(device));
  let canvas = item.querySelector(".thermal");
  if (!overlay) { if (canvas) canvas.remove(); return; }
  if (!canvas) { canvas = makeCanvas(); item.querySelector(".screen:not(.live)").after(canvas); }
  lay(canvas, item.querySelector(".screen:not(.live)"), overlay, true);
  draw(canvas, sensorOf(overlay));
}

export const describeOverlay = (device) => {
  const overlay = overlays.all.get(deviceKey(device));
  return overlay ? t("overlay.under", { sensor: overlay.sensor }) : "";
};

// ---- adjusting

const chosen = () => {
  const option = get("overlay-sensor").selectedOptions[0];
  return option && option.value ? { fleet: option.dataset.fleet, id: option.dataset.id } : null;
};
const values = () => Object.fromEntries(CONTROLS.map((name) => [name, Number(get(`overlay-${name}`).value)]));

function preview() {
  const sensor = chosen(), canvas = get("overlay-thermal");
  canvas.hidden = !sensor;
  if (sensor) { lay(canvas, get("overlay-picture"), values(), false); draw(canvas, sensor); }
}

/** Adjust the overlay of `device`, a camera. */
export async function adjustOverlay(device) {
  camera = device;
  const overlay = overlays.all.get(deviceKey(device));
  try {
    const sensors = [];
    for (let offset = 0, total = 1; offset < total; offset += ASKED) {
      const body = await fetchJson(`/v1/devices?pictures=1&offset=${offset}&limit=${ASKED}`);
      total = body.total;
      sensors.push(...body.devices.filter((candidate) => candidate.thermal));
    }
    sensors.sort((a, b) => (b.zone === device.zone) - (a.zone === device.zone) || a.id.localeCompare(b.id));
    if (overlay && !sensors.some((sensor) => deviceKey(sensor) === deviceKey(sensorOf(overlay)))) sensors.unshift({ ...sensorOf(overlay), zone: t("overlay.no-picture") });
    get("overlay-sensor").replaceChildren(...sensors.map((sensor) => {
      const option = make("option", "", `${sensor.id} · ${sensor.zone}`);
      option.value = deviceKey(sensor);
      Object.assign(option.dataset, { fleet: sensor.fleet, id: sensor.id });
      return option;
    }));
    if (!sensors.length) { toast(t("overlay.no-sensor")); return; }
  } catch (error) { toast(problem(error)); return; }
  if (overlay) get("overlay-sensor").value = deviceKey(sensorOf(overlay));
  for (const name of CONTROLS) get(`overlay-${name}`).value = String((overlay || DEFAULT)[name]);
  say(get("overlay-title"), t("overlay.title", { id: device.id }));
  get("overlay-remove").hidden = !overlay;
  get("overlay-save").disabled = get("overlay-remove").disabled = !mayAct() || Boolean(page.failing);
  loadInstead(get("overlay-picture"), device.pictureNs === "0" ? "" : `${devicePath(device)}/snapshot.jpg?at=${unique()}`);
  get("overlay-picture").alt = t("picture.sees", { id: device.id });
  get("overlay").showModal();
  preview();
}

async function change(doing) {
  try {
    await doing;
    await load();
    get("overlay").close();
  } catch (error) { get("overlay").close(); toast(problem(error)); }
}

export function refreshOverlays() {
  if (elapsed() - overlays.at >= OVERLAYS_MS) load();
  if (get("overlay").open) preview();
}

export function setUpOverlay() {
  get("overlay-picture").onload = preview;
  get("overlay-form").oninput = preview;
  get("overlay-form").onsubmit = (event) => {
    event.preventDefault();
    const sensor = chosen();
    if (sensor) change(sendJson("PUT", path(camera), { fleet: sensor.fleet, sensor: sensor.id, ...values() }));
  };
  get("overlay-remove").onclick = () => change(sendJson("DELETE", path(camera), {}));
  get("overlay-cancel").onclick = () => get("overlay").close();
}
