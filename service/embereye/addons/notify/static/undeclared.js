// Says in the console of a hub that notifies nobody how to change that.

import { make, say } from "../static/lib.js";
import { t } from "../static/messages.js";
import { line, makeDialog, open, sentence } from "./dialog.js";

/** A paragraph with a text, whose parts between backticks are code. */
function paragraph(key) {
  const made = make("p");
  t(key).split("\x60").forEach((piece, index) => made.append(index % 2 ? make("code", "", piece) : piece));
  return made;
}

line.toggleAttribute("data-bad", true);
say(sentence, t("notify.nobody"));
say(open, t("notify.declare"));
const dialog = makeDialog([
  paragraph("notify.how"), paragraph("notify.how-1"), paragraph("notify.how-2"),
  make("pre", "", t("notify.example", { address: location.origin })),
  paragraph("notify.how-3"), paragraph("notify.how-4"), paragraph("notify.how-5"),
]);
open.onclick = () => dialog.showModal();
