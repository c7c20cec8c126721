// Regions drawn on a device's picture: masks, which are not analysed, those that nobody may see, and measuring areas of a
// thermal picture. The page writes the lines for the device's fleet.

import { devicePath, fetchJson, get, loadInstead, paint, problem, say, svg, sync, toast, unique } from "./lib.js";
import { t } from "./messages.js";

const MOST = 8, AREAS = 16;  // masks of a camera, measuring areas of a device, and …
const CORNERS = 32;          // … corners of one, as a CameraFleet accepts them
const SIDE = 1000;           // of the drawing, in its own units
const STEP = 20, FINE = 4;   // by which an arrow key moves the cross
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const drawn = { device: null, areas: false, masks: [], corners: [], cross: null, had: new Set() };

const share = (value) => Math.round(Math.min(SIDE, Math.max(0, value))) / SIDE;

const fieldOf = ({ hide }) => (drawn.areas ? "areas" : hide ? "privacyMasks" : "masks");

/** The regions drawn last, as fields of manifests, and their device; null: all regions of that kind were removed. */
export function drawnMasks() {
  const fields = Object.fromEntries([...drawn.had].map((field) => [field, null]));
  for (const mask of drawn.masks) {
    const points = mask.corners.map(([left, top]) => ({ left: share(left), top: share(top) }));
    (fields[fieldOf(mask)] ??= []).push({ ...(drawn.areas && mask.area), points });
  }
  return { device: drawn.device, fields };
}

/** Begin with `regions`, which the device has. */
function begin(regions) {
  drawn.masks = regions.map(({ name, limit, kind, x, y }) => ({ corners: x.map((left, corner) => [left * SIDE, y[corner] * SIDE]), hide: kind === "privacy", area: { name, limit, kind } }));
  drawn.had = new Set(drawn.masks.map(fieldOf));
  draw();
}

/** The lines of the camera in its CameraFleet. */
function lines() {
  const points = (corners) => corners.map(([left, top]) => `{left: ${share(left)}, top: ${share(top)}}`).join(", ");
  const area = ({ name, limit, kind }, corners) => `    - {name: ${JSON.stringify(name)}, limit: ${limit}, kind: ${kind}, points: [${points(corners)}]}`;
  if (drawn.areas) return [`- id: ${drawn.device.id}`, "  areas:", ...drawn.masks.map((mask) => area(mask.area, mask.corners))].join("\n");
  const group = (name, masks) => (masks.length ? [`  ${name}:`, ...masks.map(({ corners }) => `    - points: [${points(corners)}]`)] : []);
  const [hidden, ignored] = [true, false].map((hide) => drawn.masks.filter((mask) => mask.hide === hide));
  return [`- id: ${drawn.device.id}`, ...group("masks", ignored), ...group("privacyMasks", hidden)].join("\n");
}

function draw() {
  const { masks, corners, cross } = drawn, shapes = masks.map(({ corners: points, hide }, index) => ({ key: `mask-${index}`, points, look: hide ? "mask private" : "mask" }));
  if (corners.length) shapes.push({ key: "open", points: corners, look: "open" });
  if (cross) shapes.push({ key: "cross", points: [[cross[0] - 25, cross[1]], [cross[0] + 25, cross[1]], cross, [cross[0], cross[1] - 25], [cross[0], cross[1] + 25]], look: "cross" });
  sync(get("masks-drawing"), shapes, ({ key }) => key, () => svg("polyline"), (shape, { points, look }) => {
    shape.setAttribute("class", look);
    shape.setAttribute("points", (look.startsWith("mask") ? [...points, points[0]] : points).map((point) => point.join(",")).join(" "));
  });
  say(get("masks-note"), corners.length ? t("masks.open", { n: corners.length }) : t(drawn.areas ? "areas.count" : "masks.count", { n: masks.length }));
  get("masks-close-shape").disabled = corners.length < 3;
  get("masks-back").disabled = !corners.length && !masks.length;
  get("masks-copy").disabled = !masks.length;
  get("masks-lines").hidden = !masks.length;
  say(get("masks-lines"), masks.length ? lines() : "");
}

