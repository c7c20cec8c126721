"""The file of `embereye hub --selftest`: the tests, each with its device, its region, its actuator and its schedule.

A test switches one lamp or heater: by a message to an MQTT broker, a coil of a Modbus server, or an output of an
actuator that is connected to the hub.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embereye.hub.mqtt.options import MqttOptions, read_broker
from embereye.process.fields import DeclaredError, Fields
from embereye.units import Box
from embereye_cli.declared import read_declared

OPTION = "--selftest"
KELVIN, PERCENT = "K", "%"  # as in `embereye.v1.SelfTest`
MAX_TESTS = 500
MAX_AREA = 0.25  # of the picture: the rest is watched during a test
FLEET = re.compile(r"[^/\s]+/(cameras|sensors)/[^/\s]+")
TOPIC = re.compile(r"[^#+\0]{1,200}")


@dataclass(frozen=True)
class MqttSwitch:
    """A message that switches an actuator."""

    topic: str
    on: str
    off: str


@dataclass(frozen=True)
class ModbusSwitch:
    """A coil that switches an actuator."""

    host: str
    coil: int  # 0..65535, as on the wire
    port: int = 502
    unit: int = 1


@dataclass(frozen=True)
class ActuatorSwitch:
    """An output of an actuator that is connected to the hub."""

    name: str  # of the actuator
    output: str


Switch = MqttSwitch | ModbusSwitch | ActuatorSwitch


@dataclass(frozen=True)
class DeclaredTest:
    """A self-test."""

    name: str
    fleet: str  # "namespace/kind/name"
    device: str
    region: Box
    rise: float  # expected, in `unit`
    unit: str  # as in `embereye.v1.SelfTest`
    within: float  # seconds from the switch within which the device must see it
    every: float  # seconds between two runs
    cooldown: float  # seconds after it is switched off in which the region is still ignored
    switch: Switch


@dataclass(frozen=True)
class SelfTestOptions:
    """The content of the file."""

    tests: Mapping[str, DeclaredTest]  # by name
    broker: MqttOptions | None = None


def read_selftest(path: Path) -> SelfTestOptions:
    """Read the file at `path`; UserError names what is wrong."""
    return read_declared(path, OPTION, parse_selftest)


def parse_selftest(fields: Fields) -> SelfTestOptions:
    """Read the file's content; DeclaredError."""
    broker = fields.part("mqtt", _broker)
    tests = fields.unique("tests", _test, most=MAX_TESTS, least=1)
    if broker is None and (
        test := next((each for each in tests.values() if isinstance(each.switch, MqttSwitch)), None)
    ):
        raise DeclaredError(f"mqtt.broker is missing: the test {test.name} publishes to it")
    return SelfTestOptions(tests, broker)


def _broker(fields: Fields) -> MqttOptions:
    address, credentials, certificates = fields.text("broker"), fields.file("credentials"), fields.file("certificates")
    try:
        return read_broker(address, credentials=credentials, certificates=certificates)
    except ValueError as error:
        raise fields.error("broker", str(error)) from error


def _test(fields: Fields) -> DeclaredTest:
    name = fields.name()
    kelvin, percent = "kelvin" in fields, "brightness" in fields
    if kelvin == percent:
        raise fields.error("kelvin", "declare the expected rise: either kelvin or brightness, in percent")
    rise = fields.number("kelvin" if kelvin else "brightness", 0.0)
    if not 1 <= rise <= (1_000 if kelvin else 100):
        raise fields.wrong(
            "kelvin" if kelvin else "brightness", "is not from 1 to 1000" if kelvin else "is not 1 to 100"
        )
    switches: list[Switch | None] = [
        fields.part("mqtt", _mqtt_switch), fields.part("modbus", _modbus_switch), fields.part("actuator", _output),
    ]  # fmt: skip
    declared = [switch for switch in switches if switch]
    if len(declared) != 1:
        raise fields.error("mqtt", "declare the switch: one of mqtt, modbus and actuator")
    region = fields.part("region", _region)
    if region is None:
        raise fields.missing("region", "Draw it around the lamp or heater, with its glow.")
    return DeclaredTest(
        name=name,
        fleet=fields.text(
            "fleet", pattern=FLEET, form="of the form NAMESPACE/cameras/FLEET or NAMESPACE/sensors/FLEET"
        ),
        device=fields.text("device"),
        region=region,
        rise=rise,
        unit=KELVIN if kelvin else PERCENT,
        within=fields.duration("within", 5.0, 1, 120),
        every=fields.duration("every", 86_400.0, 60, 366 * 86_400),
        cooldown=fields.duration("cooldown", 5.0, 1, 300),
        switch=declared[0],
    )


def _region(fields: Fields) -> Box:
    x, y, width, height = (_share(fields, name) for name in ("x", "y", "width", "height"))
    if not (width > 0 and height > 0 and x + width <= 1 and y + height <= 1):
        raise fields.error("width", "the region is empty, or ends outside the picture. Use shares from 0 to 1.")
    if width * height > MAX_AREA:
        raise fields.error("width", f"the region is more than {MAX_AREA:.0%} of the picture")
    return x, y, width, height


def _share(fields: Fields, name: str) -> float:
    if name not in fields:
        raise fields.missing(name)
    value = fields.number(name, 0.0)
    if not 0 <= value <= 1:
        raise fields.wrong(name, "is not a share from 0 to 1")
    return value


def _mqtt_switch(fields: Fields) -> MqttSwitch:
    topic = fields.text("topic", pattern=TOPIC, form="a topic without wildcards")
    return MqttSwitch(topic, fields.text("on", "ON"), fields.text("off", "OFF"))


def _modbus_switch(fields: Fields) -> ModbusSwitch:
    return ModbusSwitch(
        host=fields.host(),
        coil=fields.whole("coil", 0, 65_535),
        port=fields.whole("port", 1, 65_535, 502),
        unit=fields.whole("unit", 0, 255, 1),
    )


def _output(fields: Fields) -> ActuatorSwitch:
    return ActuatorSwitch(fields.text("name"), fields.text("output"))
