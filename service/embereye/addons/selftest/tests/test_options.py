"""The file of self-tests."""

from pathlib import Path
from typing import Any

import pytest
from harness.pages import yaml_examples

from embereye.addons.selftest.options import ActuatorSwitch, ModbusSwitch, MqttSwitch, parse_selftest
from embereye.process.fields import DeclaredError, Fields
from embereye_cli.declared import parse_declared

BROKER = {"broker": "mqtt://127.0.0.1:1883"}


def declared(**changes: Any) -> dict[str, Any]:
    """A valid test, with changes; None removes a field."""
    test: dict[str, Any] = {
        "name": "lamp", "fleet": "default/cameras/yard", "device": "gate", "brightness": 10,
        "region": {"x": 0.1, "y": 0, "width": 0.2, "height": 0.5}, "mqtt": {"topic": "lamp/set"},
    }  # fmt: skip
    return {name: value for name, value in (test | changes).items() if value is not None}


def test_the_example_of_the_page_is_accepted() -> None:
    ((_, example),) = yaml_examples(Path(__file__).parents[1] / "README.md")
    tests = parse_declared(example, parse_selftest).tests
    assert list(tests) == ["gate-lamp", "furnace-heater", "roof-lamp"]


def test_a_test_has_a_region_a_rise_a_switch_and_a_schedule() -> None:
    heater = declared(
        name="heater", brightness=None, kelvin=8, within="60s", every="7d", mqtt=None,
        modbus={"host": "192.0.2.1", "coil": 3},
    )  # fmt: skip
    options = parse_selftest(Fields({"mqtt": BROKER, "tests": [declared(), heater]}))
    lamp = options.tests["lamp"]
    assert (lamp.region, lamp.rise, lamp.unit, lamp.within, lamp.every) == ((0.1, 0.0, 0.2, 0.5), 10, "%", 5, 86_400)
    assert lamp.switch == MqttSwitch("lamp/set", "ON", "OFF")
    assert (options.tests["heater"].unit, options.tests["heater"].within) == ("K", 60)
    assert options.tests["heater"].switch == ModbusSwitch("192.0.2.1", 3)
    roof = declared(mqtt=None, actuator={"name": "relays", "output": "lamp"})
    assert parse_selftest(Fields({"tests": [roof]})).tests["lamp"].switch == ActuatorSwitch("relays", "lamp")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"brightness": None}, "either kelvin or brightness"),
        ({"kelvin": 5}, "either kelvin or brightness"),
        ({"brightness": 0}, r"brightness: 0 is not"),
        ({"mqtt": None}, "one of mqtt, modbus and actuator"),
        ({"modbus": {"host": "a", "coil": 1}}, "one of mqtt, modbus and actuator"),
        ({"mqtt": None, "actuator": {"name": "relays"}}, "output is missing"),
        ({"region": None}, "region is missing"),
        ({"region": {"x": 0, "y": 0, "width": 0.6, "height": 0.6}}, "more than 25% of the picture"),
        ({"region": {"x": 0.9, "y": 0, "width": 0.2, "height": 0.2}}, "outside the picture"),
        ({"region": {"x": 0.9, "y": 0, "width": 0.1}}, "height is missing"),
        ({"fleet": "yard"}, "NAMESPACE/cameras/FLEET"),
        ({"within": "1h"}, "within: "),
        ({"mqtt": {"topic": "a/#"}}, "a topic without wildcards"),
    ],
)
def test_a_wrong_test_is_refused_with_its_place(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclaredError, match=why):
        parse_selftest(Fields({"mqtt": BROKER, "tests": [declared(**changes)]}))


def test_a_message_needs_a_broker() -> None:
    with pytest.raises(DeclaredError, match=r"mqtt\.broker is missing: the test lamp"):
        parse_selftest(Fields({"tests": [declared()]}))