function addCorner(point) {
  const most = drawn.areas ? AREAS : MOST;
  if (drawn.masks.length >= most || drawn.corners.length >= CORNERS) { toast(t("masks.most", { masks: most, corners: CORNERS })); return; }
  drawn.corners.push(point);
  draw();
}

function closeShape() {
  if (drawn.corners.length < 3) return;
  const name = get("masks-name").value.trim(), limit = get("masks-limit").valueAsNumber;
  if (drawn.areas && (!name || Number.isNaN(limit) || drawn.masks.some(({ area }) => area.name === name))) { toast(t("areas.name-first")); get("masks-name").focus(); return; }
  drawn.masks.push({ corners: drawn.corners, hide: get("masks-private").checked, area: { name, limit, kind: get("masks-kind").value } });
  drawn.corners = [];
  get("masks-name").value = "";
  draw();
}

/** Remove the latest corner, or open the latest mask again. */
function goBack() {
  if (drawn.corners.length) drawn.corners.pop();
  else drawn.corners = drawn.masks.pop()?.corners || [];
  draw();
}

function byKey(event) {
  const move = MOVES[event.key];
  if (event.key === "Enter" && drawn.cross) addCorner([...drawn.cross]);
  else if (event.key === " ") closeShape();
  else if (event.key === "Backspace") goBack();
  else if (move) {
    const step = event.shiftKey ? FINE : STEP, [x, y] = drawn.cross || [SIDE / 2, SIDE / 2];
    drawn.cross = [x + move[0] * step, y + move[1] * step].map((value) => Math.min(SIDE, Math.max(0, value)));
    draw();
  } else return;
  event.preventDefault();
}

function open(device, areas) {
  Object.assign(drawn, { device, areas, masks: [], corners: [], cross: null, had: new Set() });
  say(get("masks-title"), t(areas ? "areas.title" : "masks.title", { id: device.id }));
  say(get("masks-text"), t(areas ? "areas.text" : "masks.text"));
  get("masks-picture").hidden = get("masks-hide").hidden = areas;
  get("masks-thermal").hidden = get("masks-area").hidden = !areas;
  draw();
  get("masks").showModal();
}

/** Draw masks for the camera `device`, beginning with those of its `regions`. */
export function drawMasks(device, regions) {
  loadInstead(get("masks-picture"), device.pictureNs === "0" ? "" : `${devicePath(device)}/snapshot.jpg?at=${unique()}`);
  get("masks-picture").alt = t("picture.sees", { id: device.id });
  open(device, false);
  begin(regions.filter(({ kind }) => kind === "mask" || kind === "privacy"));
}

/** Draw measuring areas on the thermal picture of `device`, beginning with those that it has. */
export function drawAreas(device) {
  const canvas = get("masks-thermal");
  canvas.setAttribute("aria-label", t("picture.thermal-of", { id: device.id }));
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);  // the picture of another device
  fetchJson(`${devicePath(device)}/thermal`).then((body) => {
    if (drawn.device !== device) return;
    paint(canvas, { ...body, areas: [] });
    if (drawn.masks.length || drawn.corners.length) return;
    begin(body.areas || []);
  }, (error) => toast(problem(error)));
  open(device, true);
}

export function setUpMasks() {
  get("masks-drawing").onclick = (event) => {
    const { left, top, width, height } = get("masks-drawing").getBoundingClientRect();
    drawn.cross = null;
    addCorner([((event.clientX - left) / width) * SIDE, ((event.clientY - top) / height) * SIDE].map(Math.round));
  };
  get("masks-drawing").onkeydown = byKey;
  get("masks-close-shape").onclick = closeShape;
  get("masks-back").onclick = goBack;
  get("masks-copy").onclick = () => navigator.clipboard.writeText(lines()).then(() => toast(t("masks.copied")), () => toast(t("masks.select")));
  get("masks-close").onclick = () => get("masks").close();
}
