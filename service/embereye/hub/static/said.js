// Sentences of the hub and its shards in the page's language: they come in English. What the page does not know stays as it is.

import { figure, t } from "./messages.js";

// Pattern of a clause → its text. Groups: `inner`, `first` and `second` are clauses, too; `state` and `kind` are words.
const CLAUSES = [
  [/^silent for (?<span>[\d.]+ \w+), deadline (?<allowed>[\d.]+ \w+)$/, "said.silent"],
  [/^silent for (?<span>[\d.]+ \w+)$/, "said.silent-for"],
  [/^never heard$/, "said.never-heard"],
  [/^no check-in yet, one is expected every (?<span>[\d.]+ \w+)$/, "said.no-check-in"],
  [/^last check-in (?<span>[\d.]+ \w+) ago, allowed (?<allowed>[\d.]+ \w+)$/, "said.check-in"],
  [/^heard, but not analysed yet$/, "said.not-analysed"],
  [/^heard, but last analysed (?<span>[\d.]+ \w+) ago, deadline (?<allowed>[\d.]+ \w+)$/, "said.analysed"],
  [/^no shard reports it$/, "said.nobody"],
  [/^(?<number>\d+) live pictures are shown already\. Close one\.$/, "said.viewers"],
  [/^its shard shows (?<number>\d+) devices already\. Close one\.$/, "said.viewers-shard"],
  [/^(?<number>\d+) live pictures are shown already from (?<place>\S+)\. Close one\.$/, "said.viewers-from"],
  [/^source: (?<inner>.+)$/, "said.source"],
  [/^streaming$/, "said.streaming"],
  [/^waiting for a sender$/, "said.waiting"],
  [/^cannot connect: (?<inner>.+)$/, "said.cannot-connect"],
  [/^cannot connect within (?<span>[\d.]+ \w+)$/, "said.cannot-connect-within"],
  [/^connection refused$/, "said.refused"],
  [/^no answer in time$/, "said.no-answer"],
  [/^the shard is overloaded, so frames wait$/, "said.overloaded"],
  [/^(?<device>\S+) is dark: (?<inner>.+)$/, "said.dark"],
  [/^(?<device>\S+) is still dark: (?<inner>.+)$/, "said.still-dark"],
  [/^(?<device>\S+) is watched again$/, "said.watched-again"],
  [/^acknowledged by (?<who>[^:]+)(?<note>: .+)?$/, "said.acknowledged"],
  [/^escalated by (?<who>[^:]+)(?<note>: .+)?$/, "said.escalated"],
  [/^reset by (?<who>[^:]+)(?<note>: .+)?$/, "said.reset"],
  [/^test started by (?<who>[^:]+)(?<note>: .+)?$/, "said.test-started"],
  [/^test ended by (?<who>[^:]+)(?<note>: .+)?$/, "said.test-ended"],
  [/^(?<first>.+) \(zone under test by (?<who>.+)\)$/, "said.under-test"],
  [/^(?<state>alarm|pre-alarm|acknowledged|restored): (?<inner>.+)$/, "said.state"],
  [/^still in (?<state>alarm|pre-alarm|acknowledged|restored): (?<inner>.+)$/, "said.still-in"],
  [/^the signs have ended unconfirmed$/, "said.unconfirmed"],
  [/^all signs have ended$/, "said.ended"],
  [/^ready to be reset$/, "said.ready"],
  [/^a second sign would confirm it$/, "said.would-confirm"],
  [/^also (?<inner>.+)$/, "said.also"],
  [/^stronger: (?<inner>.+)$/, "said.stronger"],
  [/^again: (?<inner>.+)$/, "said.again"],
  [/^the fire is back: (?<inner>.+)$/, "said.fire-is-back"],
  [/^a sign is back: (?<inner>.+)$/, "said.sign-is-back"],
  [/^(?<first>.+), and (?<second>.+) agree$/, "said.agree"],
  [/^(?<first>.+), as in an alarm that (?<who>.+) marked as false on (?<day>[\d-]+) \((?<note>.+)\)$/, "said.resembles"],
  [/^smoke-like (?<likeness>\d+ %) of this place, usually (?<usual>\d+ %)$/, "sign.smoke"],
  [/^growing for (?<span>\d+ s)$/, "sign.growing"],
  [/^drifts to the left$/, "sign.drift.left"], [/^drifts to the right$/, "sign.drift.right"],
  [/^drifts upwards$/, "sign.drift.up"], [/^drifts downwards$/, "sign.drift.down"],
  [/^(?<first>.+) \(a rise, not calibrated\)$/, "said.rise"],
  [/^(?<kind>heat|smoke|gas|flame) reported by (?<device>\S+)$/, "said.reported"],
  [/^(?<kind>heat|smoke|gas|flame) score (?<value>[\d.]+)$/, "said.score"],
  [/^(?<kind>heat|smoke|gas|flame) (?<value>-?[\d.]+\S*(?: [^\s≥]+)?) ≥ (?<limit>-?[\d.]+\S*(?: [^\s≥]+)?)$/, "said.over"],
  [/^(?<kind>heat|smoke|gas|flame) (?<value>-?[\d.]+\S*(?: [^\s≥]+)?) ≥ (?<limit>-?[\d.]+\S*(?: [^\s≥]+)?) over normal$/, "said.over-normal"],
  [/^(?<kind>heat|smoke|gas|flame) (?<value>-?[\d.]+\S*(?: \S+)?) against (?<limit>-?[\d.]+\S*(?: \S+)?)$/, "said.against"],
];

const AT = /^(.+) at (\S+)$/;  // of a sign: its device

const local = (text) => text.replace(/\d+\.\d+/, (number) => figure(Number(number), number.split(".")[1].length));

const VALUES = {
  inner: clause, first: clause, second: clause, state: (word) => t(`state.${word}`), kind: (word) => t(`kind.${word}`),
  span: local, allowed: local, value: local, limit: local,
};

function clause(text) {
  for (const [pattern, key] of CLAUSES) {
    const found = pattern.exec(text);
    if (!found) continue;
    const values = Object.entries(found.groups || {}).map(([name, value]) => [name, value === undefined ? "" : VALUES[name]?.(value) ?? value]);
    return t(key, Object.fromEntries(values));
  }
  const [, first, device] = AT.exec(text) || [], sign = first && clause(first);
  return sign === first ? text : t("sign.at", { sign, device });
}

/** `text` of the hub in the page's language. */
export const said = (text) => (text || "").split("; ").map(clause).join("; ");
