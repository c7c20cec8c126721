"""Every path of the hub, with what it takes and answers."""

from embereye.hub.access.roles import Role
from embereye.hub.feeds.selection import KINDS, LEVELS, TYPES
from embereye.hub.http.files import STATIC
from embereye.hub.http.fleets.lists import Json
from embereye.hub.http.openapi.parts import (
    CURSOR,
    NANOSECONDS,
    NEXT,
    ROLE,
    WORD,
    answer,
    file_of,
    list_of,
    operation,
    query,
    record,
    reference,
    whole,
)
from embereye.hub.plans.images import MEDIA as PLAN_MEDIA
from embereye.hub.silences import MAX_MINUTES
from embereye.hub.storage.alarms import CATEGORIES

Paths = dict[str, dict[str, Json]]

JPEG = "image/jpeg"
CLIPS = ("video/matroska", JPEG, "video/mp4", "application/jsonl")
TOKEN_NAME = "[A-Za-z0-9][A-Za-z0-9._@ -]{0,62}"
CHANGES = (400, 408, 413, 415)  # what a body may be refused with
PAGE = [
    query("limit", whole(), "how many entries at most; 0: all"),
    query("after", WORD, "the key that the page before ended with, its `next`; pages are in order of keys"),
]
SELECTION = [
    query(
        "order",
        {"type": "string", "enum": ["", "urgent"]},
        "urgent: what is to be seen first, as dark devices and zones in alarm, before the others",
    ),
    query("text", WORD, "only entries that have each of these words; the answer says `total`"),
    query("pictures", whole(1), "1: only those that there are pictures of, or ought to be"),
    query("offset", whole(), "how many of the selected ones are left out; instead of `after`"),
]


def paths() -> Paths:
    """All of them, without what follows from a path and from who may ask."""
    return {
        **_pages(), **_access(), **_present(), **_pictures(), **_past(), **_alarms(), **_webhooks(), **_actions(),
        **_silences(), **_plans(), **_overlays(),
    }  # fmt: skip


def _pages() -> Paths:
    console = {200: file_of("the page", "text/html"), 303: answer("sign in first")}
    return {
        "/": {"get": operation("The console", console)},
        "/login": {"get": operation("The page that people sign in on", {200: file_of("the page", "text/html")})},
        "/static/{name}": {
            "get": operation(
                "Scripts and styles of the pages", {200: file_of("the file", *STATIC.values())}, fails=[404]
            )
        },
        "/runbooks": {"get": operation("What to do about each alert", {200: file_of("the list", "text/html")})},
        "/runbooks/{name}": {
            "get": operation("What to do about one alert", {200: file_of("the page", "text/html")}, fails=[404])
        },
        "/healthz": {"get": operation("Whether the hub lives", {200: file_of("it does", "text/plain")})},
        "/metrics": {"get": operation("Metrics for Prometheus", {200: file_of("its text format", "text/plain")})},
        "/v1/openapi.json": {"get": operation("This description", {200: answer("OpenAPI 3.1", {"type": "object"})})},
    }


