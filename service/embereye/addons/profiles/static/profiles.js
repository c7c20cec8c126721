// The profile of each zone in the console: its name beside the zone, and a dialog that begins, confirms and ends it.

import { clockTime, elapsed, fetchJson, get, make, mayAct, page, postJson, problem, rememberedWho, say, sync, wait, zoneKey, zoneName } from "../static/lib.js";
import { t } from "../static/messages.js";

const PERIOD_MS = 5000, DRAW_MS = 500;
const NORMAL = "normal";
let state = { profiles: [], permits: [], zones: [], unconfirmed: [] };
let zone = null;  // of the open dialog

function field(text, input, id) {
  const label = make("label", "", `${text} `);
  input.id = id;
  label.append(input);
  return label;
}

const input = (length, required = false) => Object.assign(make("input"), { maxLength: length, autocomplete: "off", required });

const dialog = make("dialog"), title = make("h2"), about = make("p"), form = make("form"), wrong = make("p", "problem");
const profile = make("select"), hours = Object.assign(make("input"), { type: "number", min: "0.25", step: "any", required: true });
const reason = input(2000, true), watchman = input(200), who = input(200);
const watchmanLabel = field(t("profile.watchman"), watchman, "profile-watchman");
const begin = make("button", "", t("profile.begin")), confirm = make("button", "", t("profile.confirm")), end = make("button", "quiet", t("profile.end"));
const close = make("button", "quiet", t("page.close")), row = make("p", "buttons"), fields = make("div");
Object.assign(dialog, { id: "profile" });
title.id = "profile-title";
about.id = "profile-about";
dialog.setAttribute("aria-labelledby", title.id);
wrong.setAttribute("role", "alert");
for (const [button, id] of [[begin, "profile-begin"], [confirm, "profile-confirm"], [end, "profile-end"], [close, "profile-close"]]) Object.assign(button, { id, type: "button" });
begin.type = "submit";
close.onclick = () => dialog.close();
fields.append(field(t("profile.profile"), profile, "profile-name"), field(t("profile.hours"), hours, "profile-hours"), field(t("profile.reason"), reason, "profile-reason"), watchmanLabel);
row.append(end, close, confirm, begin);
form.append(title, about, fields, field(t("page.your-name-if-several"), who, "profile-who"), wrong, row);
dialog.append(form);
get("toast").before(dialog);

const notice = make("ul");
notice.id = "profiles-unconfirmed";
get("coverage").append(notice);

const declared = (name) => state.profiles.find((each) => each.name === name);
const permitOf = (key) => state.permits.find((each) => `${each.namespace}/${each.zone}` === key);
const entryOf = (key) => state.zones.find((each) => `${each.namespace}/${each.zone}` === key);
const path = ({ namespace, name }, action = "") => `/v1/zones/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/profile${action}`;

/** Show what the chosen profile asks for. */
function choose() {
  const chosen = declared(profile.value);
  if (!chosen) return;
  hours.max = String(chosen.longestMinutes / 60);
  hours.value = String(Math.min(Number(hours.value) || 1, chosen.longestMinutes / 60));
  watchmanLabel.hidden = !chosen.watchman;
  watchman.required = chosen.watchman;
}
profile.onchange = choose;

function show(chosen) {
  zone = chosen;
  const key = zoneKey(zone), permit = permitOf(key), entry = entryOf(key);
  say(title, t("profile.title", { zone: zoneName(zone) }));
  say(about, permit ? t("profile.permit", {
    profile: permit.profile, until: clockTime(permit.untilNs), by: clockTime(permit.confirmByNs), who: permit.who, reason: permit.reason,
    watchman: permit.watchman ? t("profile.with-watchman", { name: permit.watchman }) : "",
  }) : t("profile.about", { profile: entry.profile === NORMAL ? t("profile.normal") : entry.profile }));
  fields.hidden = begin.hidden = Boolean(permit);
  for (const each of [hours, reason, watchman]) each.disabled = Boolean(permit);  // a hidden field must not be required
  confirm.hidden = end.hidden = !permit;
  sync(profile, entry.choices.map((name) => ({ name })), ({ name }) => name, ({ name }) => Object.assign(make("option", "", name), { value: name }));
  Object.assign(hours, { value: "1" });
  reason.value = watchman.value = "";
  who.value = rememberedWho();
  say(wrong, "");
  choose();
  dialog.showModal();
}

/** Send something about the zone, and close the dialog if the hub accepted it. */
async function send(action, body = {}) {
  say(wrong, "");
  try {
    await postJson(path(zone, action), { ...body, who: who.value.trim() });
    dialog.close();
    await refresh();
  } catch (error) { say(wrong, problem(error)); }
}

form.onsubmit = (event) => {
  event.preventDefault();
  if (begin.hidden) return;
  const minutes = Math.max(1, Math.round(60 * Number(hours.value)));
  send("", { profile: profile.value, minutes, reason: reason.value.trim(), ...(watchman.required ? { watchman: watchman.value.trim() } : {}) });
};
confirm.onclick = () => send("/confirm");
end.onclick = () => send("/end");

function draw() {
  for (const item of get("zones").children) {
    const entry = entryOf(item.dataset.key), actions = item.querySelector(".actions"), name = item.querySelector(".name");
    if (!actions || !name) continue;
    let button = actions.querySelector("[data-action=profile]"), tag = name.querySelector(".profile");
    if (!button && !entry?.choices.length && !permitOf(item.dataset.key)) continue;
    if (!button) {
      button = make("button", "quiet", t("profile.button"));
      button.type = "button";
      button.dataset.action = "profile";
      button.onclick = () => {
        const chosen = page.zones.find((each) => zoneKey(each) === item.dataset.key);
        if (chosen && entryOf(item.dataset.key)) show(chosen);
      };
      actions.append(button);
      tag = make("span", "tag");
      tag.classList.add("profile");
      name.append(tag);
    }
    button.setAttribute("aria-label", t("profile.of", { zone: item.dataset.key }));
    button.disabled = !mayAct() || Boolean(page.failing);
    tag.hidden = !entry || entry.profile === NORMAL;
    say(tag, entry && entry.profile !== NORMAL ? entry.profile : "");
  }
  sync(notice, state.unconfirmed.map((text) => ({ text })), ({ text }) => text, ({ text }) => make("li", "", text));
}

let at = -Infinity;
async function refresh() {
  at = elapsed();
  state = await fetchJson("/v1/profiles");
  draw();
}

for (;;) {
  try { if (elapsed() - at >= PERIOD_MS) await refresh(); else draw(); } catch { /* the page shows the age of the last answer */ }
  await wait(DRAW_MS);
}
