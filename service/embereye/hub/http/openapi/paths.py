"""Descriptions of every path of the hub: its parameters, its answers and its refusals."""

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
from embereye.hub.roles import Role
from embereye.hub.silences import MAX_MINUTES
from embereye.hub.tables.alarms import CATEGORIES
from embereye.hub.tables.selection import KINDS, LEVELS, TYPES

Paths = dict[str, dict[str, Json]]

JPEG = "image/jpeg"
CLIPS = ("video/matroska", JPEG, "video/mp4", "application/jsonl")
TOKEN_NAME = "[A-Za-z0-9][A-Za-z0-9._@ -]{0,62}"
CHANGES = (400, 408, 413, 415)  # refusals of a body
PAGE = [
    query("limit", whole(), "maximum number of entries; 0: all"),
    query("after", WORD, "the last key of the previous page, its `next`; pages are in the order of keys"),
]
SELECTION = [
    query(
        "order",
        {"type": "string", "enum": ["", "urgent"]},
        "urgent: the most urgent entries first, such as dark devices and zones in alarm",
    ),
    query("text", WORD, "only entries that contain each of these words; the answer has their number in `total`"),
    query("pictures", whole(1), "1: only entries that have pictures, or should have"),
    query("offset", whole(), "number of selected entries to skip; instead of `after`"),
]


def paths() -> Paths:
    """Describe all paths, without what follows from the path and the role."""
    return {
        **_pages(), **_access(), **_present(), **_pictures(), **_past(), **_alarms(), **_webhooks(), **_actions(),
        **_silences(), **_plans(), **_overlays(),
    }  # fmt: skip