def _access() -> Paths:
    proof: Json = {
        **record({}, token=WORD, code=WORD),
        "anyOf": [
            {"required": [name], "properties": {name: {"type": "string", "minLength": 1}}} for name in ("token", "code")
        ],
    }
    page = file_of("a page that says what came of it", "text/html")
    wanted = record({"name": {"type": "string", "pattern": f"^{TOKEN_NAME}$"}, "role": ROLE})
    someone = record(
        {},
        name={"type": "string", "pattern": f"^({TOKEN_NAME})?$"},
        role={"type": "string", "enum": ["", *(role.word for role in Role)]},
    )
    return {
        "/v1/session": {
            "get": operation(
                "How people may sign in, besides with a token",
                {200: answer("the identity provider's host; empty: there is none", record({"provider": WORD}))},
            ),
            "post": operation(
                "Sign a browser in, with a token or the code of a link; the answer sets its cookie",
                {200: answer("who that is", reference("Identity"))},
                fails=(*CHANGES, 401, 403, 429),
                body=proof,
            ),
        },
        "/login/oidc": {
            "get": operation(
                "Sign in with the identity provider",
                {303: answer("its page"), 502: page},
                fails=[404],
                takes=[query("next", WORD, "path of the page to go on with")],
            )
        },
        "/login/oidc/callback": {
            "get": operation(
                "Where the identity provider sends browsers back to",
                {200: page, 403: page, 429: page, 502: page},
                fails=[404],
                takes=[query(name, WORD, "as in OpenID Connect") for name in ("code", "state", "iss", "error")],
            )
        },
        "/v1/access/me": {"get": operation("Who asks", {200: answer("name and role", reference("Identity"))})},
        "/v1/access/logout": {
            "post": operation("Sign out", {200: answer("signed out; where to go now", record({"next": WORD}))})
        },
        "/v1/access/tokens": {
            "get": operation(
                "All tokens",
                {
                    200: answer(
                        "without what would let anybody use them", record({"tokens": list_of(reference("Token"))})
                    )
                },
            ),
            "post": operation(
                "Make a token",
                {201: answer("it is shown this once", record({"name": WORD, "role": ROLE, "token": WORD}))},
                fails=(*CHANGES, 409, 503),
                body=wanted,
            ),
        },
        "/v1/access/tokens/{name}": {
            "delete": operation(
                "Revoke a token, and end what it opened",
                {200: answer("it is no longer valid", {"type": "object"})},
                fails=(404, 503),
            )
        },
        "/v1/access/links": {
            "post": operation(
                "Make a link that signs a browser in once, within the hour; for others: admins alone",
                {201: answer("an address on this hub", record({"path": WORD}))},
                fails=CHANGES,
                body=someone,
            )
        },
        "/v1/audit": {
            "get": operation(
                "The audit trail, newest first",
                {200: answer("a page of it", record({"entries": list_of(reference("AuditEntry"))}))},
                fails=(400, 503),
                takes=[
                    query("before", whole(), "only entries with a smaller number; 0: the newest"),
                    query("limit", whole(), "how many at most, 1,000 at most; 0: 100"),
                ],
            )
        },
    }


def _present() -> Paths:
    devices = record({"devices": list_of(reference("Device")), "timeNs": NANOSECONDS}, next=NEXT, total=whole())
    fleets = record({"fleets": list_of(reference("Fleet"))}, next=NEXT, total=whole())
    actuators = record({"actuators": list_of(reference("Actuator"))})
    return {
        "/v1/zones": {
            "get": operation(
                "All zones, with what is open in each",
                {200: answer("the most urgent first", reference("Zones"))},
                fails=[400],
                takes=[*PAGE, *SELECTION],
            )
        },
        "/v1/devices": {
            "get": operation(
                "All devices: coverage, latest values, ledgers",
                {200: answer("declared ones first, or as was asked for", devices)},
                fails=[400],
                takes=[*PAGE, *SELECTION],
            )
        },
        "/v1/fleets": {
            "get": operation(
                "Fleets: what is watched, how busy their shards are, how many they need and why",
                {200: answer("by name, or as was asked for", fleets)},
                fails=[400],
                takes=[*PAGE, *SELECTION],
            )
        },
        "/v1/canaries": {
            "get": operation(
                "The heartbeat of every shard",
                {200: answer("by shard", record({"canaries": list_of(reference("Heartbeat"))}))},
            )
        },
        "/v1/actuators": {
            "get": operation(
                "Actuators that are connected, who steers them, and what they measure",
                {200: answer("by name", actuators)},
            )
        },
    }


