"""Whether an assignment's settings are complete: shards have no defaults, the fleet's CR has them all."""

from google.protobuf.message import Message

from embereye.v1.shard_pb2 import Assignment

# Fields in which 0, or nothing, is a value of its own; a message among them may be left out.
OPTIONAL = {
    "CameraSettings": {"flame_threshold", "smoke_threshold", "model", "access"},
    "SensorSettings": {"access"},
    "HeatThresholds": {"pre_alarm_c", "alarm_c", "critical_c", "rise_allowance_c"},
    "PercentThresholds": {"pre_alarm", "alarm"},
    "Commands": {"start", "calibration", "request"},
}


def unset_field(assignment: Assignment) -> str:
    """The path of the first setting that is not set, such as "sensor.deadline_ns"; '' where all are.

    A 0 or an enum's first value is not set, but where `OPTIONAL` says that it means something.
    """
    kind = assignment.WhichOneof("settings")
    if kind is None:
        return "sensor or camera"
    return _unset(getattr(assignment, kind), kind)


def _unset(message: Message, path: str) -> str:
    optional = OPTIONAL.get(message.DESCRIPTOR.name, set())
    for field in message.DESCRIPTOR.fields:
        if field.name in optional:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and not field.is_repeated:
            if not message.HasField(field.name):
                return f"{path}.{field.name}"
            if found := _unset(value, f"{path}.{field.name}"):
                return found
        elif not value:
            return f"{path}.{field.name}"
    return ""
