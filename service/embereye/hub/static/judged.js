// What a camera's detectors see: their strongest places in the newest picture, with scores and limits.

import { amount, get, KINDS, kindWord, make, measured, say, stateWord, sync } from "./lib.js";
import { nearestWords } from "./quiet.js";
import { t } from "./messages.js";

const TERMS = 8;             // values listed for each kind of fire

const levelOf = ({ level }) => (level || "").replace("LEVEL_", "").replace("_", "-").toLowerCase();
const isRaised = (judged) => !["", "clear"].includes(levelOf(judged));

function scoreWords(judged) {
  const words = { kind: kindWord(judged.kind), score: amount(judged.score || 0), least: amount(judged.threshold || 0) };
  return judged.threshold ? t("judged.score", words) : t("judged.no-limit", words);
}

/** The places as regions of the picture, with what was judged in words, not by colour alone. */
export const placesOf = (list) => list.filter(({ region }) => region).map((judged) => {
  const { x = 0, y = 0, width = 0, height = 0 } = judged.region;
  const level = isRaised(judged) ? `, ${levelOf(judged) === "pre-alarm" ? stateWord("pre-alarm") : stateWord("alarm")}` : "";
  return { kind: `judged ${isRaised(judged) ? "raised" : "calm"}`, name: `${scoreWords(judged)}${level}`, x: [x, x + width, x + width, x], y: [y, y, y + height, y + height] };
});

/** List all that was judged; `age` says how old the picture is. */
export function drawJudged(list, age, nameOf) {
  say(get("judged-note"), list.length ? t("judged.note", { age }) : t("judged.none"));
  sync(get("judged"), list, ({ kind }) => kind, () => {
    const item = make("li");
    item.append(make("p", "head"), make("p"), make("p", "aside"));
    return item;
  }, (item, judged) => {
    const [head, near, terms] = item.children, { nearest } = judged;
    const peak = { kind: KINDS[judged.kind] || "sign", level: levelOf(judged), nearest: nearest && { ...nearest, value: nearest.value || 0, threshold: nearest.threshold || 0 } };
    say(head, scoreWords(judged));
    say(near, nearestWords(peak, nameOf));
    say(terms, (judged.why || []).slice(0, TERMS).map((term) => `${nameOf(term)} ${measured(term)}${term.threshold ? t("limit", { value: measured(term, term.threshold) }) : ""}`).join(" · "));
  });
}
