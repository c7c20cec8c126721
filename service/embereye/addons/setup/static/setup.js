// Set up devices: try a camera or a sensor, add, change and remove devices, and undo. The manifests on the hub's disk stay the truth.

import { asked, pageName } from "../static/address.js";
import { amount, button, fetchJson, get, load, make, measured, page, problem, say, sync, toast, unique } from "../static/lib.js";
import { drawnMasks } from "../static/masks.js";
import { t } from "../static/messages.js";

const TRY_MS = 100000;       // longest wait for a camera that is tried
const PAGES_MS = 500;        // between two looks at the page's name and at who is signed in
const FIELDS = ["id", "zone", "location", "source"];
// Kinds of sensors: their source begins with `start`; a new one begins with `source`, `fields` and `template`.
const SENSORS = {
  thermal: { start: "" },
  gas: { start: "" },
  mqtt: { start: "mqtt:", source: "mqtt:zigbee2mqtt/NAME", template: "zigbee2mqtt" },
  modbus: { start: "modbus:", source: "modbus://192.168.1.30/1", fields: { temperature: "input:0:int16:0.1" } },
  http: { start: "http", source: "http://192.168.1.30/status.json", fields: { temperature: "sensors[0].celsius" } },
  push: { start: "push", source: "push" },
  sound: { start: "sound:", source: "sound:rtsp://192.168.1.30/audio" },
};
const TEMPLATES = ["plain", "zigbee2mqtt", "zwavejs", "tasmota", "esphome", "shelly", "chirpstack", "ttn", "sparkplug"];
const LOGINS = ["mqtt", "http", "sound"];  // kinds that may need a login; that of mqtt is the broker's
const BROKER = /^(mqtts?):\/\/(.*?)(?::(\d+))?$/;
const CALIBRATION = { thermal: "emissivity", gas: "cleanAirKilohm" };

let setup = { editable: false, fleets: [] };
const state = { kind: "cameras", action: "add", fleet: "", fields: {}, seen: "", busy: 0 };

// ---- the dialog

const dialog = make("dialog"), form = make("form"), title = make("h2"), wrong = make("p", "problem"), buttons = make("p", "buttons");
const trying = make("fieldset"), address = input("address"), user = input("user"), password = input("password", "password");
const credentials = input("credentials"), login = make("div");
const broker = make("fieldset"), host = input("broker"), port = input("port", "number"), tls = input("tls", "checkbox");
const found = make("ul", "tabs"), notes = make("p", "empty"), still = make("img"), streams = make("select");
const inputs = Object.fromEntries(FIELDS.map((name) => [name, input(name)]));
const sort = make("select"), hint = make("p", "empty"), template = make("select"), mapping = make("textarea"), calibration = input("calibration", "number");
const reading = make("p", "buttons"), readIt = button(t("setup.read"), () => readSensor()), newest = make("p", "empty");
const fleet = make("select"), diff = make("pre"), zones = make("datalist"), ok = make("button");
const tryIt = button(t("setup.try"), () => tryCamera()), search = button(t("setup.search"), searchCameras);

