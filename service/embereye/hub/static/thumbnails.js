// A row of small pictures from clips above the chart of a day; each leads to its moment.

import { clockTime, get, make, milliseconds, nanoseconds, sync } from "./lib.js";
import { onHub } from "./address.js";
import { t } from "./messages.js";

const WIDTH = 104;           // pixels of one, with its margin

/** The clip for each place in the row: the first one that covers a part of it, and its moment. */
function choose(clips, from, until, places) {
  const chosen = [], used = new Set(), step = (until - from) / places;
  for (let place = 0; place < places; place += 1) {
    const begin = from + place * step, end = begin + step;
    const clip = clips.find((each) => !used.has(each.sha256) && milliseconds(each.fromNs) < end && milliseconds(each.untilNs) >= begin);
    if (!clip) continue;
    used.add(clip.sha256);
    chosen.push({ clip, at: Math.max(begin, milliseconds(clip.fromNs) + 1000) });
  }
  return chosen;
}

function picture({ clip, at }) {
  if (clip.media === "MEDIA_VIDEO") {
    const video = make("video");
    Object.assign(video, { src: `${onHub(clip.url)}#t=1`, muted: true, playsInline: true, preload: "metadata", tabIndex: -1 });
    return video;
  }
  const image = make("img");
  image.alt = "";
  image.src = onHub(clip.media === "MEDIA_STILL" ? clip.url : `/v1/clips/${clip.sha256}/frame.jpg?at=${nanoseconds(at)}`);
  image.onerror = () => { image.closest("li").hidden = true; };  // deleted meanwhile
  return image;
}

/** Draw the row for `clips` between two times; `move(at)` is called with the moment of a pressed one. */
export function drawThumbnails(clips, from, until, move) {
  const row = get("day-thumbnails"), places = Math.max(1, Math.floor(row.clientWidth / WIDTH));
  const chosen = row.clientWidth ? choose(clips, from, until, places) : [];
  row.hidden = !clips.length;
  sync(row, chosen, ({ clip }) => clip.sha256, (each) => {
    const item = make("li"), button = make("button", "quiet");
    button.type = "button";
    button.append(picture(each));
    item.append(button);
    return item;
  }, (item, { clip, at }) => {
    item.style.left = `clamp(0px, ${(100 * (at - from)) / (until - from)}% - ${WIDTH / 2}px, 100% - ${WIDTH}px)`;
    item.firstChild.setAttribute("aria-label", t("clip.at", { device: clip.device, time: clockTime(nanoseconds(at)) }));
    item.firstChild.onclick = () => move(at);
  });
}
