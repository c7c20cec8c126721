"""Topics and payloads of zones and devices, and their descriptions for Home Assistant (pure).

Each zone and each device has one topic, whose retained payload is its whole present state as JSON. A description for
Home Assistant refers to that topic and picks a value from it by a template. `RetainedTopics` calls these functions;
they remember nothing, so equal states give equal bytes.

Names are quoted into one level of a topic, and an entity's id ends with a digest of its names, so that similar names do
not collide.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from urllib.parse import quote, unquote

from embereye.hub.mqtt.options import MqttOptions
from embereye.hub.switches import ZoneSwitch
from embereye.hub.tables.zones import ZoneKey
from embereye.levels import Kind, Level, ZoneState
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import Zone

VERSION = version("embereye")
ONLINE, OFFLINE = b"online", b"offline"
FIRE = frozenset({ZoneState.ALARM, ZoneState.ACKNOWLEDGED, ZoneState.RESTORED})  # an alarm lasts until its reset
STATES = tuple(state.word for state in ZoneState if state.word != "unknown")
MODELS = {"sensors": "Sensor", "cameras": "Camera"}

# Home Assistant stores no attributes of a state above 16,384 bytes, and adds a few itself.
MAX_PAYLOAD = 15_000  # bytes
MAX_TEXT = 2_000  # characters of a reason, each of up to six bytes

Message = tuple[str, bytes]  # topic, payload


class Watch(StrEnum):
    """A device's coverage, as far as the hub knows."""

    WATCHED = "watched"
    DARK = "dark"
    UNKNOWN = "unknown"  # the hub has started and has no report about the device yet


@dataclass(frozen=True)
class DeviceState:
    """The published state of one device."""

    fleet: str  # "namespace/kind/name"
    device: str
    zone: str
    watch: Watch
    reason: str = ""  # the reason if it is dark


class Topics:
    """The topics under a broker's prefix."""

    def __init__(self, options: MqttOptions) -> None:
        self._prefix = options.prefix
        self._discovery = options.discovery
        self.node = options.prefix.replace("/", "_")
        self.status = f"{options.prefix}/status"

    def zone(self, namespace: str, zone: str) -> str:
        """The topic of a zone's state."""
        return f"{self._prefix}/zones/{_level(namespace)}/{_level(zone)}"

    def device(self, fleet: str, device: str) -> str:
        """The topic of a device's state."""
        return f"{self._prefix}/devices/{'/'.join(map(_level, fleet.split('/')))}/{_level(device)}"

    def switch(self, name: str, namespace: str, zone: str) -> str:
        """The topic to which people and programs write what a zone's switch called `name` should be."""
        return f"{self._prefix}/set/{name}/{_level(namespace)}/{_level(zone)}"

    def switches(self, name: str) -> str:
        """The filter that matches the topics of all zones' switches called `name`."""
        return f"{self._prefix}/set/{name}/+/+"

    def switched(self, topic: str) -> tuple[str, ZoneKey] | None:
        """The name of the switch with `topic`, and its zone; None if it is no switch's topic."""
        levels = topic.removeprefix(f"{self._prefix}/set/").split("/")
        if not topic.startswith(f"{self._prefix}/set/") or len(levels) != 3:
            return None
        return levels[0], (unquote(levels[1]), unquote(levels[2]))

    def config(self, component: str, entity: str) -> str:
        """The topic of an entity's description for Home Assistant."""
        return f"{self._discovery}/{component}/{self.node}/{entity}/config"

    @property
    def filters(self) -> list[str]:
        """Filters that match all topics except the status."""
        states = [f"{self._prefix}/zones/#", f"{self._prefix}/devices/#"]
        return [*states, f"{self._discovery}/+/{self.node}/+/config"] if self._discovery else states