const style = make("link");
style.rel = "stylesheet";
style.href = new URL("./setup.css", import.meta.url).href;
document.head.append(style);
dialog.id = "setup";
title.id = "setup-title";
dialog.setAttribute("aria-labelledby", title.id);
zones.id = "setup-zones";
inputs.zone.setAttribute("list", zones.id);
inputs.id.required = inputs.zone.required = true;
still.id = "setup-still";
still.hidden = true;
diff.id = "setup-diff";
diff.tabIndex = 0;
diff.setAttribute("aria-label", t("setup.difference"));
wrong.setAttribute("role", "alert");
notes.setAttribute("role", "status");
ok.id = "setup-ok";
const remove = button(t("setup.remove"), () => { state.action = "remove"; show(); });
buttons.append(remove, button(t("page.cancel"), () => dialog.close()), ok);
trying.append(make("legend", "", t("setup.camera")), labelled(address, "address"), row(tryIt, search), notes, found, still, labelled(streams, "stream"));
login.append(labelled(user, "user"), labelled(password, "password"), labelled(credentials, "credentials"));
broker.append(make("legend", "", t("setup.broker-of")), labelled(host, "broker"), labelled(port, "port"), labelled(tls, "tls"));
Object.assign(port, { min: 1, max: 65535 });
sort.append(...Object.keys(SENSORS).map((name) => new Option(t(`setup.sensor.${name}`), name)));
template.append(...TEMPLATES.map((name) => new Option(name, name === "plain" ? "" : name)));
mapping.rows = 3;
mapping.spellcheck = false;
calibration.step = "any";
newest.setAttribute("role", "status");
newest.id = "setup-newest";
readIt.id = "setup-read";
reading.append(readIt);
const ofSensors = [labelled(sort, "sensor"), hint], ofSources = [labelled(template, "template"), labelled(mapping, "mapping")];
const calibrating = labelled(calibration, "calibration");
form.append(title, trying, ...ofSensors, ...FIELDS.map((name) => labelled(inputs[name], name)), ...ofSources, broker, calibrating, reading, newest, labelled(fleet, "fleet"), zones, diff, wrong, buttons);
dialog.append(form);
get("toast").before(dialog);

function input(name, type = "text") {
  const field = make("input");
  field.type = type;
  field.maxLength = 1024;
  field.autocomplete = type === "password" ? "new-password" : "off";
  field.spellcheck = false;
  field.id = `setup-${name}`;
  return field;
}

function labelled(field, name) {
  const label = make("label", "", `${t(`setup.${name}`)} `);
  label.append(field);
  if (!field.id) field.id = `setup-${name}`;
  return label;
}

function row(...elements) {
  const line = make("p", "buttons");
  line.append(...elements);
  return line;
}

/** Fill the dialog for a new device, or for `device` of a manifest. */
function open(kind, action, chosen = "", device = {}) {
  Object.assign(state, { kind, action, fleet: chosen, fields: device, seen: "" });
  say(title, action === "add" ? t(`setup.add.${kind}`) : t("setup.change", { id: device.id }));
  for (const name of FIELDS) inputs[name].value = device[name] || "";
  inputs.id.disabled = action !== "add";
  trying.hidden = kind !== "cameras" || !setup.editable;
  (trying.hidden ? broker : address.parentElement).after(login);
  password.parentElement.hidden = !setup.editable;  // the printed command asks for it
  remove.hidden = action === "add";
  for (const field of [address, user, password]) field.value = "";
  address.value = (action === "add" ? "" : device.source) || "";
  sync(found, [], (each) => each.address, () => {});
  say(notes, "");
  still.hidden = true;
  streams.replaceChildren();
  streams.parentElement.hidden = true;
  const connected = device.calibration && CALIBRATION.gas in device.calibration ? "gas" : "thermal";
  sort.value = device.source ? Object.keys(SENSORS).find((name) => SENSORS[name].start && device.source.startsWith(SENSORS[name].start)) || "http" : connected;
  template.value = device.template || "";
  mapping.value = mappingText(device.fields);
  calibration.value = device.calibration?.[CALIBRATION[sort.value]] ?? "";
  say(newest, "");
  zones.replaceChildren(...[...new Set(page.zones.map((zone) => zone.name))].map((name) => new Option(name, name)));
  const fleets = known(kind);
  fleet.replaceChildren(...(fleets.length ? fleets : [`default/${kind}/${kind}`]).map((key) => new Option(key, key, false, key === chosen)));
  fleet.disabled = action !== "add";
  showSensor();
  forget();
  dialog.showModal();
}

const mappingText = (fields) => Object.entries(fields || {}).map(([quantity, place]) => `${quantity}: ${place}`).join("\n");

