// Subscribes this device to Web Push.

import { fetchJson, make, postJson, problem, toast, wait } from "../static/lib.js";
import { t } from "../static/messages.js";

/** The button that subscribes this device; hidden where that is not possible or was done. */
export const subscribe = make("button", "quiet", t("notify.device"));
subscribe.type = "button";
subscribe.id = "notify-device";
subscribe.hidden = true;

function bytes(text) {
  const padded = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(padded), (letter) => letter.charCodeAt(0));
}

// The worker has a scope of its folder: the console's own worker has the rest.
async function active(worker) {
  while (!worker.active) await wait(100);
}

export async function setUpPush() {
  const push = await fetchJson("/v1/notify/push");
  if (!push.routes.length || !("serviceWorker" in navigator) || !("PushManager" in window)) return;
  const worker = await navigator.serviceWorker.register(new URL("./worker.js", import.meta.url));
  await active(worker);
  const known = await worker.pushManager.getSubscription();
  // It gets the news of the person who opened the console here last.
  if (known) { await postJson("/v1/notify/push", known.toJSON()); return; }
  subscribe.hidden = false;
  subscribe.onclick = async () => {
    try {
      if (await Notification.requestPermission() !== "granted") {
        toast(t("notify.no-permission"));
        return;
      }
      const key = { userVisibleOnly: true, applicationServerKey: bytes(push.key) };
      await postJson("/v1/notify/push", (await worker.pushManager.subscribe(key)).toJSON());
      subscribe.hidden = true;
      toast(t("notify.subscribed"));
    } catch (error) { toast(problem(error)); }
  };
}
