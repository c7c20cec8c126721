// The console as an installed app. Without the hub it shows a page that says that nobody watches here; it never shows an old page.

const CACHE = "embereye-offline-3";
const OFFLINE = ["static/offline.html", "static/console.css", "static/icon.svg", "static/theme.js", "static/offline.js"];

const here = (path) => new URL(path, self.registration.scope).href;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(OFFLINE.map(here))).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const others = (names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
  event.waitUntil(caches.keys().then(others).then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const { request } = event, [address] = request.url.split("#");
  const page = here(OFFLINE[0]);
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => (address === page ? caches.match(page) : Response.redirect(page))));
  else if (OFFLINE.slice(1).some((path) => address === here(path))) event.respondWith(fetch(request).catch(() => caches.match(request)));
});
