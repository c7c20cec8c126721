// Keyboard shortcuts, with a sheet that lists them and turns them off.

import { pageName } from "./address.js";
import { get, make } from "./lib.js";
import { t } from "./messages.js";

const STORED = "embereye.keys";
const go = (page) => () => { location.hash = page; };
/** Give an element of the page Now the focus, after turning to that page. */
const focusOn = (selector) => () => {
  const focus = () => document.querySelector(selector)?.focus();
  if (pageName() === "now") return focus();
  addEventListener("hashchange", focus, { once: true });
  return go("now")();
};

// Key → what it does, and how.
const KEYS = {
  n: [t("keys.now"), go("now")], d: [t("keys.day"), go("day")], h: [t("keys.history"), go("history")], p: [t("keys.plan"), go("plan")],
  v: [t("keys.devices"), go("devices")], f: [t("keys.fleets"), go("fleets")], r: [t("keys.figures"), go("figures")], w: [t("keys.wall"), go("wall")],
  a: [t("keys.acknowledge"), focusOn("#focus [data-action=acknowledge]")],
  j: [t("keys.next-alarm"), focusOn("#alarm-list li:not(.current) button")],
  "?": [t("keys.sheet"), () => get("keys").showModal()],
};

const enabled = () => { try { return localStorage.getItem(STORED) !== "off"; } catch { return true; } };

export function setUpKeys() {
  for (const [key, [words]] of Object.entries(KEYS)) {
    const row = make("div");
    row.append(make("dt", "", key), make("dd", "", words));
    get("keys-list").append(row);
  }
  get("keys-off").checked = !enabled();
  get("keys-off").onchange = () => { try { localStorage.setItem(STORED, get("keys-off").checked ? "off" : "on"); } catch { /* private browsing: for this page only */ } };
  get("keys-close").onclick = () => get("keys").close();
  get("keys-open").onclick = () => get("keys").showModal();
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea, dialog[open]");
    if (typing || event.ctrlKey || event.altKey || event.metaKey || (!enabled() && event.key !== "?")) return;
    const shortcut = KEYS[event.key];
    if (!shortcut) return;
    event.preventDefault();
    shortcut[1]();
  });
}
