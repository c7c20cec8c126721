"""Read Sparkplug B messages: metrics by name, in place of the JSON document of other messages.

An edge node announces its metrics in a birth message, with a name, a type and perhaps a number, the alias; later
messages may have the alias alone. `Births` remembers them for one device. The death of a device or its node makes the
document `{"online": false}`. Pure.
"""

import json
from typing import Any

from google.protobuf.message import DecodeError

from embereye.v1.sparkplug_pb2 import SparkplugMetric, SparkplugPayload

BITS = {1: 8, 2: 16, 3: 32, 4: 64}  # of the signed integer types, by the number of the type
MAX_METRICS = 10_000  # of one device
BIRTHS, DEATHS = ("NBIRTH", "DBIRTH"), ("NDEATH", "DDEATH")
SESSION = "bdSeq"  # metric with the number of the node's connection


def split_topic(topic: str) -> tuple[str, str, str]:
    """Split a sensor's topic GROUP/NODE[/DEVICE], with or without spBv1.0; ValueError if it is none."""
    parts = topic.removeprefix("spBv1.0/").split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise ValueError(f'source "mqtt:{topic[:80]}": sparkplug needs mqtt:GROUP/NODE/DEVICE, or mqtt:GROUP/NODE')
    return parts[0], parts[1], parts[2] if len(parts) == 3 else ""


class Births:
    """The names of one device's metrics, as its latest birth says."""

    def __init__(self, *, is_node: bool) -> None:
        """`is_node`: the sensor is the edge node itself, not a device of it."""
        self._own_birth = "NBIRTH" if is_node else "DBIRTH"
        self.incomplete = False  # an alias is unknown: the node has to send its birth again
        self._names: dict[int, str] = {}  # by alias
        self._types: dict[str, int] = {}
        self._session: Any = None  # of the node

    def document(self, topic: str, payload: bytes) -> bytes:
        """Return the JSON document of a message. ValueError if its payload is not Sparkplug B."""
        try:
            message = SparkplugPayload.FromString(payload)
        except DecodeError as error:
            raise ValueError("not a Sparkplug B payload") from error
        if len(message.metrics) > MAX_METRICS:
            raise ValueError(f"more than {MAX_METRICS} metrics")
        kind = topic.split("/")[2] if topic.count("/") >= 2 else ""
        if kind in DEATHS:
            return json.dumps(self._death(kind, message)).encode()
        if kind in BIRTHS:
            self._note(kind, message)
        values = {name: value for metric in message.metrics for name, value in self._values(metric)}
        return json.dumps(values | ({"online": True} if kind == self._own_birth else {})).encode()

    def _note(self, kind: str, message: SparkplugPayload) -> None:
        for metric in message.metrics:
            if metric.HasField("alias"):
                self._names[metric.alias] = metric.name
            if metric.datatype:
                self._types[metric.name] = metric.datatype
            if kind == "NBIRTH" and metric.name == SESSION:
                self._session = _value(metric, metric.datatype)
        if len(self._names) > MAX_METRICS:
            self._names.clear()
        self.incomplete = self.incomplete and kind != self._own_birth

    def _death(self, kind: str, message: SparkplugPayload) -> dict[str, bool]:
        """The document of a death; empty if it ended an earlier connection."""
        sessions = [_value(metric, metric.datatype) for metric in message.metrics if metric.name == SESSION]
        if kind == "NDEATH" and self._session is not None and sessions and sessions[0] != self._session:
            return {}
        return {"online": False}

    def _values(self, metric: SparkplugMetric) -> list[tuple[str, Any]]:
        name = metric.name
        if not name and metric.HasField("alias"):
            name = self._names.get(metric.alias, "")
            self.incomplete = self.incomplete or not name
        if not name or metric.is_historical or metric.is_null or metric.WhichOneof("value") is None:
            return []
        return [(name, _value(metric, metric.datatype or self._types.get(name, 0)))]


def _value(metric: SparkplugMetric, datatype: int) -> Any:
    kind = metric.WhichOneof("value")
    value = getattr(metric, kind) if kind else None
    if datatype in BITS and isinstance(value, int):
        bits = BITS[datatype]
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value
    return value


def rebirth() -> bytes:
    """The command by which a node sends its births again."""
    command = SparkplugMetric(name="Node Control/Rebirth", datatype=11, boolean_value=True)
    return SparkplugPayload(metrics=[command]).SerializeToString()
