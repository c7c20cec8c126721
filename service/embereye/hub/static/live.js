// Live pictures of devices, each on a canvas, only while the canvas is on screen. A video is played, and its pictures are
// drawn on the canvas; where a browser does not play it, the hub sends pictures. Of a thermal sensor it sends each frame.

import { onHub } from "./address.js";
import { deviceKey, devicePath, elapsed, fetchJson, hubNow, page, paint, sinceAnswer } from "./lib.js";
import { t } from "./messages.js";
import { closePlayer, openPlayer, play, playable } from "./player.js";
import { said } from "./said.js";

const CURRENT_MS = 3000;     // an older live picture is hidden: the latest still below it has its own age
const PAUSES_MS = [500, 1000, 2000, 5000, 10000];  // between two attempts
const AWAY_MS = 2500;        // without an answer for so long, the hub is away
const SILENT_MS = 15000;     // a connection that brings nothing for so long may have ended without notice
const START_MS = 8000;       // a video that shows nothing for so long is replaced by pictures
const FAILURES = 3;          // of a video in a row, after which pictures replace it
const MAX_SIDE = 1920;       // pixels of a drawn video
const THERMAL = 0x54;        // the first byte of a thermal picture
const PIXELS = 768;
const MISSING = -32768;      // of a pixel that was not measured
const OVERLOADED = /overloaded/;  // in the reason of a shard that pauses its live pictures

const views = new Map();     // canvas → its view
let away = false;            // the hub did not answer

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const view = views.get(target);
    if (view) { view.onScreen = isIntersecting; turn(view); }
  }
});