def _pages() -> Paths:
    console = {200: file_of("the page", "text/html"), 303: answer("sign in first")}
    return {
        "/": {"get": operation("The console", console)},
        "/login": {"get": operation("The sign-in page", {200: file_of("the page", "text/html")})},
        "/static/{name}": {
            "get": operation(
                "Scripts and styles of the pages", {200: file_of("the file", *STATIC.values())}, fails=[404]
            )
        },
        "/runbooks": {"get": operation("List the runbooks of all alerts", {200: file_of("the list", "text/html")})},
        "/runbooks/{name}": {
            "get": operation("The runbook of one alert", {200: file_of("the page", "text/html")}, fails=[404])
        },
        "/healthz": {"get": operation("Check that the hub is alive", {200: file_of("it is", "text/plain")})},
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
    page = file_of("a page with the result", "text/html")
    wanted = record({"name": {"type": "string", "pattern": f"^{TOKEN_NAME}$"}, "role": ROLE})
    someone = record(
        {},
        name={"type": "string", "pattern": f"^({TOKEN_NAME})?$"},
        role={"type": "string", "enum": ["", *(role.word for role in Role)]},
    )
    return {
        "/v1/session": {
            "get": operation(
                "How people can sign in other than with a token",
                {200: answer("the identity provider's host; empty: there is none", record({"provider": WORD}))},
            ),
            "post": operation(
                "Sign a browser in, with a token or a link's code; the answer sets its cookie",
                {200: answer("the person or program", reference("Identity"))},
                fails=(*CHANGES, 401, 403, 429),
                body=proof,
            ),
        },
        "/login/oidc": {
            "get": operation(
                "Sign in with the identity provider",
                {303: answer("its page"), 502: page},
                fails=[404],
                takes=[query("next", WORD, "path of the page to open afterwards")],
            )
        },
        "/login/oidc/callback": {
            "get": operation(
                "The address to which the identity provider sends browsers back",
                {200: page, 403: page, 429: page, 502: page},
                fails=[404],
                takes=[query(name, WORD, "as in OpenID Connect") for name in ("code", "state", "iss", "error")],
            )
        },
        "/v1/access/me": {"get": operation("The caller", {200: answer("name and role", reference("Identity"))})},
        "/v1/access/logout": {
            "post": operation("Sign out", {200: answer("signed out; the page to open", record({"next": WORD}))})
        },
        "/v1/access/tokens": {
            "get": operation(
                "All tokens",
                {200: answer("without their secrets", record({"tokens": list_of(reference("Token"))}))},
            ),
            "post": operation(
                "Create a token",
                {201: answer("shown only this once", record({"name": WORD, "role": ROLE, "token": WORD}))},
                fails=(*CHANGES, 409, 503),
                body=wanted,
            ),
        },
        "/v1/access/tokens/{name}": {
            "delete": operation(
                "Revoke a token, and end its sessions and streams",
                {200: answer("it is no longer valid", {"type": "object"})},
                fails=(404, 503),
            )
        },
        "/v1/access/links": {
            "post": operation(
                "Create a link that signs one browser in, once, within the hour; only admins create links for others",
                {201: answer("an address on this hub", record({"path": WORD}))},
                fails=CHANGES,
                body=someone,
            )
        },
        "/v1/audit": {
            "get": operation(
                "The audit trail, newest first",
                {200: answer("a page", record({"entries": list_of(reference("AuditEntry"))}))},
                fails=(400, 503),
                takes=[
                    query("before", whole(), "only entries with a smaller number; 0: the newest"),
                    query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
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
                "All zones, with their open alarms",
                {200: answer("the most urgent first", reference("Zones"))},
                fails=[400],
                takes=[*PAGE, *SELECTION],
            )
        },
        "/v1/devices": {
            "get": operation(
                "All devices: coverage, latest values, ledgers",
                {200: answer("declared ones first, or in the requested order", devices)},
                fails=[400],
                takes=[*PAGE, *SELECTION],
            )
        },
        "/v1/fleets": {
            "get": operation(
                "Fleets: their coverage, the load of their shards, and the number of shards they need",
                {200: answer("by name, or in the requested order", fleets)},
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
                "Connected actuators, their controllers and their measurements",
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
            "get": operation("The latest picture of the first device with that id", picture, fails=[404])
        },
        "/v1/alarms/{alarm}/{device}/{kind}.jpg": {
            "get": operation("A device's picture from when its sign joined an alarm", picture, fails=(404, 503))
        },
        "/v1/alarms/{alarm}/clips": {
            "get": operation(
                "Clips of an alarm, and sensors' recordings around it, at most 200 of each",
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
                    206: file_of("the requested Range", *CLIPS),
                    304: answer("unchanged"),
                    412: answer("If-Match does not match"),
                    416: answer("there is no such Range"),
                },
                fails=[404],
            )
        },
        "/v1/clips/{name}/frame.jpg": {
            "get": operation(
                "One frame of a Matroska clip: the last one taken at or before a time",
                picture,
                fails=(400, 404, 413, 503),
                takes=[query("at", whole(), "nanoseconds since the Unix epoch; 0: the first frame")],
            )
        },
        "/v1/clips/{name}.mjpg": {
            "get": operation(
                "The frames of a Matroska clip at their pace, several times",
                {200: file_of("JPEG after JPEG", "multipart/x-mixed-replace")},
                fails=(404, 413, 503),
            )
        },
    }


WANTED = [
    query("zone", list_of(WORD), "ZONE or NAMESPACE/ZONE, can be repeated; none: all"),
    query("level", list_of({"type": "string", "enum": list(LEVELS)}), "of the zone, can be repeated; none: all"),
    query("kind", list_of({"type": "string", "enum": list(KINDS)}), "of a sign, can be repeated; none: all"),
    query("device", list_of(WORD), "id, can be repeated; none: all"),
    query("type", list_of({"type": "string", "enum": list(TYPES)}), "of event, can be repeated; none: all"),
    query("subscription", WORD, "instead of these: the name of a stored subscription"),
]


def _past() -> Paths:
    page = record({"events": list_of(reference("AlarmEvent")), "latest": CURSOR}, next=CURSOR)
    return {
        "/v1/history": {
            "get": operation(
                "Past events, ascending",
                {
                    200: answer(
                        "a page, the newest cursor, and `next`: the `after` of the next page or, with `newest`, "
                        "its `before`; missing: there is none",
                        page,
                    )
                },
                fails=(400, 404, 503),
                takes=[
                    query("after", whole(), "cursor of the last known event"),
                    query("before", whole(), "only events before this cursor; 0: all"),
                    query("since", whole(), "only events from this time on, nanoseconds since the Unix epoch"),
                    query("until", whole(), "only events before this time, nanoseconds since the Unix epoch; 0: all"),
                    query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
                    query("newest", whole(), "instead of `limit`: number of the newest events"),
                    *WANTED,
                ],
            )
        },
        "/v1/alarms/ws": {
            "get": operation(
                "A WebSocket of AlarmEvents, one per message: events after `cursor`, then live events. A text message "
                'with {"select": Selection} or {"subscription": NAME} changes the selection; the answer is a text '
                'message with {"selected": Selection, "cursor": CURSOR}, or with an error',
                {101: answer("it is open")},
                fails=(400, 404, 409, 426, 503),
                takes=[
                    query("cursor", whole(), "continue after it; missing: start with the next event"),
                    query(
                        "format",
                        {"type": "string", "enum": ["json", "binary"]},
                        "json (default): text messages; binary: protobuf in binary messages",
                    ),
                    query(
                        "slow",
                        {"type": "string", "enum": ["disconnect", "coalesce"]},
                        "for a client far behind: close (default), or send the newest event of each zone and device",
                    ),
                    query(
                        "alive_ms",
                        {"type": "integer", "minimum": 1_000},
                        "send an event of TYPE_ALIVE every so many milliseconds: its cursor says up to which event "
                        "everything was sent, its why says what the hub cannot do; default: never",
                    ),
                    query(
                        "unstored",
                        {"type": "string", "enum": ["no", "yes"]},
                        "yes: while the hub can store nothing, send events immediately, marked as unstored and "
                        "without a cursor, and again once they are stored",
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
                "Store a selection under a name; it replaces an older one",
                {200: answer("it is durable", reference("Subscription"))},
                fails=(*CHANGES, 503),
                body=reference("Selection"),
            ),
            "delete": operation(
                "Remove a stored subscription", {200: answer("it is removed", {"type": "object"})}, fails=(404, 503)
            ),
        },
    }


def _webhooks() -> Paths:
    name = "/v1/webhooks/{name}"
    return {
        "/v1/webhooks": {
            "get": operation(
                "All webhooks and their state",
                {200: answer("by name", record({"webhooks": list_of(reference("Webhook"))}))},
            )
        },
        f"{name}/dead-letters": {
            "get": operation(
                "A webhook's dead letters",
                {200: answer("ascending", record({"deadLetters": list_of(reference("DeadLetter"))}))},
                fails=(400, 404, 503),
                takes=[
                    query("after", whole(), "cursor of the last known one"),
                    query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
                ],
            )
        },
        f"{name}/resend": {
            "post": operation(
                "Send dead letters again; those that fail again remain dead letters",
                {202: answer("their number", record({"resent": whole()}))},
                fails=(*CHANGES, 404, 503),
                body=record({}, cursors={**list_of(CURSOR), "description": "none: all", "maxItems": 10_000}),
            )
        },
        f"{name}/test": {
            "post": operation(
                "Send a harmless test event by a webhook",
                {200: answer("why it failed; empty: the receiver accepted it", record({"failed": WORD}))},
                fails=(*CHANGES, 404, 503),
                body=record({}),
            )
        },
    }


def _alarms() -> Paths:
    time = "nanoseconds since the Unix epoch"
    alarms = record({"alarms": list_of(reference("PastAlarm"))}, next=NEXT)
    reason: Json = {"type": "string", "minLength": 1, "maxLength": 2000, "pattern": "\\S"}
    body = record({"reason": reason}, who={"type": "string", "maxLength": 200})
    marks = record({"falseAlarms": list_of(reference("FalseAlarm"))})
    made = {200: answer("the resulting event, durable", reference("AlarmEvent"))}
    return {
        "/v1/alarms": {
            "get": operation(
                "Past and open alarms",
                {200: answer("newest first", alarms)},
                fails=(400, 503),
                takes=[
                    query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
                    query("before", whole(), "continue after a page: its `next`"),
                    query("from", whole(), f"only alarms that ended later or are open: {time}"),
                    query("until", whole(), f"only alarms that started earlier: {time}; 0: all"),
                    query("zone", WORD, "ZONE or NAMESPACE/ZONE; empty: all"),
                    query("of", {"type": "string", "enum": list(CATEGORIES)}, "only of this sort; empty: all"),
                ],
            )
        },
        "/v1/alarms/{alarm}": {
            "get": operation(
                "One alarm with all its events",
                {200: answer("the alarm", reference("ExplainedAlarm"))},
                fails=(404, 503),
            )
        },
        "/v1/alarms/{alarm}/false": {
            "post": operation(
                "Mark an alarm as false: similar detections raise a pre-alarm only, unless stronger or confirmed",
                made,
                fails=(*CHANGES, 404, 409, 503),
                body=body,
            ),
            "delete": operation("Remove the mark of a false alarm", made, fails=(404, 503)),
        },
        "/v1/false-alarms": {"get": operation("Alarms that are marked as false", {200: answer("newest first", marks)})},
        "/v1/timeline": {
            "get": operation(
                "The events of a span of time by zone, and its clips",
                {200: answer("zones in order of their names", reference("Timeline"))},
                fails=(400, 503),
                takes=[
                    query("from", whole(), f"{time}; missing: a day before `until`; at most 8 days before it"),
                    query("until", whole(), f"{time}; 0: now"),
                ],
            )
        },
    }


def _actions() -> Paths:
    body = record({}, who={"type": "string", "maxLength": 200}, note={"type": "string", "maxLength": 2000})
    return {
        "/v1/zones/{namespace}/{zone}/{action}": {
            "post": operation(
                "Acknowledge an alarm, reset an acknowledged one, start or end a test",
                {200: answer("the resulting event, durable", reference("AlarmEvent"))},
                fails=(*CHANGES, 404, 409, 503),
                body=body,
            )
        }
    }


def _silences() -> Paths:
    reason: Json = {"type": "string", "minLength": 1, "maxLength": 2000, "pattern": "\\S"}
    minutes: Json = {"type": "integer", "minimum": 1, "maximum": MAX_MINUTES}
    device: Json = {"type": "string", "description": "id of a device in the zone; empty: the whole zone"}
    body = record({"reason": reason, "minutes": minutes}, device=device, who={"type": "string", "maxLength": 200})
    made = {200: answer("the resulting event, durable", reference("AlarmEvent"))}
    listed = record({"silences": list_of(reference("Silence"))})
    return {
        "/v1/silences": {
            "get": operation("Present silences", {200: answer("the one that ends first comes first", listed)})
        },
        "/v1/zones/{namespace}/{zone}/silences": {
            "post": operation(
                "Pause notifications for faults, pre-alarms and updates to the current alarm, of a zone or a device in "
                "it; replaces an older silence of the same. New alarms still notify",
                made,
                fails=(*CHANGES, 404, 409, 503),
                body=body,
            )
        },
        "/v1/silences/{silence}": {"delete": operation("End a silence early", made, fails=(404, 503))},
    }


def _plans() -> Paths:
    plan = "/v1/plans/{name}"
    device = f"{plan}/devices/{{namespace}}/{{kind}}/{{fleet}}/{{device}}"
    share: Json = {"type": "number", "minimum": 0, "maximum": 1}
    image = operation(
        "Store the picture of a plan; it replaces an older one, and devices remain at their places",
        {200: answer("it is durable", reference("Plan"))},
        fails=(*CHANGES, 503),
    )
    image["requestBody"] = {
        "required": True,
        "content": {media: {"schema": {"type": "string", "format": "binary"}} for media in PLAN_MEDIA},
    }
    gone = {200: answer("it is removed", {"type": "object"})}
    return {
        "/v1/plans": {
            "get": operation(
                "Plans of the building",
                {200: answer("in their order", record({"plans": list_of(reference("Plan"))}))},
            )
        },
        plan: {
            "get": operation(
                "One plan, with the places of its devices and their coverage",
                {200: answer("the plan", reference("FurnishedPlan"))},
                fails=[404],
            ),
            "put": image,
            "delete": operation("Remove a plan and the places of its devices", gone, fails=(404, 503)),
        },
        f"{plan}/image": {
            "get": operation(
                "The picture of a plan",
                {200: file_of("the picture", *PLAN_MEDIA)},
                fails=(404, 503),
                takes=[query("version", WORD, "as in the plan's `image`: the answer can then be cached")],
            )
        },
        device: {
            "put": operation(
                "Place a device on a plan, or move it there",
                {200: answer("it is durable", reference("PlacedDevice"))},
                fails=(*CHANGES, 404, 503),
                body=record({"x": share, "y": share}),
            ),
            "delete": operation("Remove a device from a plan", gone, fails=(404, 503)),
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
                "Thermal pictures over cameras' pictures",
                {200: answer("by camera", record({"overlays": list_of(reference("Overlay"))}))},
            )
        },
        "/v1/overlays/{namespace}/{fleet}/{device}": {
            "put": operation(
                "Lay a sensor's thermal picture over a camera's; it replaces an older one",
                {200: answer("it is durable", reference("Overlay"))},
                fails=(*CHANGES, 404, 503),
                body=wanted,
            ),
            "delete": operation(
                "Remove the overlay", {200: answer("it is removed", {"type": "object"})}, fails=(404, 503)
            ),
        },
    }
