// Candidates, on the page Figures: the alarms that only a fleet's candidate, or only its detection in force, raised.

import { dateTime, drawClips, fetchJson, get, make, problem, say, sync, zoneName } from "./lib.js";
import { figure, t } from "./messages.js";

const SHOWN = 50; // differences

const sentence = (each) => t(`candidates.only.${each.which}`, {
  time: dateTime(each.atNs), device: each.device, zone: zoneName({ namespace: each.fleet.split("/")[0], zone: each.zone }),
  sign: t(`candidates.level.${each.level}`, { kind: t(`kind.${each.kind}`) }), candidate: each.candidate,
});

/** Show the candidates, and the differences since `fromNs`; nothing if there are none. */
export async function loadDifferences(fromNs) {
  const section = get("candidates"), note = get("candidates-note");
  let body;
  try { body = await fetchJson(`/v1/detection/differences?from=${fromNs}`); } catch (error) { say(note, problem(error)); return; }
  const { candidates, differences } = body;
  section.hidden = !candidates.length && !differences.length;
  say(note, differences.length > SHOWN ? t("candidates.more", { shown: SHOWN, total: differences.length }) : "");
  sync(get("candidates-compared"), candidates, ({ fleet }) => fleet, () => make("li"), (item, each) => {
    const counts = { seen: figure(each.seen), unseen: figure(each.unseen) };
    const compared = t("candidates.compared", { fleet: each.fleet, candidate: each.candidate, since: dateTime(each.sinceNs), ...counts });
    say(item, each.problem ? t("candidates.problem", { compared, problem: each.problem }) : compared);
  });
  get("differences-none").hidden = differences.length > 0;
  sync(get("differences"), differences.slice(0, SHOWN), ({ id }) => id, (each) => {
    const item = make("li");
    item.append(make("span", "what", sentence(each)), make("ul", "clips"));
    return item;
  }, (item, each) => drawClips(item.lastChild, each.clips));
}
