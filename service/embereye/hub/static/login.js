// Signing in: with a token, or with the code of a link, which stands behind the # so that it reaches no log.

import { PAGES } from "./address.js";

const get = (id) => document.getElementById(id);

/** Only a page of ours: a name in the address must not lead elsewhere once somebody has signed in. A browser passes over tabs in it. */
function next() {
  const wanted = new URLSearchParams(location.search).get("next") || `/${location.hash}`;
  const { origin } = Object.assign(document.createElement("a"), { href: wanted });
  return wanted.startsWith("/") && origin === location.origin ? wanted : "/";
}

function tell(text) {
  get("problem").textContent = text;
  get("problem").hidden = !text;
}

async function signIn(proof) {
  get("send").disabled = true;
  tell("");
  try {
    const response = await fetch("/v1/session", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(proof), signal: AbortSignal.timeout(10000),
    });
    if (response.ok) return location.replace(next());
    // What stands in front of a hub that is down answers with a page of its own.
    const said = (await response.json().catch(() => ({}))).error;
    if (response.status !== 401) tell(said || `The hub answered ${response.status}.`);
    else tell(proof.code ? "This link was used already, or is too old. Have a new one made, or sign in with a token." : "The hub does not know this token: it may have been revoked.");
  } catch (error) {
    tell(error.name === "TimeoutError" || error instanceof TypeError ? "The hub does not answer." : error.message);
  }
  get("send").disabled = false;
  get("token").select();
}

get("form").onsubmit = (event) => {
  event.preventDefault();
  signIn({ token: get("token").value.trim() });
};

/** Where people may sign in besides; a hub that does not answer says so when somebody tries. */
async function offerProvider() {
  const { provider } = await (await fetch("/v1/session")).json();
  if (!provider) return;
  get("provider").href = "/login/oidc?" + new URLSearchParams({ next: next() });
  get("provider").textContent = `Sign in with ${provider}`;
  get("provider").hidden = false;
}

/** Lead on who is signed in: a browser that follows a link of another site sends no cookie with it, and does from here. */
async function goOn() {
  const { ok } = await fetch("/", { redirect: "manual" });
  if (ok) location.replace(next());
}

// Whoever is led here from a link to a page still has what names it behind the #.
const hash = location.hash.slice(1), code = PAGES.includes(hash.split("?")[0]) ? "" : hash;
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  signIn({ code });
} else {
  if (new URLSearchParams(location.search).has("ended")) tell("Your session is over, or its token was revoked. Sign in again, and you are back where you were.");
  else goOn().catch(() => {});
  get("token").focus();
  offerProvider().catch(() => {});
}