/** Open or close the connection of `view`, as needed. */
function turn(view) {
  const wanted = view.onScreen && !document.hidden && view.canvas.isConnected && views.get(view.canvas) === view;
  if (!wanted) { clearTimeout(view.timer); view.timer = 0; hangUp(view.socket); view.socket = null; stop(view); return; }
  if (view.socket || view.timer) return;
  Object.assign(view, { encoding: "", heard: elapsed() });  // the hub names an encoding again
  const plays = view.broken < FAILURES ? playable.filter((name) => !view.unplayable.has(name)) : [];
  const socket = view.socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${onHub(view.path)}?plays=${plays}`);
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => { if (view.socket === socket) take(view, data); };
  socket.onclose = ({ reason }) => {
    if (view.socket !== socket) return;
    view.socket = null;
    stop(view);
    view.reason = reason;
    view.timer = setTimeout(() => { view.timer = 0; turn(view); }, PAUSES_MS[Math.min(view.failed, PAUSES_MS.length - 1)] * (0.7 + Math.random() * 0.6));
    view.failed += 1;
  };
}

function take(view, data) {
  Object.assign(view, { reason: "", heard: elapsed() });
  if (typeof data === "string") { view.encoding = JSON.parse(data).encoding; return; }
  const start = new Uint8Array(data, 8, 2);
  if (start[0] === THERMAL) drawThermal(view, data);
  else if (start[0] === 0xff && start[1] === 0xd8) { view.failed = 0; stop(view); view.next = data; show(view); }
  else playFragment(view, data);
}

/** Draw a thermal picture: °C in tenths, or raw counts. */
function drawThermal(view, data) {
  const message = new DataView(data), scale = message.getUint8(9) ? 1 : 10;
  const celsius = Array.from({ length: PIXELS }, (_, pixel) => {
    const value = message.getInt16(10 + 2 * pixel);
    return value === MISSING ? null : value / scale;
  });
  paint(view.canvas, { celsius, areas: view.areas });
  Object.assign(view, { at: Number(message.getBigInt64(0)) / 1e6, drawn: elapsed(), failed: 0 });
}

/** Play the next fragment of a video. */
function playFragment(view, data) {
  view.encoding = "";
  if (!view.player) {
    view.player = openPlayer((video, taken) => drawVideo(view, video, taken), (unplayable) => fail(view, unplayable));
    Object.assign(view, { began: elapsed(), playing: false });
  }
  play(view.player, data.slice(8), Number(new DataView(data).getBigInt64(0)) / 1e6);
}

function drawVideo(view, video, taken) {
  const { videoWidth, videoHeight } = video, scale = Math.min(1, MAX_SIDE / Math.max(videoWidth, videoHeight));
  drawPicture(view, video, Math.round(videoWidth * scale), Math.round(videoHeight * scale), taken);
  Object.assign(view, { playing: true, broken: 0, failed: 0 });
}

/** Connect again after a video failed; `unplayable` is an encoding that the browser does not play. */
function fail(view, unplayable) {
  view.player = null;
  view.broken += 1;
  if (unplayable) view.unplayable.add(unplayable);
  hangUp(view.socket);
}

/** Close a connection. Firefox reports one that is closed before it is open as an error of the page. */
function hangUp(socket) {
  if (socket?.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
  else socket?.close();
}

/** Let `view` connect again, and try its video again. */
function reconnect(view) {
  clearTimeout(view.timer);
  hangUp(view.socket);
  stop(view);
  Object.assign(view, { socket: null, timer: 0, failed: 0, broken: 0 });
}

function stop(view) {
  if (view.player) closePlayer(view.player);
  view.player = null;
}

/** Draw `picture`, taken at `at`, on the canvas of `view`. */
function drawPicture(view, picture, width, height, at) {
  const { canvas } = view, context = canvas.getContext("2d");
  if (views.get(canvas) !== view) return;  // it shows another device by now: a picture takes a while to decode
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  context.drawImage(picture, 0, 0, width, height);
  view.drew?.();
  Object.assign(view, { at, drawn: elapsed() });
  canvas.classList.remove("blank");
}

/** Draw the newest picture; those that arrive while one is decoded replace each other. */
async function show(view) {
  if (view.busy || !view.next) return;
  view.busy = true;
  const data = view.next, at = Number(new DataView(data).getBigInt64(0)) / 1e6;
  view.next = null;
  try {
    const picture = await createImageBitmap(new Blob([data.slice(8)], { type: "image/jpeg" }));
    drawPicture(view, picture, picture.width, picture.height, at);
    picture.close();
  } catch { /* a damaged picture: the next one replaces it */ }
  view.busy = false;
  show(view);
}

/** Show `device` live on `canvas`, as long as it is called again; `drew` is called after each picture. */
export function showLive(canvas, device, drew = null) {
  const path = `${devicePath(device)}/live`;
  let view = views.get(canvas);
  if (view && view.path !== path) { endLive(canvas); view = undefined; }
  if (!view) {
    view = { canvas, path, drew, socket: null, heard: 0, onScreen: false, timer: 0, failed: 0, next: null, busy: false, at: 0, drawn: -Infinity, reason: "", player: null, began: 0, playing: false, encoding: "", unplayable: new Set(), broken: 0, thermal: false, areas: [] };
    views.set(canvas, view);
    observer.observe(canvas);
  }
  view.drew = drew;
}

/** Show the frames of a thermal sensor live on `canvas`, as long as it is called again; the canvas keeps the last one. */
export function showThermal(canvas, device) {
  dedicate(canvas, deviceKey(device));
  showLive(canvas, device);
  views.get(canvas).thermal = true;
}

/** Remove the picture of another device from `canvas`. */
function dedicate(canvas, key) {
  if (canvas.dataset.device === key) return;
  canvas.dataset.device = key;
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
}

/** Draw the hub's latest picture of a thermal sensor on `canvas`, unless it shows live ones, or another device by then. */
export async function loadThermal(canvas, device) {
  const key = deviceKey(device);
  dedicate(canvas, key);
  const body = await fetchJson(`${devicePath(device)}/thermal`), view = views.get(canvas);
  if (canvas.dataset.device !== key) return;
  if (view) view.areas = body.areas;
  if (liveAge(canvas) === Infinity) paint(canvas, body);
}

/** End the live view of `canvas`. */
export function endLive(canvas) {
  const view = views.get(canvas);
  if (!view) return;
  views.delete(canvas);
  observer.unobserve(canvas);
  turn(view);
  hide(view);
}

/** Hide what `view` has drawn; below a canvas of a camera is its latest still. */
const hide = (view) => { if (!view.thermal) view.canvas.classList.add("blank"); };

/** Milliseconds since the live picture on `canvas` was taken; Infinity: there is none. */
export function liveAge(canvas) {
  const view = views.get(canvas);
  return view && elapsed() - view.drawn < CURRENT_MS ? Math.max(0, hubNow() - view.at) : Infinity;
}

/** The reason why `canvas` shows nothing live, if the hub said one. */
export function liveReason(canvas) {
  const reason = views.get(canvas)?.reason || "";
  return OVERLOADED.test(reason) ? t("live.overloaded") : said(reason);
}

/** The same for a caption, or "". */
export function livePause(canvas) {
  const reason = views.get(canvas)?.reason || "";
  return OVERLOADED.test(reason) ? t("live.paused") : reason && t("live.not", { why: said(reason) });
}

/** The reason why `canvas` shows pictures instead of a video, or "". */
export function liveNote(canvas) {
  const { encoding } = views.get(canvas) || {};
  if (encoding === "PRIVATE") return t("live.private");
  return encoding ? t("live.pictures", { encoding: encoding.replace("H26", "H.26") }) : "";
}

/** Hide live pictures that became old, and end those that left the page. Call it every second. */
export function refreshLive() {
  const wasAway = away;
  away = page.answered !== null && sinceAnswer() > AWAY_MS;
  // A hub that is back knows nothing of connections from before, even if nobody closed them here.
  for (const view of views.values()) if ((wasAway && !away) || (view.socket && elapsed() - view.heard > SILENT_MS)) reconnect(view);
  for (const [canvas, view] of views) {
    if (!canvas.isConnected) { endLive(canvas); continue; }
    if (view.player && !view.playing && elapsed() - view.began > START_MS) { stop(view); view.broken = FAILURES; fail(view, ""); }
    if (elapsed() - view.drawn >= CURRENT_MS) hide(view);
    turn(view);
  }
}

addEventListener("visibilitychange", () => { for (const view of views.values()) turn(view); });
