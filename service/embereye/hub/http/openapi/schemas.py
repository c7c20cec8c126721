"""Schemas of the values in answers; those of messages are made from their protobuf descriptors.

Routes refer to a schema by its name; `describe` includes all of them. Objects that routes build as JSON are described
by hand here. Protobuf messages are described from their descriptors, recursively, so a new field appears in the
document without a change here.
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from embereye.hub.http.openapi.parts import (
    CURSOR,
    NANOSECONDS,
    NEXT,
    NUMBER,
    ROLE,
    SHARE,
    WORD,
    Json,
    list_of,
    record,
    reference,
    whole,
)
from embereye.hub.tables.selection import KINDS, LEVELS, MAX_VALUE, MAX_VALUES, TYPES
from embereye.v1 import alarms_pb2, clips_pb2, evidence_pb2, types_pb2


def selection() -> Json:
    """Describe a selection of the feed; a missing field selects everything."""
    names: Json = {
        "type": "array", "maxItems": MAX_VALUES, "items": {"type": "string", "minLength": 1, "maxLength": MAX_VALUE}
    }  # fmt: skip
    words: dict[str, list[str]] = {"levels": list(LEVELS), "kinds": list(KINDS), "types": list(TYPES)}
    fields = record(
        {},
        zones=names,
        devices=names,
        **{name: list_of({"type": "string", "enum": known}) for name, known in words.items()},
    )
    return {**fields, "additionalProperties": False}


def _past() -> dict[str, Json]:
    state: Json = {"type": "string", "enum": list(alarms_pb2.ZoneState.keys())}
    span: dict[str, Json] = {"fromNs": NANOSECONDS, "untilNs": NANOSECONDS}
    lane = record(
        {
            "namespace": WORD, "zone": WORD,
            "states": list_of(record({"state": state, "alarm": WORD, "why": WORD, **span})),
            "dark": list_of(record({"device": WORD, "reason": WORD, **span})),
        }
    )  # fmt: skip
    alarm: dict[str, Json] = {
        "alarm": WORD, "namespace": WORD, "zone": WORD, "beganNs": NANOSECONDS, "endedNs": NANOSECONDS, "worst": state,
        "why": WORD,
    }  # fmt: skip
    return {
        "PastAlarm": record(alarm, falseAlarm=reference("FalseAlarm")),
        "ExplainedAlarm": record(
            {**alarm, "events": list_of(reference("AlarmEvent"))}, falseAlarm=reference("FalseAlarm")
        ),
        "Timeline": record(
            {
                **span,
                "zones": list_of(lane),
                "clips": list_of(reference("TimelineClip")),
                "truncated": {"type": "boolean", "description": "too many events: the last part is missing"},
            }
        ),
    }


def _overlay() -> Json:
    return record(
        {
            "camera": record({"fleet": WORD, "id": WORD}), "fleet": WORD, "sensor": WORD,
            "x": {**SHARE, "description": "of the centre, a share of the camera's picture"}, "y": SHARE,
            "scale": {"type": "number", "description": "its width, as a share"}, "opacity": SHARE,
        }
    )  # fmt: skip


def _fleets() -> dict[str, Json]:
    number: Json = {"type": "number"}
    load = record(
        {
            "arrivalRate": {"type": "number", "description": "items a second"},
            "utilization": {"type": "number", "description": "of one core; for a fleet the mean of its shards"},
            "queueDepth": whole(), "oldestAge": {**number, "description": "seconds"},
        }
    )  # fmt: skip
    change = record({"timeNs": NANOSECONDS, "before": whole(), "after": whole(), "reason": WORD})
    scaling = record(
        {
            "timeNs": NANOSECONDS, "mode": WORD, "minShards": whole(), "maxShards": whole(), "shards": whole(),
            "readyShards": whole(), "known": {"type": "boolean"}, "requiredShards": whole(), "reason": WORD,
        },
        load=load,
        last=change,
    )  # fmt: skip
    shard = record({"name": WORD, "state": WORD, "devices": whole(), "covered": whole()}, load=load)
    fleet = record(
        {"fleet": WORD, "declared": whole(), "covered": whole(), "shards": list_of(shard)},
        scaling={**scaling, "description": "the operator's latest report; missing: none"},
    )
    return {"Fleet": fleet}


def _plans() -> dict[str, Json]:
    plan: dict[str, Json] = {
        "name": WORD, "width": whole(), "height": whole(),
        "image": {"type": "string", "description": "the picture's address"}, "madeNs": NANOSECONDS, "madeBy": WORD,
    }  # fmt: skip
    placed = record(
        {
            "fleet": WORD, "id": WORD, "x": SHARE, "y": SHARE, "namespace": WORD, "zone": WORD,
            "declared": {"type": "boolean"}, "covered": {"type": "boolean"}, "reason": WORD,
            "hasPicture": {"type": "boolean"},
        }
    )  # fmt: skip
    furnished = record({**plan, "devices": list_of(reference("PlacedDevice"))})
    return {"Plan": record(plan), "PlacedDevice": placed, "FurnishedPlan": furnished}


def _device() -> Json:
    required: dict[str, Json] = {
        "declared": {"type": "boolean"},
        "fleet": {"type": "string", "description": "NAMESPACE/KIND/NAME"},
        "id": WORD, "zone": WORD, "namespace": WORD, "location": WORD,
        "source": {"type": "string", "description": "address of a camera, without secrets; empty: it is not known"},
        "covered": {"type": "boolean"},
        "reason": {"type": "string", "description": "why it is not covered; empty: it is"},
        "shards": list_of(WORD), "pictureNs": NANOSECONDS, "thermalNs": NANOSECONDS,
        "heardNs": NANOSECONDS, "analysedNs": NANOSECONDS,
    }  # fmt: skip
    owner = record(
        {
            "shard": WORD, "sinceNs": NANOSECONDS, "untilNs": NANOSECONDS,
            "state": {"type": "string", "enum": ["closed", "open", "lost"]}, "ledger": reference("Ledger"),
        }
    )  # fmt: skip
    hottest = record({"hottest": {"type": ["number", "null"]}, "relative": {"type": "boolean"}})
    return record(
        required, state=WORD, degraded=WORD, latest=list_of(reference("Term")), ledger=reference("Ledger"),
        owners=list_of(owner), thermal=hottest,
    )  # fmt: skip


def _region(*kinds: str) -> Json:
    return record(
        {
            "name": WORD,
            "kind": {"type": "string", "enum": [*kinds, "highest", "mean", "rise"]},
            "limit": {"type": "number", "description": "°C; of a rise, °C/min"},
            "x": list_of({"type": "number", "description": "share of the width"}),
            "y": list_of({"type": "number", "description": "share of the height"}),
        }
    )


def _measured() -> Json:
    values = list_of({"type": ["number", "null"], "description": "null: nothing was reported"})
    return list_of(record({"name": WORD, "unit": WORD, "values": values}))


# Those of messages are added from their descriptors.
SCHEMAS: dict[str, Json] = {
    "Error": record({"error": {"type": "string", "description": "one sentence for people"}}),
    "Identity": record({"name": WORD, "role": ROLE}, zones=list_of(WORD)),
    "Token": record({"name": WORD, "role": ROLE, "madeNs": NANOSECONDS, "madeBy": WORD, "zones": list_of(WORD)}),
    "AuditEntry": record(
        {
            "number": {"type": "string", "pattern": "^[0-9]+$"}, "timeNs": NANOSECONDS, "who": WORD, "role": ROLE,
            "address": WORD, "action": WORD, "subject": WORD, "detail": WORD,
        }
    ),
    "Zones": record(
        {
            "zones": list_of(reference("Zone")),
            "cursor": {"type": "string", "description": "of the newest event: a feed continues from it"},
            "timeNs": NANOSECONDS,
            "timeZone": {"type": "string", "description": "of the hub, such as Europe/Vienna; empty: unknown"},
            "declared": whole(), "covered": whole(),
            "failing": {"type": "string", "description": "why nothing can be written; empty: it can"},
            "databaseLoss": {"type": "string", "description": "damage to the database; empty: none is listed"},
            "clipsFailing": {"type": "string", "description": "why clips cannot be stored; empty: they can"},
            "busFailing": {"type": "string", "description": "why NATS accepts no reports; empty: it does"},
            "openFleets": list_of(WORD),
        },
        next=NEXT,
        total=whole(),
    ),
    "Device": _device(),
    "DeviceDetails": record(
        {
            "device": reference("Device"),
            "measured": _measured(),
            "slotNs": {"type": "string", "description": "nanoseconds between two values, of which the last is now"},
            "day": _measured(),
            "daySlotNs": {"type": "string", "description": "the same of `day`"},
            "login": {"type": "string", "description": "name of the Secret or credentials; empty: none is needed"},
            "regions": list_of(_region("mask", "privacy")),
            "judged": list_of(reference("Judged")),
        }
    ),
    **_plans(),
    **_fleets(),
    "Overlay": _overlay(),
    "Selection": selection(),
    "Subscription": record({"name": WORD, "select": reference("Selection"), "madeNs": NANOSECONDS, "madeBy": WORD}),
    "Webhook": record(
        {
            "name": WORD, "format": WORD, "select": reference("Selection"), "cursor": CURSOR, "behind": whole(),
            "deadLetters": whole(), "failing": WORD, "deliveredNs": NANOSECONDS,
        }
    ),
    "DeadLetter": record(
        {
            "cursor": CURSOR, "diedNs": NANOSECONDS, "attempts": whole(), "why": WORD,
            "event": reference("AlarmEvent"),
        }
    ),
    "Thermal": record(
        {
            "celsius": list_of({"type": ["number", "null"]}),
            "relative": {"type": "boolean", "description": "not °C: raw words minus their baseline"},
            "timeNs": NANOSECONDS,
            "areas": list_of(_region()),
        }
    ),
    "Heartbeat": record(
        {
            "namespace": WORD, "kind": WORD, "fleet": WORD, "shard": WORD,
            "interval": {"type": "number", "description": "seconds"},
            "within": {"type": "number", "description": "seconds"},
            "alarmed": {"type": ["number", "null"], "description": "seconds since the Unix epoch"},
            "delay": {"type": ["number", "null"], "description": "seconds"},
            "overdue": {"type": "boolean"},
        }
    ),
    **_past(),
}  # fmt: skip


def schemas() -> dict[str, Json]:
    """Describe all values, by name."""
    described = {**SCHEMAS}
    values = alarms_pb2.Zone, alarms_pb2.AlarmEvent, clips_pb2.Clip, evidence_pb2.Ledger, evidence_pb2.Judged
    for message in (*values, types_pb2.Term):
        _describe_message(message.DESCRIPTOR, described)
    clip = described["Clip"]["properties"]
    assert isinstance(clip, dict)
    listed: dict[str, Json] = {"url": WORD, "view": WORD}
    described["ListedClip"] = record(listed, **clip)
    described["TimelineClip"] = record({**listed, "namespace": WORD}, **clip)
    return described


def _describe_message(message: Descriptor, schemas: dict[str, Json]) -> None:
    """Add the schema of `message` in protobuf's JSON, and those of its parts, to `schemas`."""
    if message.name in schemas:
        return
    properties: Json = {}
    schemas[message.name] = {"type": "object", "properties": properties}
    for field in message.fields:
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            value = _describe_field(nested.fields_by_name["value"], schemas)
            properties[field.json_name] = {"type": "object", "additionalProperties": value}
        else:
            schema = _describe_field(field, schemas)
            properties[field.json_name] = list_of(schema) if field.is_repeated else schema


def _describe_field(field: FieldDescriptor, schemas: dict[str, Json]) -> Json:
    if field.message_type is not None:
        _describe_message(field.message_type, schemas)
        return reference(field.message_type.name)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    types: dict[int, Json] = {
        FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
        FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
        FieldDescriptor.CPPTYPE_DOUBLE: NUMBER,
        FieldDescriptor.CPPTYPE_FLOAT: NUMBER,
        FieldDescriptor.CPPTYPE_INT32: {"type": "integer"},
        FieldDescriptor.CPPTYPE_UINT32: whole(2**32 - 1),
        FieldDescriptor.CPPTYPE_INT64: {"type": "string", "pattern": "^-?[0-9]+$"},
        FieldDescriptor.CPPTYPE_UINT64: {"type": "string", "pattern": "^[0-9]+$"},
    }
    return types[field.cpp_type]
