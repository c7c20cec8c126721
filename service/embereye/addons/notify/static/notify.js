// Shows in the console if people can be reached, and subscribes this device to messages.

import { fetchJson, get, make, postJson, problem, say, toast, wait } from "/static/lib.js";

const PERIOD_MS = 5000;

const line = make("p", "reachable");
line.id = "reachable";
get("coverage").append(line);
const subscribe = make("button", "quiet", "Notify this device");
subscribe.type = "button";
subscribe.id = "notify-device";
subscribe.hidden = true;
get("sign-out").before(subscribe);

async function refresh() {
  const state = await fetchJson("/v1/notify");
  const unrouted = state.unrouted.length ? ` No escalation is for the alarm in ${state.unrouted.join(", ")}.` : "";
  say(line, `${state.reachable ? "Reachable" : "Not reachable"}: ${state.sentence}.${unrouted}`);
  line.toggleAttribute("data-bad", !state.reachable || state.unrouted.length > 0);
}

function bytes(text) {
  const padded = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(padded), (letter) => letter.charCodeAt(0));
}

// The worker has a scope of its folder: the console's own worker has the rest.
async function active(worker) {
  while (!worker.active) await wait(100);
}

async function setUp() {
  const push = await fetchJson("/v1/notify/push");
  if (!push.routes.length || !("serviceWorker" in navigator) || !("PushManager" in window)) return;
  const worker = await navigator.serviceWorker.register("/notify/worker.js");
  await active(worker);
  if (await worker.pushManager.getSubscription()) return;
  subscribe.hidden = false;
  subscribe.onclick = async () => {
    try {
      if (await Notification.requestPermission() !== "granted") {
        toast("This browser does not permit notifications. Permit them for this page in its settings.");
        return;
      }
      const key = { userVisibleOnly: true, applicationServerKey: bytes(push.key) };
      await postJson("/v1/notify/push", (await worker.pushManager.subscribe(key)).toJSON());
      subscribe.hidden = true;
      toast("This device gets messages now, also while the console is closed.");
    } catch (error) { toast(problem(error)); }
  };
}

setUp().catch(() => { /* without push, the console works as before */ });
for (;;) {
  try { await refresh(); } catch { say(line, ""); }
  await wait(PERIOD_MS);
}
