"""Actuators as the API tells them."""

import math

from embereye.hub.control.actuators import Actuators, ConnectedActuator
from embereye.units import SECOND
from embereye.v1.control_pb2 import Output


def describe_actuators(actuators: Actuators) -> list[dict[str, object]]:
    """All that are connected, by name."""
    now = actuators.steady()
    return [_described(one, now) for one in actuators.all]


def _described(one: ConnectedActuator, now: int) -> dict[str, object]:
    values, state, controller = one.values(now), one.latest.state, one.controller
    measured = list(state.measured) or [math.nan] * len(one.outputs)
    sensors = list(state.sensors) or [math.nan] * len(one.sensors)
    return {
        "name": one.name,
        "by": one.who.name,
        "silent": one.is_silent(now),
        "heardSeconds": round((now - one.heard) / SECOND, 3),
        "controller": controller.name if controller else "",
        "controlledBy": controller.who.name if controller else "",
        "synchronised": bool(controller and controller.synchronised),
        "missed": controller.missed if controller else 0,
        "safe": one.is_safe(now),
        "outputs": [
            {"name": output.name, "kind": kind_word(output.kind), "value": value, "measured": _known(seen)}
            for output, value, seen in zip(one.outputs, values, measured, strict=True)
        ],
        "sensors": [
            {"name": sensor.name, "unit": sensor.unit, "value": _known(value)}
            for sensor, value in zip(one.sensors, sensors, strict=True)
        ],
    }


def kind_word(kind: Output.Kind.ValueType) -> str:
    """A kind's name for people and programs."""
    return Output.Kind.Name(kind).removeprefix("KIND_").lower()


def _known(value: float) -> float | None:
    """JSON has no other numbers."""
    return value if math.isfinite(value) else None
