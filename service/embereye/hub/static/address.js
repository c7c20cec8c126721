// The page's address: it names the page and the request, so that a link shows others the same.

// The path below which a proxy serves the console; empty: the root.
const base = document.documentElement.dataset.base || "";

/** The address of `path` on the hub. */
export const onHub = (path) => base + path;

const split = () => location.hash.slice(1).split("?");

export const PAGES = ["now", "day", "history", "plan", "devices", "device", "fleets", "figures", "wall"];

/** The name of the page. */
export const pageName = () => (PAGES.includes(split()[0]) ? split()[0] : "now");

/** The request in the address: filters, times and names. */
export const asked = () => new URLSearchParams(split()[1] || "");

/** Write `wanted` into the address behind the page's name, without empty values. `step`: Back undoes it. */
export function ask(wanted, step = false) {
  const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
  const hash = `#${pageName()}${`${query}` ? `?${query}` : ""}`;
  if (hash === location.hash) return;
  if (step) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}