/** The lines "QUANTITY: FIELD" as an object; null: there are none. */
function mappingOf(text) {
  const lines = text.split("\n").filter((line) => line.trim()).map((line) => line.split(":"));
  return lines.length ? Object.fromEntries(lines.map(([quantity, ...place]) => [quantity.trim(), place.join(":").trim()])) : null;
}

const connects = () => !SENSORS[sort.value].start;

/** Show the inputs of the chosen kind of sensor. */
function showSensor() {
  const isSensor = state.kind === "sensors";
  for (const each of ofSensors) each.hidden = !isSensor;
  say(hint, t(`setup.sensor.${sort.value}-hint`));
  inputs.source.parentElement.hidden = isSensor && (connects() || sort.value === "push");
  for (const each of ofSources) each.hidden = !isSensor || connects() || sort.value === "sound";
  calibrating.hidden = !isSensor || !connects();
  if (connects()) say(calibrating.firstChild, `${t(`setup.${CALIBRATION[sort.value]}`)} `);
  reading.hidden = !isSensor || !setup.editable;
  broker.hidden = !isSensor || sort.value !== "mqtt";
  host.required = !broker.hidden && setup.editable;
  login.hidden = isSensor && !LOGINS.includes(sort.value);
  showBroker();
}

/** The broker of the chosen fleet, as its manifest has it. */
const declaredBroker = () => setup.fleets.find((each) => each.fleet === fleet.value)?.mqtt || {};

/** Show the broker of the chosen fleet, and the name of the login that it or the device has. */
function showBroker() {
  const { broker: url = "", credentialsRef } = declaredBroker(), [, scheme, name = "", number = ""] = BROKER.exec(url) || [];
  host.value = name;
  port.value = number;
  tls.checked = scheme === "mqtts";
  credentials.value = (broker.hidden ? state.fields.credentialsRef : credentialsRef)?.name || "";
}
fleet.onchange = showBroker;

/** The broker's address; "": none is given. */
function brokerUrl() {
  const name = host.value.trim();
  return name && `mqtt${tls.checked ? "s" : ""}://${name.includes(":") && !name.startsWith("[") ? `[${name}]` : name}:${port.value || (tls.checked ? 8883 : 1883)}`;
}

/** Add broker and login to `change`: a password goes to the hub's store, and the manifest names it. */
function addLogin(change) {
  const ofBroker = !broker.hidden, known = ofBroker ? declaredBroker() : state.fields, mqtt = {};
  let name = credentials.value.trim();
  if (user.value && !name) name = (ofBroker ? `${fleet.value.split("/")[2]}-broker` : change.device || "new-sensor").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 63);
  if (login.hidden || ofBroker) { if (state.fields.credentialsRef) change.fields.credentialsRef = null; }
  if (!login.hidden && name !== (known.credentialsRef?.name || "")) (ofBroker ? mqtt : change.fields).credentialsRef = name ? { name } : null;
  if (!login.hidden && user.value) change.login = { name, user: user.value, password: password.value };
  if (ofBroker && brokerUrl() && brokerUrl() !== known.broker) mqtt.broker = brokerUrl();
  return Object.keys(mqtt).length ? { ...change, mqtt } : change;
}

/** Begin with the usual values of a kind of sensor. */
sort.onchange = () => {
  const chosen = SENSORS[sort.value];
  inputs.source.value = chosen.source || "";
  template.value = chosen.template || "";
  mapping.value = mappingText(chosen.fields);
  calibration.value = "";
  say(newest, "");
  showSensor();
};

/** The fields of a sensor that differ from those that it has. */
function sensorFields() {
  const had = state.fields, values = { ...had.calibration };
  for (const name of Object.values(CALIBRATION)) delete values[name];
  if (connects() && calibration.value) values[CALIBRATION[sort.value]] = calibration.valueAsNumber;
  const wanted = {
    template: connects() ? null : template.value || null,
    fields: connects() ? null : mappingOf(mapping.value),
    calibration: Object.keys(values).length ? values : null,
  };
  return Object.fromEntries(Object.entries(wanted).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(had[key] ?? null)));
}

