// Gestures on a chart of time: drag to move the time, wheel or pinch to zoom, shift and wheel to move the visible part.

const SPEED = 0.002;         // of the wheel: doubles or halves the width by some 350 pixels

/**
 * Follow gestures on the tracks in `chart`. `share` of a callback is the place on the track, 0 to 1.
 * `seek(share)`, `done()` after it, `zoom(factor, share)`, `pan(share)`.
 */
export function followGestures(chart, { seek, done, zoom, pan }) {
  const pointers = new Map();
  let track = null;

  const shareAt = (x, on) => { const { left, width } = on.getBoundingClientRect(); return Math.min(1, Math.max(0, (x - left) / width)); };
  const spread = () => { const [a, b] = [...pointers.values()]; return Math.max(1, Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY)); };

  chart.addEventListener("wheel", (event) => {
    const on = event.target.closest(".track") || chart.querySelector(".track");
    if (!on) return;
    const scrolls = chart.scrollHeight > chart.clientHeight + 1, across = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (scrolls && !event.ctrlKey && !across) return;  // it moves through the zones
    event.preventDefault();
    if (across) pan((event.deltaX || event.deltaY) / on.clientWidth);
    else zoom(Math.exp(event.deltaY * SPEED), shareAt(event.clientX, on));
  }, { passive: false });

  chart.addEventListener("pointerdown", (event) => {
    const on = event.target.closest(".track");
    if (!on) return;
    track = on;
    pointers.set(event.pointerId, event);
    on.setPointerCapture(event.pointerId);
    if (pointers.size === 1) seek(shareAt(event.clientX, on));
  });
  chart.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    if (pointers.size === 1) { pointers.set(event.pointerId, event); seek(shareAt(event.clientX, track)); return; }
    const before = spread();
    pointers.set(event.pointerId, event);
    const [a, b] = [...pointers.values()];
    zoom(before / spread(), shareAt((a.clientX + b.clientX) / 2, track));
  });
  for (const name of ["pointerup", "pointercancel"]) chart.addEventListener(name, (event) => { if (pointers.delete(event.pointerId) && !pointers.size) done(); });
}
