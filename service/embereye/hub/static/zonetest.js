// The test of a zone, in which people make the zone's devices alarm on purpose.

import { ask, postJson, problem, toast, zoneName } from "./lib.js";
import { t } from "./messages.js";

/** Start a test of `zone`, or end the current one; false if the person changed their mind. */
export async function testZone(zone) {
  const path = `/v1/zones/${encodeURIComponent(zone.namespace)}/${encodeURIComponent(zone.name)}/test`;
  try {
    return await ask({
      title: `${zone.testing ? t("test.end-title") : t("test.title")}: ${zoneName(zone)}`, text: t("test.text"),
      ok: zone.testing ? t("test.end") : t("test.start"), send: ({ who, note }) => postJson(path, { who, note }),
    });
  } catch (error) {
    toast(problem(error));
    return false;
  }
}