def _pictures() -> Paths:
    device = "/v1/devices/{namespace}/{kind}/{fleet}/{device}"
    picture = {200: file_of("the picture", JPEG)}
    return {
        f"{device}/snapshot.jpg": {"get": operation("A device's latest picture", picture, fails=[404])},
        f"{device}/thermal": {
            "get": operation(
                "A sensor's latest thermal picture",
                {200: answer("24 rows of 32", reference("Thermal"))},
                fails=[404],
            )
        },
        "/v1/snapshot/{device}.jpg": {
            "get": operation("The latest picture of the first device of that id", picture, fails=[404])
        },
        "/v1/alarms/{alarm}/{device}/{kind}.jpg": {
            "get": operation("What a device saw when its sign joined an alarm", picture, fails=(404, 503))
        },
        "/v1/alarms/{alarm}/clips": {
            "get": operation(
                "Clips of an alarm, and what sensors sent around it, at most 200 of each",
                {
                    200: answer(
                        "newest first",
                        record({"clips": list_of(reference("ListedClip")), "lines": list_of(reference("ListedClip"))}),
                    )
                },
                fails=[503],
            )
        },
        "/v1/clips/{name}.{form}": {
            "get": operation(
                "A clip, still or recording of a sensor",
                {
                    200: file_of("all of it", *CLIPS),
                    206: file_of("the Range that was asked for", *CLIPS),
                    304: answer("as it was"),
                    412: answer("If-Match does not hold"),
                    416: answer("no such Range"),
                },
                fails=[404],
            )
        },
        "/v1/clips/{name}/frame.jpg": {
            "get": operation(
                "One frame of a Matroska clip: the last that was taken at or before a moment",
                picture,
                fails=(400, 404, 413, 503),
                takes=[query("at", whole(), "nanoseconds since the Unix epoch; 0: its first")],
            )
        },
        "/v1/clips/{name}.mjpg": {
            "get": operation(
                "The frames of a Matroska clip at their own pace, over and over",
                {200: file_of("JPEG after JPEG", "multipart/x-mixed-replace")},
                fails=(404, 413, 503),
            )
        },
    }


WANTED = [
    query("zone", list_of(WORD), "ZONE or NAMESPACE/ZONE, may be given again; none: all"),
    query("level", list_of({"type": "string", "enum": list(LEVELS)}), "of the zone, may be given again; none: all"),
    query("kind", list_of({"type": "string", "enum": list(KINDS)}), "of a sign, may be given again; none: all"),
    query("device", list_of(WORD), "id, may be given again; none: all"),
    query("type", list_of({"type": "string", "enum": list(TYPES)}), "of event, may be given again; none: all"),
    query("subscription", WORD, "instead of these: the name of a stored subscription"),
]


def _past() -> Paths:
    page = record({"events": list_of(reference("AlarmEvent")), "latest": CURSOR}, next=CURSOR)
    return {
        "/v1/history": {
            "get": operation(
                "Events that were, ascending",
                {
                    200: answer(
                        "a page, the newest cursor there is, and `next`: `after` of the next page, with `newest` "
                        "its `before`; missing: there is none",
                        page,
                    )
                },
                fails=(400, 404, 503),
                takes=[
                    query("after", whole(), "cursor of the last event that is known"),
                    query("before", whole(), "only events before this cursor; 0: all"),
                    query("since", whole(), "only events from then on, nanoseconds since the Unix epoch"),
                    query("until", whole(), "only events before then, nanoseconds since the Unix epoch; 0: all"),
                    query("limit", whole(), "how many at most, 1,000 at most; 0: 100"),
                    query("newest", whole(), "instead of `limit`: so many of the newest"),
                    *WANTED,
                ],
            )
        },
        "/v1/alarms/ws": {
            "get": operation(
                "A WebSocket of AlarmEvents, one in each message: what follows `cursor`, then live. A text message "
                'with {"select": Selection} or {"subscription": NAME} changes what is wanted; the answer is a text '
                'message with {"selected": Selection, "cursor": CURSOR}, or with an error',
                {101: answer("it is open")},
                fails=(400, 404, 409, 426, 503),
                takes=[
                    query("cursor", whole(), "go on behind it; not given: with what happens next"),
                    query(
                        "format",
                        {"type": "string", "enum": ["json", "binary"]},
                        "json (default): text messages; binary: protobuf in binary messages",
                    ),
                    query(
                        "slow",
                        {"type": "string", "enum": ["disconnect", "coalesce"]},
                        "where the client is far behind: close (default), or the newest event of each zone and device",
                    ),
                    query(
                        "alive_ms",
                        {"type": "integer", "minimum": 1_000},
                        "be told that the hub is there, every so many milliseconds: an event of TYPE_ALIVE whose "
                        "cursor says up to where all is told, and whose why what the hub cannot do; default: never",
                    ),
                    query(
                        "unstored",
                        {"type": "string", "enum": ["no", "yes"]},
                        "yes: while the hub can store nothing, be told at once what happens, by events that are "
                        "unstored and have no cursor, and again once it is stored",
                    ),
                    *WANTED,
                ],
            )
        },
        "/v1/subscriptions": {
            "get": operation(
                "Stored subscriptions",
                {200: answer("by name", record({"subscriptions": list_of(reference("Subscription"))}))},
            )
        },
        "/v1/subscriptions/{name}": {
            "put": operation(
                "Store a selection under a name, instead of what was there",
                {200: answer("it is durable", reference("Subscription"))},
                fails=(*CHANGES, 503),
                body=reference("Selection"),
            ),
            "delete": operation(
                "Forget a stored subscription", {200: answer("it is gone", {"type": "object"})}, fails=(404, 503)
            ),
        },
    }