def zone_payload(zone: Zone, switches: Sequence[ZoneSwitch] = ()) -> bytes:
    """Encode a zone's present state. It changes with events, not while a sign merely lasts.

    Long lists are shortened to what Home Assistant stores; their counts are always complete.
    """
    state = ZoneState(zone.state)
    signs = sorted(
        (sign.device, Kind(sign.kind).word, Level(sign.level).word)
        for sign in zone.contributions
        if sign.level > Level.CLEAR
    )
    listed: list[object] = [{"device": device, "kind": kind, "level": level} for device, kind, level in signs]
    dark: list[object] = [fault.device for fault in zone.faults]
    while True:
        payload = _json(
            {
                "namespace": zone.namespace,
                "zone": zone.name,
                "state": state.word,
                "fire": state in FIRE,
                "acknowledged": state in {ZoneState.ACKNOWLEDGED, ZoneState.RESTORED},
                "alarm": zone.alarm,
                "since": _time(zone.since_ns),
                "why": _shortened(zone.why),
                "signs": listed,
                "signCount": len(signs),
                "dark": dark,
                "darkCount": len(zone.faults),
                "devices": zone.declared,
                "testing": zone.testing,
                "silenced": zone.silenced,
                "markedFalse": zone.HasField("false_alarm"),
                **{switch.name: switch.state((zone.namespace, zone.name)) for switch in switches},
            }
        )
        longer = max(listed, dark, key=lambda part: len(_json(part)))
        if len(payload) <= MAX_PAYLOAD or len(longer) <= 1:
            return payload
        del longer[len(longer) * 3 // 4 :]


def device_payload(state: DeviceState) -> bytes:
    """Encode a device's present state."""
    namespace, _, rest = state.fleet.partition("/")
    return _json(
        {
            "namespace": namespace,
            "fleet": rest,
            "device": state.device,
            "zone": state.zone,
            "state": state.watch,
            "reason": _shortened(state.reason),
        }
    )


def zone_entities(topics: Topics, namespace: str, zone: str, switches: Sequence[ZoneSwitch] = ()) -> Iterator[Message]:
    """Describe a zone's entities for Home Assistant: fire, state, acknowledgement, dark devices, and switches."""
    entity = _entity("zone", namespace, zone)
    device = {
        "identifiers": [f"{topics.node}_{entity}"],
        "name": zone if namespace == "default" else f"{zone} ({namespace})",
        "manufacturer": "EmberEye",
        "model": "Zone",
        "sw_version": VERSION,
    }
    flag = {"payload_on": "ON", "payload_off": "OFF"}
    for name, component, fields in (
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
        yield _description(topics, component, f"{entity}_{name}", topics.zone(namespace, zone), device, fields)
    for switch in switches:
        if choices := switch.choices((namespace, zone)):
            chosen = {
                "name": switch.title, "options": list(choices), "optimistic": False,
                "command_topic": topics.switch(switch.name, namespace, zone),
                "value_template": f"{{{{ value_json.{switch.name} }}}}",
            }  # fmt: skip
            yield _description(
                topics, "select", f"{entity}_{switch.name}", topics.zone(namespace, zone), device, chosen
            )


def device_entities(topics: Topics, state: DeviceState) -> Iterator[Message]:
    """Describe a device's entity for Home Assistant: whether it is watched."""
    namespace, kind, *_ = [*state.fleet.split("/"), ""]
    entity = _entity("device", state.fleet, state.device)
    device = {
        "identifiers": [f"{topics.node}_{entity}"],
        "name": state.device,
        "manufacturer": "EmberEye",
        "model": MODELS.get(kind, "Device"),
        "via_device": f"{topics.node}_{_entity('zone', namespace, state.zone)}",
    }
    fields = {
        "name": "Watched", "device_class": "connectivity", "entity_category": "diagnostic",
        "payload_on": Watch.WATCHED, "payload_off": Watch.DARK,
        # Home Assistant shows an entity as unknown if its value is "None".
        "value_template": "{{ value_json.state if value_json.state != 'unknown' else 'None' }}",
    }  # fmt: skip
    yield _description(topics, "binary_sensor", entity, topics.device(state.fleet, state.device), device, fields)


def _description(
    topics: Topics,
    component: str,
    entity: str,
    state_topic: str,
    device: Mapping[str, object],
    fields: Mapping[str, object],
) -> Message:
    description = {
        "unique_id": f"{topics.node}_{entity}",
        "state_topic": state_topic,
        "json_attributes_topic": state_topic,
        "availability": [{"topic": topics.status}],
        "device": device,
        "origin": {"name": "EmberEye", "sw_version": VERSION},
        **fields,
    }
    return topics.config(component, entity), _json(description)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _entity(*names: str) -> str:
    """A unique id for `names`, of letters, digits, _ and - only."""
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{names[0]}_{names[-1]}")[:60] + f"_{digest}"


def _level(name: str) -> str:
    """Quote `name` as one level of a topic: without slashes and without the wildcards + and #."""
    return quote(name, safe="")


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // SECOND, UTC).isoformat().replace("+00:00", "Z") if time_ns else ""


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
