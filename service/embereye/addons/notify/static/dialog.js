// The dialog of notifications, and the line in the console that opens it.

import { get, make } from "../static/lib.js";
import { t } from "../static/messages.js";

const style = make("link");
style.rel = "stylesheet";
style.href = new URL("./notify.css", import.meta.url).href;
document.head.append(style);

/** The line under the number of watched devices: a sentence, and the button that opens the dialog. */
export const line = make("p"), sentence = make("span");
line.id = "reachable";
export const open = make("button", "quiet");
open.type = "button";
open.id = "notify-open";
line.append(sentence, " ", open);
get("coverage").append(line);

/** The dialog with a title, a body for `content`, and `buttons` beside Close. */
export function makeDialog(content, ...buttons) {
  const dialog = make("dialog"), title = make("h2", "", t("notify.title")), close = make("button", "quiet", t("page.close")), row = make("p", "buttons");
  dialog.id = "notify";
  title.id = "notify-title";
  dialog.setAttribute("aria-labelledby", title.id);
  close.type = "button";
  close.id = "notify-close";
  close.onclick = () => dialog.close();
  row.append(...buttons, close);
  dialog.append(title, ...content, row);
  get("toast").before(dialog);
  return dialog;
}

/** A heading and a list below it. */
export function makeList(text, id) {
  const list = make("ul");
  list.id = id;
  return [make("h3", "", text), list];
}