def _webhooks() -> Paths:
    name = "/v1/webhooks/{name}"
    return {
        "/v1/webhooks": {
            "get": operation(
                "How webhooks fare", {200: answer("by name", record({"webhooks": list_of(reference("Webhook"))}))}
            )
        },
        f"{name}/dead-letters": {
            "get": operation(
                "What a webhook could not deliver",
                {200: answer("ascending", record({"deadLetters": list_of(reference("DeadLetter"))}))},
                fails=(400, 404, 503),
                takes=[
                    query("after", whole(), "cursor of the last one that is known"),
                    query("limit", whole(), "how many at most, 1,000 at most; 0: 100"),
                ],
            )
        },
        f"{name}/resend": {
            "post": operation(
                "Send dead letters again; those that fail again stay",
                {202: answer("how many", record({"resent": whole()}))},
                fails=(*CHANGES, 404, 503),
                body=record({}, cursors={**list_of(CURSOR), "description": "none: all", "maxItems": 10_000}),
            )
        },
        f"{name}/test": {
            "post": operation(
                "Send a webhook a test that nobody need mind",
                {200: answer("why it was not taken; empty: it was", record({"failed": WORD}))},
                fails=(*CHANGES, 404, 503),
                body=record({}),
            )
        },
    }


def _alarms() -> Paths:
    time = "nanoseconds since the Unix epoch"
    alarms = record({"alarms": list_of(reference("PastAlarm"))}, next=NEXT)
    reason: Json = {"type": "string", "minLength": 1, "maxLength": 2000, "pattern": "\\S"}
    said = record({"reason": reason}, who={"type": "string", "maxLength": 200})
    marks = record({"falseAlarms": list_of(reference("FalseAlarm"))})
    made = {200: answer("the event that it made, durable", reference("AlarmEvent"))}
    return {
        "/v1/alarms": {
            "get": operation(
                "Alarms that were or are",
                {200: answer("newest first", alarms)},
                fails=(400, 503),
                takes=[
                    query("limit", whole(), "how many at most, 1,000 at most; 0: 100"),
                    query("before", whole(), "go on behind a page: its `next`"),
                    query("from", whole(), f"only what ended later, or not yet: {time}"),
                    query("until", whole(), f"only what began earlier: {time}; 0: all"),
                    query("zone", WORD, "ZONE or NAMESPACE/ZONE; empty: all"),
                    query("of", {"type": "string", "enum": list(CATEGORIES)}, "only of this sort; empty: all"),
                ],
            )
        },
        "/v1/alarms/{alarm}": {
            "get": operation(
                "One alarm, with all its events", {200: answer("it", reference("ExplainedAlarm"))}, fails=(404, 503)
            )
        },
        "/v1/alarms/{alarm}/false": {
            "post": operation(
                "Mark an alarm as false: what is like it is a pre-alarm until there is more of it",
                made,
                fails=(*CHANGES, 404, 409, 503),
                body=said,
            ),
            "delete": operation("Take back that an alarm was false", made, fails=(404, 503)),
        },
        "/v1/false-alarms": {"get": operation("Alarms that are marked as false", {200: answer("newest first", marks)})},
        "/v1/timeline": {
            "get": operation(
                "What happened in a span of time, by zone, and the clips of it",
                {200: answer("zones in order of their names", reference("Timeline"))},
                fails=(400, 503),
                takes=[
                    query("from", whole(), f"{time}; not given: a day before `until`, at most 8 days before it"),
                    query("until", whole(), f"{time}; 0: now"),
                ],
            )
        },
    }


