// Shows a banner on each page while a drill runs.

import { elapsed, fetchJson, get, make, say } from "../static/lib.js";
import { t } from "../static/messages.js";

const REFRESH_MS = 5000;
const banner = make("div", "banner");
banner.id = "drill";
banner.setAttribute("role", "status");
banner.hidden = true;
get("banner").after(banner);

let at = -Infinity;
async function refresh() {
  if (elapsed() - at < REFRESH_MS) return;
  at = elapsed();
  try {
    const [drill] = (await fetchJson("/v1/drills")).running;
    banner.hidden = !drill;
    say(banner, drill ? t("drills.banner", { who: drill.who, fleet: drill.fleet, faults: drill.faults.join(", ") }) : "");
  } catch { /* the console says already that the hub does not answer */ }
}

setInterval(refresh, 1000);
