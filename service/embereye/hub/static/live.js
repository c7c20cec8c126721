// Live pictures of cameras, each on a canvas, only while the canvas is on screen.

import { onHub } from "./address.js";
import { devicePath, elapsed, hubNow } from "./lib.js";

const CURRENT_MS = 3000;     // an older live picture is hidden: the latest still below it has its own age
const PAUSES_MS = [500, 1000, 2000, 5000, 10000];  // between two attempts

const views = new Map();     // canvas → its view

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const view = views.get(target);
    if (view) { view.onScreen = isIntersecting; turn(view); }
  }
});

/** Open or close the connection of `view`, as needed. */
function turn(view) {
  const wanted = view.onScreen && !document.hidden && view.canvas.isConnected && views.get(view.canvas) === view;
  if (!wanted) { clearTimeout(view.timer); view.timer = 0; view.socket?.close(); view.socket = null; return; }
  if (view.socket || view.timer) return;
  const socket = view.socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${onHub(view.path)}`);
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => { view.failed = 0; view.reason = ""; view.next = data; show(view); };
  socket.onclose = ({ reason }) => {
    if (view.socket !== socket) return;
    view.socket = null;
    view.reason = reason;
    view.timer = setTimeout(() => { view.timer = 0; turn(view); }, PAUSES_MS[Math.min(view.failed, PAUSES_MS.length - 1)] * (0.7 + Math.random() * 0.6));
    view.failed += 1;
  };
}

/** Draw the newest picture; those that arrive while one is decoded replace each other. */
async function show(view) {
  if (view.busy || !view.next) return;
  view.busy = true;
  const data = view.next, at = Number(new DataView(data).getBigInt64(0)) / 1e6;
  view.next = null;
  try {
    const picture = await createImageBitmap(new Blob([data.slice(8)], { type: "image/jpeg" }));
    const { canvas } = view, { width, height } = picture;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    picture.close();
    view.over?.(context, width, height);
    Object.assign(view, { at, drawn: elapsed() });
    canvas.classList.remove("blank");
  } catch { /* a damaged picture: the next one replaces it */ }
  view.busy = false;
  show(view);
}

/** Show `device` live on `canvas`, as long as it is called again; `over(context, width, height)` draws over each picture. */
export function showLive(canvas, device, over = null) {
  const path = `${devicePath(device)}/live`;
  let view = views.get(canvas);
  if (view && view.path !== path) { endLive(canvas); view = undefined; }
  if (!view) {
    view = { canvas, path, over, socket: null, onScreen: false, timer: 0, failed: 0, next: null, busy: false, at: 0, drawn: -Infinity, reason: "" };
    views.set(canvas, view);
    observer.observe(canvas);
  }
  view.over = over;
}

/** End the live view of `canvas`. */
export function endLive(canvas) {
  const view = views.get(canvas);
  if (!view) return;
  views.delete(canvas);
  observer.unobserve(canvas);
  turn(view);
  canvas.classList.add("blank");
}

/** Milliseconds since the live picture on `canvas` was taken; Infinity: there is none. */
export function liveAge(canvas) {
  const view = views.get(canvas);
  return view && elapsed() - view.drawn < CURRENT_MS ? Math.max(0, hubNow() - view.at) : Infinity;
}

/** The reason why `canvas` shows nothing live, if the hub said one. */
export const liveReason = (canvas) => views.get(canvas)?.reason || "";

/** Hide live pictures that became old, and end those that left the page. Call it every second. */
export function refreshLive() {
  for (const [canvas, view] of views) {
    if (!canvas.isConnected) { endLive(canvas); continue; }
    if (elapsed() - view.drawn >= CURRENT_MS) canvas.classList.add("blank");
    turn(view);
  }
}

addEventListener("visibilitychange", () => { for (const view of views.values()) turn(view); });
