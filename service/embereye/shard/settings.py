"""Check that an assignment's settings are complete: shards have no defaults, because the fleet's resource has them."""

from google.protobuf.message import Message

from embereye.v1.shard_pb2 import Assignment

# Fields in which 0 or empty is a valid value; messages among them may be missing.
OPTIONAL = {
    "CameraSettings": {"flame_threshold", "smoke_threshold", "smoke_scene", "model", "access", "key_frames_while_calm"},
    "SensorSettings": {"access"},
    "HeatThresholds": {"pre_alarm_c", "alarm_c", "critical_c", "rise_allowance_c"},
    "PercentThresholds": {"pre_alarm", "alarm"},
    "Commands": {"start", "calibration", "request"},
}


def unset_field(assignment: Assignment) -> str:
    """The path of the first setting that is not set, such as "sensor.deadline_ns"; '' if all are.

    0 and an enum's first value count as not set, except for fields in `OPTIONAL`.
    """
    kind = assignment.WhichOneof("settings")
    if kind is None:
        return "sensor or camera"
    if unset := _unset(getattr(assignment, kind), kind):
        return unset
    if not assignment.HasField("candidate"):
        return ""
    candidate = assignment.candidate
    if candidate.WhichOneof("settings") != kind:
        return f"candidate.{kind}"
    return _unset(getattr(candidate, kind), f"candidate.{kind}")


def _unset(message: Message, path: str) -> str:
    optional = OPTIONAL.get(message.DESCRIPTOR.name, set())
    for field in message.DESCRIPTOR.fields:
        if field.name in optional:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and not field.is_repeated:
            if not message.HasField(field.name):
                return f"{path}.{field.name}"
            if nested := _unset(value, f"{path}.{field.name}"):
                return nested
        elif not value:
            return f"{path}.{field.name}"
    return ""