/** The keys of the fleets of a kind: those of the manifests, or in a cluster those of the devices. */
function known(kind) {
  const keys = setup.editable ? setup.fleets.map((each) => each.fleet) : page.fleets || [];
  return keys.filter((key) => key.split("/")[1] === kind);
}

/** The next press shows what would change, and writes nothing. */
function forget() {
  state.seen = "";
  if (state.action === "remove") state.action = "change";
  diff.hidden = true;
  say(wrong, "");
  say(ok, t("setup.show"));
}
form.addEventListener("input", forget);

/** What the dialog asks for. */
function wantedChange() {
  const change = { fleet: fleet.value, action: state.action, device: inputs.id.value.trim() };
  if (state.action === "remove") return change;
  const fields = {};
  for (const name of FIELDS.slice(1)) {
    const value = inputs[name].value.trim();
    if (value !== (state.fields[name] || "")) fields[name] = value || null;
  }
  if (state.kind === "sensors") Object.assign(fields, sensorFields());
  return addLogin({ ...change, fields });
}

/** Show what a change does; the next press of the button makes it. */
async function show() {
  const change = wantedChange();
  say(wrong, "");
  try {
    const body = await sendPatiently("/v1/setup/changes", change);
    say(diff, body.diff ?? body.command);
    diff.hidden = false;
    state.seen = setup.editable ? JSON.stringify(change) : "";
    say(ok, setup.editable ? t(change.action === "remove" ? "setup.remove-ok" : "setup.write") : t("setup.show"));
    diff.scrollIntoView({ block: "nearest" });
  } catch (error) { say(wrong, problem(error)); }
}

form.onsubmit = async (event) => {
  event.preventDefault();
  const change = wantedChange();
  if (state.seen !== JSON.stringify(change)) { show(); return; }
  try {
    await sendPatiently("/v1/setup/changes", { ...change, apply: true });
    dialog.close();
    toast(t("setup.written", { id: change.device }));
    await refresh();
  } catch (error) { forget(); say(wrong, problem(error)); }
};

// ---- trying

async function wait(text, work, line = notes) {
  if (state.busy) return;
  state.busy = 1;
  for (const each of [tryIt, search, readIt]) each.disabled = true;
  say(line, text);
  try { await work(); } catch (error) { say(line, problem(error)); }
  state.busy = 0;
  for (const each of [tryIt, search, readIt]) each.disabled = false;
}

const sendPatiently = (path, body) => fetchJson(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), patience: TRY_MS });

function tryCamera() {
  if (!address.value.trim()) { address.focus(); return; }
  wait(t("setup.trying"), async () => {
    const body = await sendPatiently("/v1/setup/try", { address: address.value.trim(), user: user.value, password: password.value });
    still.hidden = !body.picture;
    say(notes, body.problem || t("setup.plays", { maker: body.maker || t("setup.a-camera"), n: body.streams.length }));
    if (body.problem) return;
    still.alt = t("setup.picture");
    if (body.picture) load(still, `/v1/setup/picture.jpg?at=${unique()}`);
    streams.replaceChildren(...body.streams.map((each) => new Option(t("setup.stream-is", { ...each, framesPerSecond: Math.round(each.framesPerSecond) }), each.source)));
    streams.parentElement.hidden = body.streams.length < 2;
    inputs.source.value = body.streams[0]?.source || "";
    if (!inputs.id.value) inputs.id.value = body.host.replace(/[^A-Za-z0-9-]+/g, "-");
    forget();
  });
}
/** Read the sensor as the dialog describes it; one that connects or sends may have sent something already. */
function readSensor() {
  wait(t("setup.reading"), async () => {
    const change = wantedChange(), id = change.device;
    if (connects() || sort.value === "push") {
      const { devices } = await fetchJson(`/v1/devices?${new URLSearchParams({ text: id, limit: 50 })}`);
      const found = devices.find((each) => each.id === id && each.latest?.length);
      say(newest, found ? t("setup.sends", { values: found.latest.map((term) => `${term.name} ${measured(term)}`).join(", ") }) : t("setup.waits", { id }));
      return;
    }
    const zone = change.fields.zone || state.fields.zone || "new";
    const body = await sendPatiently("/v1/setup/read", { ...change, device: id || "new-sensor", fields: { ...change.fields, zone } });
    const values = body.readings.map(({ quantity, value, unit }) => `${quantity} ${unit ? amount(value, unit) : t(value ? "setup.on" : "setup.off")}`);
    say(newest, body.problem || t("setup.says", { values: values.join(", ") }));
  }, newest);
}
streams.onchange = () => { inputs.source.value = streams.value; };

