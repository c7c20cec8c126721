// npm's oidc-provider, certified by the OpenID Foundation, for one test: node provider.mjs SETTINGS
// A line on the standard input restarts it with a new key, as providers rotate theirs.
import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const settings = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const { default: Provider } = await import(pathToFileURL(`${settings.modules}/oidc-provider/lib/index.js`).href);

let number = 0;
function begin() {
  const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
  return new Provider(settings.issuer, {
    clients: [settings.client],
    jwks: { keys: [{ ...key, kid: `key-${++number}`, use: "sig", alg: "RS256" }] },
    cookies: { keys: ["only for a test"] },
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    conformIdTokenClaims: settings.claimsFromUserInfo,
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, groups: settings.groups[id] ?? [] }),
    }),
    ttl: { Session: 600, Grant: 600, Interaction: 600, AccessToken: 600, IdToken: 600 },
  }).callback();
}

let handle = begin();
createServer((request, response) => handle(request, response)).listen(settings.port, "127.0.0.1", () => console.log("ready"));
process.stdin.on("data", () => { handle = begin(); console.log("ready"); });
process.stdin.on("end", () => process.exit());
