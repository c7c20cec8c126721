// Plays a live video whose fragments of MP4 come one by one, close behind the newest. The video element is outside the
// page: its owner draws each picture.

const DURATION = 1;          // seconds that the hub gives to each picture, because it does not know the next one yet
const LAG = 0.2;             // seconds to play behind the newest picture: pictures that come later than that jerk
const STEADY = 0.05;         // seconds from LAG within which the speed is normal
const TOO_FAR = 1.5;         // seconds from the newest picture, from which on the player jumps to it
const SPEEDS = [0.25, 2];    // slowest and fastest
const KEPT_SECONDS = 10;     // of played video
const WAITING = 500;         // fragments that wait at most
const TYPES = { H264: 'video/mp4; codecs="avc1.640028"', H265: 'video/mp4; codecs="hvc1.1.6.L120.90"' };

/** The encodings that this browser plays from fragments. */
export const playable = window.MediaSource && HTMLVideoElement.prototype.requestVideoFrameCallback
  ? Object.keys(TYPES).filter((name) => MediaSource.isTypeSupported(TYPES[name])) : [];

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The codec in the head of a file by its name in RFC 6381; "" if there is no head. */
function codecOf(data) {
  const bytes = new Uint8Array(data, 0, Math.min(data.byteLength, 4096)), text = String.fromCharCode(...bytes);
  if (text.slice(4, 8) !== "ftyp") return "";
  const avc = text.indexOf("avcC") + 4, hevc = text.indexOf("hvcC") + 4;
  if (avc > 3) return `avc1.${hex(bytes.subarray(avc + 1, avc + 4))}`;
  const profile = bytes[hevc + 1], flags = new DataView(data).getUint32(hevc + 2), rest = [...bytes.subarray(hevc + 6, hevc + 12)];
  let reversed = 0;
  for (let bit = 0; bit < 32; bit++) reversed = (reversed << 1 | flags >>> bit & 1) >>> 0;
  while (rest.length && !rest.at(-1)) rest.pop();
  const level = `${profile & 32 ? "H" : "L"}${bytes[hevc + 12]}`;
  return ["hvc1", profile & 31, reversed.toString(16), level, ...rest.map((byte) => byte.toString(16))].join(".");
}

/**
 * Open a player. `draw(video, taken)` draws the present picture, taken at `taken` (hub's time, milliseconds); `fail`
 * gets the encoding that the browser does not play after all, or "" if the video cannot continue.
 */
export function openPlayer(draw, fail) {
  const video = document.createElement("video"), source = new MediaSource();
  const player = { video, source, fail, url: URL.createObjectURL(source), buffer: null, type: "", waiting: [], newest: 0, taken: 0, appending: 0 };
  Object.assign(video, { muted: true, playsInline: true, onerror: () => end(player) });
  source.onsourceopen = () => { URL.revokeObjectURL(player.url); attempt(player); };
  video.src = player.url;
  video.requestVideoFrameCallback(function drawNext(_, { mediaTime }) {
    if (!player.source) return;
    draw(video, player.taken - Math.max(0, player.newest - mediaTime) * 1000);
    video.requestVideoFrameCallback(drawNext);
  });
  video.play().catch(() => { /* it was closed before it began */ });
  return player;
}

/** Play `data`, whose last picture was taken at `taken`. */
export function play(player, data, taken) {
  player.waiting.push({ data, taken });
  if (player.waiting.length > WAITING) end(player);
  else attempt(player);
}

/** Close `player`; it draws nothing more. */
export function closePlayer(player) {
  player.source = null;
  player.video.onerror = null;
  URL.revokeObjectURL(player.url);  // it may be closed before it opened, and the address would retain it for ever
  player.video.removeAttribute("src");
  player.video.load();
}

function end(player, unplayable = "") {
  if (!player.source) return;
  closePlayer(player);
  player.fail(unplayable);
}

function attempt(player) {
  try { append(player); } catch { end(player); }  // a buffer that is full, or closed by an error of the decoder
}

/** Append what waits; between, remove what was played. */
function append(player) {
  const { source, buffer } = player;
  if (source?.readyState !== "open" || !player.waiting.length || buffer?.updating) return;
  if (buffer?.buffered.length && buffer.buffered.start(0) < player.newest - 2 * KEPT_SECONDS) {
    buffer.remove(0, player.newest - KEPT_SECONDS);
    return;
  }
  const { data, taken } = player.waiting.shift(), codec = codecOf(data), type = `video/mp4; codecs="${codec}"`;
  if (codec && type !== player.type) {
    if (!MediaSource.isTypeSupported(type)) { end(player, codec.startsWith("avc1") ? "H264" : "H265"); return; }
    if (buffer) buffer.changeType(type);
    else {
      player.buffer = source.addSourceBuffer(type);
      player.buffer.onupdateend = () => appended(player);
    }
    player.type = type;
  }
  player.appending = taken;
  player.buffer.appendBuffer(data);
}

function appended(player) {
  const { source, buffer, video } = player;
  if (!source) return;
  if (player.appending && buffer.buffered.length) {
    player.newest = buffer.buffered.end(buffer.buffered.length - 1) - DURATION;
    player.taken = player.appending;
    player.appending = 0;
    if (!video.seeking) follow(video, buffer.buffered, player.newest);
  }
  attempt(player);
}

/** Keep `video` LAG seconds behind its newest picture. */
function follow(video, buffered, newest) {
  const start = buffered.start(buffered.length - 1), wanted = Math.max(start, newest - LAG), late = wanted - video.currentTime;
  if (Math.abs(late) > TOO_FAR || video.currentTime < start) video.currentTime = wanted;
  else video.playbackRate = Math.abs(late) < STEADY ? 1 : Math.min(SPEEDS[1], Math.max(SPEEDS[0], 1 + late));
}
