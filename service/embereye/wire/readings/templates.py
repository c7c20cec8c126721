"""The topics and messages of gateways and devices, as their documentation says.

A template has the topic of the main message, the fields of each quantity, and the topics that say whether the device or
its gateway is reachable. A field that a device does not have costs nothing. `mapping_of` adds the sensor's own fields,
and `read` finds the readings in a message. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from embereye.units import MILLISECOND, SECOND
from embereye.wire.readings.fields import (
    MISSING,
    Field,
    is_on,
    number,
    parse_document,
    parse_field,
    value_at,
)
from embereye.wire.readings.quantity import QUANTITIES, Reading, Report, convert, split_unit
from embereye.wire.readings.sparkplug import split_topic

JSON_KEYS = {
    "smoke": ("smoke", "smoke_alarm", "smokeAlarm"),
    "heat": ("heat", "heat_alarm"),
    "carbonMonoxide": ("carbon_monoxide", "co_alarm"),
    "gas": ("gas", "gas_alarm"),
    "test": ("test",),
    "tamper": ("tamper", "tamper_alarm"),
    "batteryLow": ("battery_low", "batteryLow", "low_battery"),
    "fault": ("fault_alarm", "fault", "device_fault"),
    "temperature": ("temperature",),
    "humidity": ("humidity",),
    "battery": ("battery",),
    "carbonMonoxideLevel": ("co",),
    "smokeDensity": ("smoke_density_dbm",),
}


def _below(prefix: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(f"{prefix}.{key}" for key in keys) for name, keys in JSON_KEYS.items()}


@dataclass(frozen=True)
class Template:
    """The messages of one gateway or firmware. In topics, {topic} is the sensor's and {base} its first level."""

    main: str = "{topic}"
    also: tuple[str, ...] = ()  # further topics with the same fields as the main one
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # quantity → fields, the first that exists
    seen: tuple[str, ...] = ()  # fields with the time at which the gateway heard the device
    states: tuple[str, ...] = ()  # fields of `offline`: they are no sign of life of the device
    units: Mapping[str, str] = field(default_factory=dict)  # quantity → the path of its unit in the same message


TEMPLATES: Mapping[str, Template] = {
    "plain": Template(),
    # zigbee2mqtt.io/devices/HS2SA-EF-3.0.html and other pages of smoke detectors; last_seen and availability:
    # zigbee2mqtt.io/guide/configuration/device-availability.html (a JSON object, or text in older versions)
    "zigbee2mqtt": Template(
        fields=JSON_KEYS,
        seen=("last_seen",),
        states=(
            "/availability state=offline",
            "/availability =offline",
            "//{base}/bridge/state state=offline",
            "//{base}/bridge/state =offline",
        ),
    ),
    # zwave-js.github.io/zwave-js-ui/#/guide/mqtt: topics by name, payload "JSON Time-Value". Values of the
    # notifications: Z-Wave's list in pub.dev/documentation/zwave (smokeAlarm: 1, 2 smoke; 3 test; 4, 5 replacement)
    "zwavejs": Template(
        main="{topic}/lastActive",
        fields={
            "smoke": ("/notification/endpoint_0/Smoke_Alarm/Sensor_status value=1|2",),
            "carbonMonoxide": ("/notification/endpoint_0/CO_Alarm/Sensor_status value=1|2",),
            "heat": ("/notification/endpoint_0/Heat_Alarm/Heat_sensor_status value=1|2|3|4",),
            "test": ("/notification/endpoint_0/Smoke_Alarm/Alarm_status value=3",),
            "fault": ("/notification/endpoint_0/Smoke_Alarm/Maintenance_status value=4|5",),
            "tamper": ("/notification/endpoint_0/Home_Security/Cover_status value=3",),
            "batteryLow": ("/battery/endpoint_0/isLow value",),
            "battery": ("/battery/endpoint_0/level value",),
            "temperature": ("/sensor_multilevel/endpoint_0/Air_temperature value",),
        },
        seen=("value",),
        states=("/status status=Dead",),
    ),
    # tasmota.github.io/docs/MQTT: tele/TOPIC/SENSOR each TelePeriod, tele/TOPIC/LWT. {topic} is TOPIC. The command
    # SetOption8 has it send °F; TempUnit says so: tasmota.github.io/docs/Commands
    "tasmota": Template(
        main="tele/{topic}/SENSOR",
        fields={"temperature": ("*.Temperature",), "humidity": ("*.Humidity",)},
        states=("//tele/{topic}/LWT =Offline",),
        units={"temperature": "TempUnit"},
    ),
    # esphome.io/components/mqtt: {topic}/COMPONENT/NAME/state, {topic}/status. Names are the user's
    "esphome": Template(main="{topic}/status", states=("/status =offline",)),
    # shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Smoke (status topics, NotifyStatus); gen1/#shelly-smoke.
    # It sleeps, so that `online` says nothing
    "shelly": Template(
        main="{topic}/events/rpc",
        fields={
            "smoke": ("params.smoke:0.alarm", "/status/smoke:0 alarm", "/sensor/smoke"),
            "battery": (
                "params.devicepower:0.battery.percent",
                "/status/devicepower:0 battery.percent",
                "/sensor/battery",
            ),
            "temperature": ("params.temperature:0.tC", "/sensor/temperature"),
        },
    ),
    # chirpstack.io/docs/chirpstack/integrations/events.html: `object` is the decoded payload. {topic} is
    # application/ID/device/EUI
    "chirpstack": Template(
        main="{topic}/event/up",
        fields=_below("object") | {"battery": ("object.battery", "/event/status batteryLevel")},
        seen=("time",),
    ),
    # thethingsindustries.com/docs/integrations/other-integrations/mqtt: {topic} is v3/APPLICATION@TENANT/devices/DEVICE
    "ttn": Template(main="{topic}/up", fields=_below("uplink_message.decoded_payload"), seen=("received_at",)),
    "sparkplug": Template(),  # see `_sparkplug`
}


