"""What a controller does about turns: a fleet that is not its own, or that it does not lead, holds up nobody."""

from dataclasses import replace
from typing import Any, cast

from embereye.units import SECOND
from embereye_operator.controller import Controller, FleetRecord
from embereye_operator.decide.rollout.turns import GRACE, Turns
from embereye_operator.runtime.kubernetes.client.cache import Cache
from embereye_operator.runtime.kubernetes.runtime import KubernetesRuntime

from .fakes import SETTINGS

HALL, YARD = "default/sensors/hall", "default/sensors/yard"
NOW = 1000 * SECOND


class Runtime:
    """Has no objects."""

    def __init__(self) -> None:
        self.cache = Cache()

    async def retain(self, fleets: Any) -> None:
        pass


def halted() -> tuple[Controller, Turns]:
    turns = Turns()
    turns.look("new", NOW)
    assert not turns.why_not(HALL, NOW + GRACE)
    turns.halts(HALL, "it has failed")
    assert "halted" in turns.why_not(YARD, NOW + GRACE)
    return Controller(cast("KubernetesRuntime", Runtime()), replace(SETTINGS, turns=turns)), turns


async def test_a_fleet_that_another_operator_holds_halts_nobody() -> None:
    controller, turns = halted()
    await controller._leave_alone(("SensorFleet", "default", "hall"), FleetRecord(), "green/operator holds it")
    assert not turns.why_not(YARD, NOW + GRACE)


async def test_whoever_leads_no_more_forgets_who_was_halted() -> None:
    controller, turns = halted()
    controller.lead(False)
    turns.look("new", NOW + GRACE)
    assert "has just started" in turns.why_not(YARD, NOW + GRACE)
    assert not turns.why_not(YARD, NOW + 2 * GRACE)
