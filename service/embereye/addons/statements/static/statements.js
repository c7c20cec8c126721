// Lists the signed statements of watch on the page Figures, with a link to each.

import { onHub, pageName } from "../static/address.js";
import { elapsed, fetchJson, get, make, problem, say, sync } from "../static/lib.js";
import { figure, t } from "../static/messages.js";

const REFRESH_MS = 60000;
const title = make("h3", "", t("statements.title")), note = make("p", "empty"), scroll = make("div", "scroll");
const table = make("table", "rates"), head = make("tr"), rows = make("tbody"), top = make("thead");
for (const column of ["day", "watched", "devices", "gaps", "away", "alarms", "unacknowledged", "file"]) {
  const cell = make("th", "", t(`statements.${column}`));
  cell.scope = "col";
  head.append(cell);
}
top.append(head);
table.append(top, rows);
scroll.append(table);
scroll.tabIndex = 0;
scroll.setAttribute("role", "region");
scroll.setAttribute("aria-label", t("statements.title"));
rows.id = "statements";
note.id = "statements-note";
get("figures-more").append(title, note, scroll);

const minutes = (seconds) => figure(Math.round(seconds / 60));
/** The share of time in per cent, rounded down: only a day without any gap has 100 %. */
const share = ({ coveredSeconds, seconds }) => (seconds ? t("statements.percent", { share: figure(Math.floor((10000 * coveredSeconds) / seconds) / 100) }) : "–");

function makeRow({ day }) {
  const row = make("tr"), name = make("th"), link = make("a", "", day), file = make("a", "", t("statements.signed"));
  name.scope = "row";
  link.href = onHub(`/v1/statements/${day}/page`);
  file.href = onHub(`/v1/statements/${day}`);
  file.setAttribute("aria-label", t("statements.signed-of", { day }));
  name.append(link);
  row.append(name, ...[1, 2, 3, 4, 5, 6, 7].map(() => make("td")));
  row.lastChild.append(file);
  return row;
}

function updateRow(row, each) {
  const values = [
    share(each), figure(each.devices), minutes(each.seconds - each.coveredSeconds), minutes(each.awaySeconds),
    figure(each.alarms), figure(each.unacknowledged),
  ];
  values.forEach((value, index) => say(row.cells[index + 1], value));
}

let at = -Infinity;
async function refresh() {
  if (pageName() !== "figures" || elapsed() - at < REFRESH_MS) return;
  at = elapsed();
  try {
    const { statements } = await fetchJson("/v1/statements");
    sync(rows, statements, ({ day }) => day, makeRow, updateRow);
    scroll.hidden = !statements.length;
    say(note, statements.length ? t("statements.about") : t("statements.none"));
  } catch (error) { say(note, problem(error)); }
}

addEventListener("hashchange", refresh);
setInterval(refresh, 1000);
