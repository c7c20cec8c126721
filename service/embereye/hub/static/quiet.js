// Why a device raised no alarm in a minute: what was nearest to one, what was suppressed, and everything over time.

import { amount, clockTime, devicePath, fetchJson, get, make, measured, problem, say, sync } from "./lib.js";
import { figure, t } from "./messages.js";
import { said } from "./said.js";

const DIFFERENCES = { "°C": "K" };  // unit of a value → unit of a difference
const BY = { blind: t("quiet.blind"), familiar: t("quiet.familiar"), marked: t("quiet.marked"), colourless: t("quiet.colourless"), confirmation: t("quiet.confirmation"), uncalibrated: t("quiet.uncalibrated"), test: t("quiet.test"), shed: t("quiet.shed"), rejected: t("quiet.rejected"), mask: t("quiet.mask"), silence: t("quiet.silence"), profile: t("quiet.profile") };
const KINDS = { heat: t("kind.heat"), smoke: t("kind.smoke"), gas: t("kind.gas"), flame: t("kind.flame") };
let path = "", turn = 0;

const isRaised = (peak) => peak.level === "alarm" || peak.level === "critical";
const kindOf = (peak) => KINDS[peak.kind] || peak.kind;

/** How near `peak` was to an alarm, and how much was missing. */
export function nearestWords(peak, nameOf) {
  const term = peak.nearest, kind = kindOf(peak);
  if (!term) return t("quiet.nothing", { kind });
  const words = { kind, name: nameOf(term), value: measured(term), limit: measured(term, term.threshold) };
  if (isRaised(peak)) return t("quiet.raised", words);
  if (term.value >= term.threshold) return t("quiet.at-limit", words);
  return t("quiet.short", { ...words, missing: amount(term.threshold - term.value, DIFFERENCES[term.unit] || term.unit), share: figure(Math.round((100 * term.value) / term.threshold)) });
}

function spanWords(margin, nameOf) {
  const peaks = margin.peaks.filter((peak) => peak.nearest).map((peak) => t("quiet.of", { name: nameOf(peak.nearest), value: measured(peak.nearest), limit: measured(peak.nearest, peak.nearest.threshold) }));
  return [t("quiet.analysed", { n: margin.analysed }), ...peaks].join("; ");
}

function lines(list, texts) {
  sync(get(list), texts.map((text, index) => ({ text, index })), ({ index }) => String(index), () => make("li"), (item, { text }) => say(item, text));
}

function draw(body, nameOf) {
  say(get("quiet-note"), body.missing ? t("quiet.missing", { why: body.missing }) : "");
  lines("quiet-nearest", body.nearest.map(({ peak, atNs }) => `${clockTime(atNs)} ${nearestWords(peak, nameOf)}`));
  lines("quiet-suppressed", [...body.suppressed.map(({ by, why }) => `${BY[by] || by}: ${why}`), ...body.events.map((event) => `${clockTime(event.timeNs)} ${said(event.why)}`)]);
  get("quiet-more").hidden = !body.margins.length;
  lines("quiet-over-time", body.margins.map((margin) => `${clockTime(margin.untilNs)} ${spanWords(margin, nameOf)}`));
}

/** Start again for another device. */
export function resetQuiet(device) {
  if (path === devicePath(device)) return;
  path = devicePath(device);
  turn += 1;
  draw({ nearest: [], suppressed: [], events: [], margins: [] }, String);
  say(get("quiet-note"), t("quiet.hint"));
}

export function setUpQuiet(nameOf) {
  get("quiet").onsubmit = async (event) => {
    event.preventDefault();
    const asked = ++turn, at = BigInt(new Date(get("quiet-at").value).getTime()) * 1000000n;
    say(get("quiet-note"), "…");
    try {
      const body = await fetchJson(`${path}/quiet?at=${at}`);
      if (asked === turn) draw(body, nameOf);
    } catch (error) { if (asked === turn) say(get("quiet-note"), problem(error)); }
  };
}