function searchCameras() {
  wait(t("setup.searching"), async () => {
    const { cameras, notes: lines } = await sendPatiently("/v1/setup/search", {});
    say(notes, cameras.length ? t("setup.found", { n: cameras.length }) : lines.at(-1) || t("setup.none-found"));
    sync(found, cameras, (each) => each.address, (each) => {
      const item = make("li");
      item.append(button(`${each.location || each.id} · ${each.address}`, () => {
        address.value = each.address;
        inputs.id.value ||= each.id;
        inputs.location.value ||= each.location;
        tryCamera();
      }));
      return item;
    });
  });
}

// ---- buttons on the pages

const adders = row(...["cameras", "sensors"].map((kind) => button(t(`setup.add.${kind}`), () => open(kind, "add"))));
const first = row(button(t("setup.add.cameras"), () => open("cameras", "add")), button(t("setup.add.sensors"), () => open("sensors", "add")));
const undo = button(t("setup.undo"), undoLast), edit = button(t("setup.edit"), editShown), keep = button(t("setup.save-masks"), saveMasks);
adders.id = "setup-adders";
edit.id = "setup-edit";
keep.id = "setup-save-masks";
undo.id = "setup-undo";
adders.append(undo);
for (const each of [adders, first, edit, keep, undo]) each.hidden = true;
get("devices-title").after(adders);
get("no-zones").after(first);
get("device-masks").before(edit, " ");
get("masks-copy").before(keep, " ");

const manifestOf = (key, id) => setup.fleets.find((each) => each.fleet === key)?.devices.find((each) => each.id === id);

function editShown() {
  const key = asked().get("fleet"), id = asked().get("id"), device = manifestOf(key, id);
  if (device) open(key.split("/")[1], "change", key, device);
  else toast(t("setup.elsewhere", { id }));
}

async function saveMasks() {
  const { device, fields } = drawnMasks();
  if (!Object.keys(fields).length) { toast(t("setup.no-masks")); return; }
  try {
    await sendPatiently("/v1/setup/changes", { fleet: device.fleet, action: "change", device: device.id, fields, apply: true });
    toast(t("setup.written", { id: device.id }));
    get("masks").close();
    await refresh();
  } catch (error) { toast(problem(error)); }
}

async function undoLast() {
  try {
    const { about } = await sendPatiently("/v1/setup/undo", {});
    toast(t("setup.undone", { about }));
    await refresh();
  } catch (error) { toast(problem(error)); }
}

async function refresh() {
  try {
    setup = await fetchJson("/v1/setup");
    if (!setup.editable) page.fleets = (await fetchJson("/v1/fleets?limit=100")).fleets.map((each) => each.fleet);
    loaded = true;
  } catch (error) { toast(problem(error)); }
  undo.hidden = !setup.undo;
  undo.title = setup.undo || "";
}

let at = "", loaded = false;
setInterval(() => {
  const admin = page.me?.role === "admin", able = admin && loaded, empty = !get("no-zones").hidden;
  adders.hidden = !able;
  first.hidden = !able || !empty;
  edit.hidden = keep.hidden = !able || !setup.editable;
  const now = `${admin} ${pageName()}`;
  if (admin && now !== at) refresh();
  at = now;
}, PAGES_MS);
