// Shows pushed messages of the hub, also while no page of the console is open.

const here = (path) => new URL(path, self.registration.scope).href;  // the hub may be below a path

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  let message = { title: "EmberEye", body: "", link: "", kind: "failure" };
  try { message = { ...message, ...event.data.json() }; } catch { /* show at least that there is one */ }
  event.waitUntil(self.registration.showNotification(message.title, {
    body: message.body, icon: here("../static/icon.svg"), data: { link: message.link }, tag: message.title,
    renotify: true, requireInteraction: message.kind === "failure", vibrate: [400, 200, 400, 200, 400],
  }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(event.notification.data.link || here("../")));
});
