"""Topics and payloads: what is said of a zone and of a device, and how Home Assistant is told of them (pure)."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from urllib.parse import quote

from embereye.hub.mqtt.options import MqttOptions
from embereye.levels import Kind, Level, ZoneState
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import Zone

VERSION = version("embereye")
ONLINE, OFFLINE = b"online", b"offline"
FIRE = frozenset({ZoneState.ALARM, ZoneState.ACKNOWLEDGED, ZoneState.RESTORED})  # an alarm latches until its reset
STATES = tuple(state.word for state in ZoneState if state.word != "unknown")
MODELS = {"sensors": "Sensor", "cameras": "Camera"}

Message = tuple[str, bytes]  # topic, payload


class Watch(StrEnum):
    """Whether a device can be relied on."""

    WATCHED = "watched"
    DARK = "dark"
    UNKNOWN = "unknown"  # the hub has started and heard nothing of it yet


@dataclass(frozen=True)
class DeviceState:
    """What is said of one device."""

    fleet: str  # "namespace/kind/name"
    device: str
    zone: str
    watch: Watch
    reason: str = ""  # why it is dark


class Topics:
    """Where everything stands under a broker's prefix."""

    def __init__(self, options: MqttOptions) -> None:
        self._prefix = options.prefix
        self._discovery = options.discovery
        self.node = options.prefix.replace("/", "_")
        self.status = f"{options.prefix}/status"

    def zone(self, namespace: str, zone: str) -> str:
        """Of a zone's state."""
        return f"{self._prefix}/zones/{_level(namespace)}/{_level(zone)}"

    def device(self, fleet: str, device: str) -> str:
        """Of a device's state."""
        return f"{self._prefix}/devices/{'/'.join(map(_level, fleet.split('/')))}/{_level(device)}"

    def config(self, component: str, entity: str) -> str:
        """Of what Home Assistant is told of an entity."""
        return f"{self._discovery}/{component}/{self.node}/{entity}/config"

    @property
    def filters(self) -> list[str]:
        """What matches all topics but that of the status."""
        mine = [f"{self._prefix}/zones/#", f"{self._prefix}/devices/#"]
        return [*mine, f"{self._discovery}/+/{self.node}/+/config"] if self._discovery else mine


def zone_payload(zone: Zone) -> bytes:
    """What a zone is now. It changes when something happens, not while a sign merely goes on."""
    state = ZoneState(zone.state)
    signs = sorted(
        (one.device, Kind(one.kind).word, Level(one.level).word)
        for one in zone.contributions
        if one.level > Level.CLEAR
    )
    return _json(
        {
            "namespace": zone.namespace,
            "zone": zone.name,
            "state": state.word,
            "fire": state in FIRE,
            "acknowledged": state in {ZoneState.ACKNOWLEDGED, ZoneState.RESTORED},
            "alarm": zone.alarm,
            "since": _time(zone.since_ns),
            "why": zone.why,
            "signs": [{"device": device, "kind": kind, "level": level} for device, kind, level in signs],
            "dark": [fault.device for fault in zone.faults],
            "devices": zone.declared,
            "testing": zone.testing,
            "silenced": zone.silenced,
            "markedFalse": zone.HasField("false_alarm"),
        }
    )


def device_payload(state: DeviceState) -> bytes:
    """What a device is now."""
    namespace, _, rest = state.fleet.partition("/")
    return _json(
        {
            "namespace": namespace,
            "fleet": rest,
            "device": state.device,
            "zone": state.zone,
            "state": state.watch,
            "reason": state.reason,
        }
    )


def zone_entities(topics: Topics, namespace: str, zone: str) -> Iterator[Message]:
    """How Home Assistant is told of a zone: whether it burns, what state it is in, who knows, what is not watched."""
    entity = _entity("zone", namespace, zone)
    device = {
        "identifiers": [f"{topics.node}_{entity}"],
        "name": zone if namespace == "default" else f"{zone} ({namespace})",
        "manufacturer": "EmberEye",
        "model": "Zone",
        "sw_version": VERSION,
    }
    flag = {"payload_on": "ON", "payload_off": "OFF"}
    for name, component, own in (
        ("fire", "binary_sensor", {"name": "Fire", "device_class": "safety", **flag,
                                   "value_template": "{{ 'ON' if value_json.fire else 'OFF' }}"}),
        ("state", "sensor", {"name": "State", "device_class": "enum", "options": list(STATES),
                             "value_template": "{{ value_json.state }}"}),
        ("acknowledged", "binary_sensor", {"name": "Acknowledged", **flag,
                                           "value_template": "{{ 'ON' if value_json.acknowledged else 'OFF' }}"}),
        ("dark", "binary_sensor", {"name": "Devices dark", "device_class": "problem", **flag,
                                   "entity_category": "diagnostic",
                                   "value_template": "{{ 'ON' if value_json.dark else 'OFF' }}"}),
    ):  # fmt: skip
        yield _described(topics, component, f"{entity}_{name}", topics.zone(namespace, zone), device, own)


def device_entities(topics: Topics, state: DeviceState) -> Iterator[Message]:
    """How Home Assistant is told of a device: whether it is watched."""
    namespace, kind, *_ = [*state.fleet.split("/"), ""]
    entity = _entity("device", state.fleet, state.device)
    device = {
        "identifiers": [f"{topics.node}_{entity}"],
        "name": state.device,
        "manufacturer": "EmberEye",
        "model": MODELS.get(kind, "Device"),
        "via_device": f"{topics.node}_{_entity('zone', namespace, state.zone)}",
    }
    own = {
        "name": "Watched", "device_class": "connectivity", "entity_category": "diagnostic",
        "payload_on": Watch.WATCHED, "payload_off": Watch.DARK,
        # "None" is what makes an entity unknown there.
        "value_template": "{{ value_json.state if value_json.state != 'unknown' else 'None' }}",
    }  # fmt: skip
    yield _described(topics, "binary_sensor", entity, topics.device(state.fleet, state.device), device, own)


def _described(
    topics: Topics,
    component: str,
    entity: str,
    state_topic: str,
    device: Mapping[str, object],
    own: Mapping[str, object],
) -> Message:
    told = {
        "unique_id": f"{topics.node}_{entity}",
        "state_topic": state_topic,
        "json_attributes_topic": state_topic,
        "availability": [{"topic": topics.status}],
        "device": device,
        "origin": {"name": "EmberEye", "sw_version": VERSION},
        **own,
    }
    return topics.config(component, entity), _json(told)


def _entity(*names: str) -> str:
    """An id of letters, digits, _ and - alone that no other names have."""
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{names[0]}_{names[-1]}")[:60] + f"_{digest}"


def _level(name: str) -> str:
    """`name` as one level of a topic: without slashes, and without + and #, which ask for several."""
    return quote(name, safe="")


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // SECOND, UTC).isoformat().replace("+00:00", "Z") if time_ns else ""


def _json(told: object) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
