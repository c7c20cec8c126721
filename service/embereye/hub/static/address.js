// What the address says: which page, and what of it, so that a link shows others the same.

const split = () => location.hash.slice(1).split("?");

export const PAGES = ["now", "day", "history", "plan", "devices", "fleets"];

/** The name of the page. */
export const pageName = () => (PAGES.includes(split()[0]) ? split()[0] : "now");

/** What is asked of the page. */
export const asked = () => new URLSearchParams(split()[1] || "");

/** Put `wanted`, names and values of which the empty ones are left out, behind the name of the page; `step`: Back undoes it. */
export function ask(wanted, step = false) {
  const told = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
  const hash = `#${pageName()}${`${told}` ? `?${told}` : ""}`;
  if (hash === location.hash) return;
  if (step) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}
