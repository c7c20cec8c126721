"""Actuators in the API's form.

The add-on contributes this route and its schema to the hub's API. It reads `Actuators` in memory, on the same thread
that changes it, so each entry shows one moment.
"""

import math

from aiohttp import web

from embereye.addons.control.actuators import Actuators, ConnectedActuator
from embereye.hub.http.openapi.parts import NUMBER, WORD, Json, answer, list_of, record, reference, whole
from embereye.hub.http.route import Route
from embereye.hub.roles import Role
from embereye.units import SECOND
from embereye.v1.control_pb2 import Output


class ActuatorRoutes:
    """Serves the connected actuators."""

    def __init__(self, actuators: Actuators) -> None:
        self._actuators = actuators

    @Route(
        "GET", "/v1/actuators", Role.VIEWER, "Connected actuators, their controllers and their measurements",
        {200: answer("by name", record({"actuators": list_of(reference("Actuator"))}))},
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        now = self._actuators.steady()
        return web.json_response({"actuators": [_described(actuator, now) for actuator in self._actuators.all]})


def actuator_schema() -> Json:
    """Describe an actuator."""
    number: Json = {"type": ["number", "null"]}
    kinds: Json = {"type": "string", "enum": ["angle", "velocity", "torque", "switch", "opening"]}
    return record(
        {
            "name": WORD, "by": {"type": "string", "description": "the name of its token"},
            "silent": {"type": "boolean"}, "heardSeconds": NUMBER,
            "controller": {"type": "string", "description": "the name of its controller; empty: none"},
            "controlledBy": WORD, "synchronised": {"type": "boolean"}, "missed": whole(),
            "safe": {"type": "boolean", "description": "true while its safe values are in force"},
            "outputs": list_of(record({"name": WORD, "kind": kinds, "value": NUMBER, "measured": number})),
            "sensors": list_of(record({"name": WORD, "unit": WORD, "value": number})),
        }
    )  # fmt: skip


def _described(actuator: ConnectedActuator, now: int) -> Json:
    values, state, controller = actuator.values(now), actuator.latest.state, actuator.controller
    measured = list(state.measured) or [math.nan] * len(actuator.outputs)
    sensors = list(state.sensors) or [math.nan] * len(actuator.sensors)
    return {
        "name": actuator.name,
        "by": actuator.who.name,
        "silent": actuator.is_silent(now),
        "heardSeconds": round((now - actuator.heard) / SECOND, 3),
        "controller": controller.name if controller else "",
        "controlledBy": controller.who.name if controller else "",
        "synchronised": bool(controller and controller.synchronised),
        "missed": controller.missed if controller else 0,
        "safe": actuator.is_safe(now),
        "outputs": [
            {"name": output.name, "kind": kind_word(output.kind), "value": value, "measured": _finite(reading)}
            for output, value, reading in zip(actuator.outputs, values, measured, strict=True)
        ],
        "sensors": [
            {"name": sensor.name, "unit": sensor.unit, "value": _finite(value)}
            for sensor, value in zip(actuator.sensors, sensors, strict=True)
        ],
    }


def kind_word(kind: Output.Kind.ValueType) -> str:
    """The name of a kind for people and programs."""
    return Output.Kind.Name(kind).removeprefix("KIND_").lower()


def _finite(value: float) -> float | None:
    """Return `value`, or None if JSON cannot write it."""
    return value if math.isfinite(value) else None
