// Sounds in a control room while an alarm is not acknowledged: a siren, and a voice with the zone and the reason.
//
// Somebody turns it on in a browser, and it stays on there. While that browser keeps it mute, a banner says so. A worker
// gives the time, so that it works in a hidden page too; if the page's own requests are slowed down there, it asks the hub itself.

import { elapsed, fetchJson, get, make, newestFirst, page, say, sinceAnswer, stateOf, toast, wait, zoneName } from "../static/lib.js";
import { locale, t } from "../static/messages.js";
import { Sound } from "./sound.js";

const FRESH_MS = 2500;    // a younger answer of the page's is used
const LOST_MS = 15000;    // without an answer for this time, nobody would hear of an alarm
const VOICE_MS = 12000;   // between two announcements of the open alarms
const TROUBLE_MS = 20000; // between two tones of a lost hub
const NAMES = 5;          // zones that a voice names
const PATIENCE_MS = 1500; // that a browser gets for beginning to sound
const SWITCH = "embereye.siren";

let sound = null, lock = null;
let zones = [], answeredAt = elapsed(), asking = false;
let voiceAt = -Infinity, troubleAt = -Infinity;
let known = new Set();    // pre-alarms that were announced
let stubborn = false;     // the browser was asked for sound, and gave none
let refused = false;      // the browser refused to speak

// ---- the switch

function isOn() {
  try { return localStorage.getItem(SWITCH) === "on"; } catch { return Boolean(sound); }
}

function remember(on) {
  try { localStorage.setItem(SWITCH, on ? "on" : "off"); } catch { /* private browsing: for this page only */ }
}

const toggle = make("button", "quiet", t("siren.off"));
toggle.type = "button";
toggle.id = "siren";
get("sign-out").before(toggle);
const banner = make("div", "banner");
banner.id = "siren-mute";
banner.hidden = true;
banner.setAttribute("role", "alert");
const complaint = make("span"), permit = make("button", "", t("siren.permit"));
permit.type = "button";
permit.id = "siren-permit";
banner.append(complaint, " ", permit);
get("banner").after(banner);

function turnOn() {
  try { sound ??= new Sound(); } catch { /* the banner says so */ }
  sound?.resume();
  lock ??= navigator.locks?.request(SWITCH, { mode: "shared" }, () => new Promise(() => {}));  // browsers freeze no page that has one
}

/** Turn it on by a click, and let people hear it. */
async function test() {
  turnOn();
  sound?.chime();
  speak(t("siren.is-on"));
  await wait(PATIENCE_MS);
  stubborn = !sound?.runs;
  if (!stubborn) toast(`${t("siren.is-on")} ${t(canSpeak() ? "siren.tone-and-voice" : "siren.tone-only")}`);
  update();
}

toggle.onclick = () => {
  const on = !isOn();
  remember(on);
  if (on) return test();
  sound?.stop();
  sound?.context.close();
  window.speechSynthesis?.cancel();
  sound = null;
  stubborn = false;
  toast(t("siren.is-off"));
  return update();
};
permit.onclick = test;
// Any click or key is enough for the browser.
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { refused = false; if (isOn() && !sound?.runs) turnOn(); });

// ---- the voice

const canSpeak = () => (window.speechSynthesis?.getVoices().length || 0) > 0;

function speak(text) {
  if (!window.speechSynthesis) return;
  const words = new SpeechSynthesisUtterance(text);
  words.lang = locale;
  words.onstart = () => { refused = false; sound?.soften(); };
  words.onend = () => sound?.loud();
  words.onerror = ({ error }) => { refused = error === "not-allowed"; sound?.loud(); };
  speechSynthesis.speak(words);
}

const spoken = (text) => text.replaceAll("°C", "degrees").replaceAll("_", " ").replace(/(\w)\.(?=[a-z])/g, "$1 ");
// The reason is in English, which another language's voice would garble.
const reason = (zone) => (locale.startsWith("en") ? spoken(zone.why || "") : "");
const announced = (word, zone) => `${zone.testing ? `${t("siren.test")} ` : ""}${word}. ${zoneName(zone)}. ${reason(zone)}`;

function announcement(alarms) {
  if (alarms.length === 1) return announced(t("siren.fire"), alarms[0]);
  const names = alarms.slice(0, NAMES).map(zoneName);
  if (alarms.length > NAMES) names.push(t("siren.more", { n: alarms.length - NAMES }));
  return t("siren.fire-in", { n: alarms.length, names: names.join(". ") });
}

// ---- what sounds now

/** Use the zones that the page has, or ask the hub while the page's requests wait. */
function refresh() {
  if (page.answered && sinceAnswer() < FRESH_MS) {
    zones = page.zones;
    answeredAt = elapsed();
  } else if (!asking) {
    asking = true;
    fetchJson("/v1/zones").then((body) => { zones = body.zones; answeredAt = elapsed(); }, () => {}).then(() => { asking = false; });
  }
}

function soundFor(alarms, isLost) {
  const now = elapsed();
  if (alarms.length) sound.start();
  else sound.stop();
  if (alarms.length && now - voiceAt > VOICE_MS && !window.speechSynthesis?.speaking) {
    voiceAt = now;
    speak(announcement(alarms));
  }
  if (!alarms.length) voiceAt = -Infinity;
  if (isLost && now - troubleAt > TROUBLE_MS) {
    troubleAt = now;
    if (!alarms.length) sound.trouble();
    speak(t("siren.lost"));
  }
  const pre = zones.filter((zone) => stateOf(zone) === "pre-alarm" && !zone.silenced);
  const fresh = pre.filter((zone) => !known.has(zone.alarm));
  known = new Set(pre.map((zone) => zone.alarm));
  if (fresh.length && !alarms.length) {
    sound.chime();
    speak(announced(t("siren.pre-alarm"), fresh[0]));
  }
}

function update() {
  const on = isOn(), alarms = zones.filter((zone) => stateOf(zone) === "alarm").sort(newestFirst);
  const mute = on && (!sound?.runs || refused);
  if (on && sound) soundFor(alarms, elapsed() - answeredAt > LOST_MS);
  const state = !on ? "off" : mute ? "mute" : alarms.length ? "sounding" : "ready";
  document.body.dataset.siren = state;
  say(toggle, t(`siren.${{ sounding: "on", ready: "on" }[state] || state}`));
  toggle.setAttribute("aria-pressed", String(on));
  banner.hidden = state !== "mute";
  const able = Boolean(window.AudioContext);
  permit.hidden = !able;
  const mutes = `${alarms.length ? `${t("siren.open")} ` : ""}${t("siren.mute-banner")}`;
  say(complaint, banner.hidden ? "" : !able ? t("siren.unable") : stubborn ? t("siren.still-mute") : mutes);
}

if (isOn()) turnOn();
const ticker = new Worker(new URL("./ticker.js", import.meta.url));
ticker.onmessage = () => { sound?.check(); refresh(); update(); };