def _sparkplug(topic: str) -> Template:
    """Make the template of a Sparkplug B device or node; ValueError if `topic` is not GROUP/NODE[/DEVICE]."""
    group, node, device = split_topic(topic)
    letter, place = ("D", f"{node}/{device}") if device else ("N", node)

    def at(kind: str, where: str) -> str:
        return f"spBv1.0/{group}/{kind}/{where}"

    birth = at(f"{letter}BIRTH", place)
    states = dict.fromkeys((birth, at(f"{letter}DEATH", place), at("NBIRTH", node), at("NDEATH", node)))
    return Template(
        main=at(f"{letter}DATA", place), also=(birth,), fields=JSON_KEYS,
        states=tuple(f"//{place} online=false" for place in states),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int  # of several fields of a quantity, the first one that a message has counts
    quantity: str
    field: Field
    is_binary: bool
    unit: str = ""  # of its value; '': the quantity's
    unit_keys: tuple[str | int, ...] = ()  # the place of its unit in the same message; (): none


@dataclass(frozen=True)
class SensorMapping:
    """The topics of one sensor, and how each message is read."""

    entries: Mapping[str, tuple[_Entry, ...]]  # topic → its fields
    seen: tuple[Field, ...]
    main: str
    states: frozenset[str]  # topics that are no sign of life
    # Topic → the fields by their first key: a message has few of the keys that a template knows. A topic with a field
    # that may be anywhere in the message is missing.
    by_key: Mapping[str, Mapping[str, tuple[_Entry, ...]]] = field(default_factory=dict, compare=False)

    def entries_for(self, topic: str, document: Any) -> Sequence[_Entry]:
        """The fields that `document` may have, in order."""
        keyed = self.by_key.get(topic)
        if keyed is None or not isinstance(document, dict):
            return self.entries.get(topic, ())
        entries = [entry for key in document.keys() & keyed.keys() for entry in keyed[key]]
        entries.sort(key=_number)
        return entries

    @property
    def topics(self) -> list[str]:
        """The topics to subscribe to."""
        return list(self.entries)


def mapping_of(topic: str, template: str, fields: Mapping[str, str]) -> SensorMapping:
    """Make the mapping of a sensor at `topic`. ValueError if the template or a field is wrong."""
    if template not in TEMPLATES:
        raise ValueError(f'template "{template[:40]}": not one of {", ".join(TEMPLATES)}')
    known = _sparkplug(topic) if template == "sparkplug" else TEMPLATES[template]
    base = topic.partition("/")[0]

    def filled(text: str) -> str:
        return text.replace("{topic}", topic).replace("{base}", base)

    main = filled(known.main)
    entries: dict[str, list[_Entry]] = {main: []}
    for name, text in [
        *((name, text) for name, texts in known.fields.items() if name not in fields for text in texts),
        *fields.items(),
        *(("offline", text) for text in known.states),
    ]:
        if name not in QUANTITIES:
            raise ValueError(f'fields: "{name[:40]}" is not one of {", ".join(QUANTITIES)}')
        path, unit = split_unit(name, filled(text))
        parsed, unit_keys = parse_field(path), parse_field(known.units.get(name, "")).keys
        places = [main, *known.also]
        if parsed.topic:
            places = [parsed.topic[2:] if parsed.topic.startswith("//") else topic + parsed.topic]
        for place in places:
            listed = entries.setdefault(place, [])
            listed.append(_Entry(len(listed), name, parsed, QUANTITIES[name].is_binary, unit, unit_keys))
    own = {place for place, listed in entries.items() if any(entry.quantity != "offline" for entry in listed)}
    states = frozenset(place for place in entries if place not in own and place != main)
    if template == "esphome":
        states |= {main} - own
    return SensorMapping(
        {place: tuple(listed) for place, listed in entries.items()},
        tuple(parse_field(text) for text in known.seen), main, states, _by_key(entries),
    )  # fmt: skip


def _by_key(entries: Mapping[str, Sequence[_Entry]]) -> dict[str, dict[str, tuple[_Entry, ...]]]:
    keyed: dict[str, dict[str, tuple[_Entry, ...]]] = {}
    for topic, listed in entries.items():
        first = [entry.field.keys[0] if entry.field.keys else 0 for entry in listed]
        if all(isinstance(key, str) and key != "*" for key in first):
            by_key = keyed[topic] = {}
            for key, entry in zip(first, listed, strict=True):
                by_key[str(key)] = (*by_key.get(str(key), ()), entry)
    return keyed


def _number(entry: _Entry) -> int:
    return entry.number


def read(mapping: SensorMapping, topic: str, payload: bytes, *, retained: bool = False) -> Report:
    """Read one message. ValueError if its payload is neither JSON nor text, or has no readable value.

    A retained message has states, but is no check-in, unless it says when the gateway heard the device.
    """
    document = parse_document(payload)
    readings: dict[str, Reading] = {}
    unreadable = ""
    for entry in mapping.entries_for(topic, document):
        if entry.quantity in readings and readings[entry.quantity].value:
            continue
        value = value_at(document, entry.field.keys) if entry.field.query is None else _best_match(entry, document)
        if value is MISSING or value is None:
            continue
        converted = _converted(entry, value, document)
        if converted is None:
            unreadable = f"{entry.quantity}: {str(value)[:40]!r}"
        else:
            readings[entry.quantity] = Reading(entry.quantity, converted)
    seen_ns = 0
    if topic == mapping.main:
        times = (time_ns(value_at(document, time.keys)) for time in mapping.seen)
        seen_ns = next(filter(None, times), 0)
    if unreadable and not readings:
        raise ValueError(f"unreadable value of {unreadable}")
    is_check_in = topic not in mapping.states and (bool(seen_ns) if retained else True)
    return Report(tuple(readings.values()), is_check_in, seen_ns)


def _best_match(entry: _Entry, document: Any) -> Any:
    """The first value that a query finds; of a binary quantity, the first that is on, if there is one."""
    values = entry.field.find_all(document)
    on = (value for value in values if entry.is_binary and is_on(value, entry.field.values))
    return next(on, values[0] if values else MISSING)


def _converted(entry: _Entry, value: object, document: Any) -> float | None:
    if entry.is_binary:
        on = is_on(value, entry.field.values)
        return None if on is None else float(on)
    converted, unit = number(value), entry.unit
    if not unit and entry.unit_keys:
        said = value_at(document, entry.unit_keys)
        unit = "" if said is MISSING else str(said)
    if not unit or converted is None:
        return converted
    try:
        return convert(entry.quantity, converted, unit)
    except ValueError:
        return None


def time_ns(value: object) -> int:
    """Parse a time as gateways write it: ISO 8601, or seconds or milliseconds since the Unix epoch.

    It returns nanoseconds since the Unix epoch; 0: it is no time.
    """
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value).timestamp() * SECOND)
        except (ValueError, OverflowError):
            return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return 0
    return int(value * MILLISECOND) if value > 1e11 else int(value * SECOND) if value > 1e8 else 0
