// The sign-in page: with a token, or with a link's code, which is behind the # so that it reaches no log.

import { onHub, PAGES } from "./address.js";
import { offerLanguages, t } from "./messages.js";

const get = (id) => document.getElementById(id);

/** The page to open after signing in: only one of this site, even if the address names another. Browsers ignore tabs in it. */
function next() {
  const wanted = new URLSearchParams(location.search).get("next") || onHub(`/${location.hash}`);
  const { origin } = Object.assign(document.createElement("a"), { href: wanted });
  return wanted.startsWith(onHub("/")) && origin === location.origin ? wanted : onHub("/");
}

function showProblem(text) {
  get("problem").textContent = text;
  get("problem").hidden = !text;
}

async function signIn(proof) {
  get("send").disabled = true;
  showProblem("");
  try {
    const response = await fetch(onHub("/v1/session"), {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(proof), signal: AbortSignal.timeout(10000),
    });
    if (response.ok) return location.replace(next());
    // A proxy in front of a hub that is down answers with its error page.
    const reason = (await response.json().catch(() => ({}))).error;
    if (response.status !== 401) showProblem(reason || t("hub.answered", { status: response.status }));
    else showProblem(proof.code ? t("login.link-used") : t("login.unknown-token"));
  } catch (error) {
    showProblem(error.name === "TimeoutError" || error instanceof TypeError ? t("hub.silent") : error.message);
  }
  get("send").disabled = false;
  get("token").select();
}

get("form").onsubmit = (event) => {
  event.preventDefault();
  signIn({ token: get("token").value.trim() });
};

/** Offer the identity provider. If the hub does not answer, signing in shows that. */
async function offerProvider() {
  const { provider } = await (await fetch(onHub("/v1/session"))).json();
  if (!provider) return;
  get("provider").href = onHub("/login/oidc?") + new URLSearchParams({ next: next() });
  get("provider").textContent = t("login.provider", { provider });
  get("provider").hidden = false;
}

/** Open the page for people who are signed in already: after a link from another site, the cookie is sent only from here. */
async function continueSignedIn() {
  const { ok } = await fetch(onHub("/"), { redirect: "manual" });
  if (ok) location.replace(next());
}

offerLanguages(get("language"));

// A link to a page that led here still has the page's name behind the #.
const hash = location.hash.slice(1), code = PAGES.includes(hash.split("?")[0]) ? "" : hash;
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  signIn({ code });
} else {
  if (new URLSearchParams(location.search).has("ended")) showProblem(t("login.ended"));
  else continueSignedIn().catch(() => {});
  get("token").focus();
  offerProvider().catch(() => {});
}