def _actions() -> Paths:
    said = record({}, who={"type": "string", "maxLength": 200}, note={"type": "string", "maxLength": 2000})
    return {
        "/v1/zones/{namespace}/{zone}/{action}": {
            "post": operation(
                "Acknowledge an alarm, reset one that is acknowledged, begin or end a test",
                {200: answer("the event that it made, durable", reference("AlarmEvent"))},
                fails=(*CHANGES, 404, 409, 503),
                body=said,
            )
        }
    }


def _silences() -> Paths:
    reason: Json = {"type": "string", "minLength": 1, "maxLength": 2000, "pattern": "\\S"}
    minutes: Json = {"type": "integer", "minimum": 1, "maximum": MAX_MINUTES}
    device: Json = {"type": "string", "description": "id of one in the zone; empty: the whole zone"}
    said = record({"reason": reason, "minutes": minutes}, device=device, who={"type": "string", "maxLength": 200})
    made = {200: answer("the event that it made, durable", reference("AlarmEvent"))}
    listed = record({"silences": list_of(reference("Silence"))})
    return {
        "/v1/silences": {
            "get": operation("Silences that are on", {200: answer("the one that ends first before the others", listed)})
        },
        "/v1/zones/{namespace}/{zone}/silences": {
            "post": operation(
                "Keep notifications of a zone, or of a device in it, back for a while; in place of a silence of the "
                "same. Alarms are told all the same",
                made,
                fails=(*CHANGES, 404, 409, 503),
                body=said,
            )
        },
        "/v1/silences/{silence}": {"delete": operation("End a silence before its time", made, fails=(404, 503))},
    }


def _plans() -> Paths:
    plan = "/v1/plans/{name}"
    device = f"{plan}/devices/{{namespace}}/{{kind}}/{{fleet}}/{{device}}"
    share: Json = {"type": "number", "minimum": 0, "maximum": 1}
    image = operation(
        "Store the picture of a plan, instead of what was there; devices on it stay where they are",
        {200: answer("it is durable", reference("Plan"))},
        fails=(*CHANGES, 503),
    )
    image["requestBody"] = {
        "required": True,
        "content": {media: {"schema": {"type": "string", "format": "binary"}} for media in PLAN_MEDIA},
    }
    gone = {200: answer("it is gone", {"type": "object"})}
    return {
        "/v1/plans": {
            "get": operation(
                "Plans of the building",
                {200: answer("in their order", record({"plans": list_of(reference("Plan"))}))},
            )
        },
        plan: {
            "get": operation(
                "One plan, with where devices are on it, and whether they are watched",
                {200: answer("it", reference("FurnishedPlan"))},
                fails=[404],
            ),
            "put": image,
            "delete": operation("Forget a plan, and where devices are on it", gone, fails=(404, 503)),
        },
        f"{plan}/image": {
            "get": operation(
                "The picture of a plan",
                {200: file_of("the picture", *PLAN_MEDIA)},
                fails=(404, 503),
                takes=[query("version", WORD, "as in `image` of the plan: what is answered may then be kept")],
            )
        },
        device: {
            "put": operation(
                "Put a device on a plan, or move it there",
                {200: answer("it is durable", reference("PlacedDevice"))},
                fails=(*CHANGES, 404, 503),
                body=record({"x": share, "y": share}),
            ),
            "delete": operation("Take a device off a plan", gone, fails=(404, 503)),
        },
    }


def _overlays() -> Paths:
    share: Json = {"type": "number", "minimum": 0, "maximum": 1}
    wanted = record(
        {
            "fleet": {"type": "string", "description": "of the sensor: NAMESPACE/KIND/NAME"}, "sensor": WORD,
            "x": share, "y": share, "scale": {"type": "number", "minimum": 0.05, "maximum": 4}, "opacity": share,
        }
    )  # fmt: skip
    return {
        "/v1/overlays": {
            "get": operation(
                "Thermal pictures that lie over cameras' pictures",
                {200: answer("by camera", record({"overlays": list_of(reference("Overlay"))}))},
            )
        },
        "/v1/overlays/{namespace}/{fleet}/{device}": {
            "put": operation(
                "Lay a sensor's thermal picture over a camera's, instead of what lies there",
                {200: answer("it is durable", reference("Overlay"))},
                fails=(*CHANGES, 404, 503),
                body=wanted,
            ),
            "delete": operation(
                "Lay nothing over it any more", {200: answer("it is gone", {"type": "object"})}, fails=(404, 503)
            ),
        },
    }
