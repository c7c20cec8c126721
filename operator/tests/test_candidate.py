"""A fleet's candidate: its settings for shards, its condition, its promotion, and roll-outs that it halts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.roster_pb2 import CandidateResult, FleetLedger
from embereye.v1.shard_pb2 import SensorSettings
from embereye_operator.api.candidates import (
    GasChange,
    HeatChange,
    SensorCandidate,
    SensorDetection,
    SensorThresholds,
)
from embereye_operator.api.fleets import FleetError, parse_fleet
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_candidate, build_settings
from embereye_operator.decide.rollout.turns import GRACE, Question, Turns

from .api.test_schema import manifest
from .fakes import SETTINGS, World
from .test_reconcile import fleet_of
from .test_rollout import NEW, OLD, Kubelet

LOWER_GAS = {"name": "lower-gas", "thresholds": {"gas": {"alarmPpm": 4000}}}


def spec_of(**fields: Any) -> SensorFleetSpec:
    changes = SensorThresholds(gas=GasChange(alarm_ppm=4000), thermal=HeatChange(alarm_celsius=50))
    return SensorFleetSpec(detection=SensorDetection(SensorCandidate(thresholds=changes, **fields)))


def result(identifier: str, alarms: int) -> FleetLedger:
    return FleetLedger(offered=1, candidate=CandidateResult(id=identifier, alarms=alarms, pre_alarms=2))


def test_a_candidate_has_the_fleets_settings_except_those_it_names() -> None:
    candidate, in_force = build_candidate(spec_of()), build_settings(SensorFleetSpec())
    assert candidate
    assert build_settings(spec_of()) == in_force
    expected = SensorSettings.FromString(in_force.SerializeToString())
    expected.gas.alarm_ppm, expected.heat.alarm_c = 4000, 50
    assert candidate.sensor == expected


def test_a_promoted_candidate_is_in_force_and_compared_with_nothing() -> None:
    candidate = build_candidate(spec_of())
    assert candidate
    assert build_settings(spec_of(promote=True)) == candidate.sensor
    assert build_candidate(spec_of(promote=True)) is None


def test_a_comparison_begins_anew_when_the_settings_of_either_side_change() -> None:
    spec = spec_of()
    first, renamed = build_candidate(spec), build_candidate(spec_of(name="other"))
    changed = build_candidate(replace(spec, gas=replace(spec.gas, pre_alarm_ppm=1000)))
    assert first
    assert renamed
    assert changed
    assert first.id == renamed.id != changed.id


async def test_alarms_beyond_the_bound_are_a_condition() -> None:
    world = World(fleet_of(detection={"candidate": {**LOWER_GAS, "maxDifferences": 1}}))
    await world.run_until_complete()
    candidate = build_candidate(world.fleet.spec)
    assert candidate
    for alarms, expected in ((0, "False"), (1, "False"), (2, "True")):
        world.runtime.ledger = result(candidate.id, alarms)
        condition = (await world.step()).status.condition("CandidateDiffers")
        assert (condition.status, f"{alarms} alarm" in condition.message) == (expected, True)
    world.runtime.ledger = result("of-earlier-settings", 9)
    assert (await world.step()).status.condition("CandidateDiffers").reason == "NotCompared"


async def test_a_candidate_that_cannot_judge_is_a_condition() -> None:
    world = World(fleet_of(detection={"candidate": LOWER_GAS}))
    await world.run_until_complete()
    candidate = build_candidate(world.fleet.spec)
    assert candidate
    world.runtime.ledger = result(candidate.id, 0)
    world.runtime.ledger.candidate.problem = "gate: detection.candidate.model: m.onnx: opencv cannot read it"
    condition = (await world.step()).status.condition("CandidateDiffers")
    assert (condition.status, condition.reason) == ("False", "CannotJudge")
    assert condition.message == "candidate lower-gas: gate: detection.candidate.model: m.onnx: opencv cannot read it"


@pytest.mark.parametrize("kind", ["SensorFleet", "CameraFleet"])
def test_a_version_is_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(FleetError) as caught:
        parse_fleet(manifest(kind, {"detection": {"candidate": {"version": "1.2.0"}}}))
    assert "spec.detection.candidate.version: " in str(caught.value)
    assert "a shard runs one version. Set spec.version of one fleet" in str(caught.value)


async def test_a_fleet_without_a_candidate_has_no_such_condition() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    assert (await world.step()).status.condition("CandidateDiffers") is None


async def rolled(halt_on: Sequence[Question], alarms: int) -> list[str]:
    world = Kubelet(fleet_of(shards=2, detection={"candidate": LOWER_GAS}))
    for _ in range(6):
        await world.step()
    candidate = build_candidate(world.fleet.spec)
    assert candidate
    world.runtime.ledger = result(candidate.id, alarms)
    await world.step()
    world.settings = replace(SETTINGS, image=NEW, turns=Turns(halt_on=halt_on))
    for seconds in (2, GRACE // SECOND + 1, 2, 2, 2, 2):
        await world.step(seconds)
        world.start()
    return world.images()


async def test_a_candidate_that_differs_halts_a_roll_out_only_where_it_is_asked_for() -> None:
    assert await rolled(("Ready", "Detection"), 0) == [NEW, NEW]
    assert await rolled(("Ready", "Detection"), 3) == [OLD, OLD]
    assert await rolled(("Ready",), 3) == [NEW, NEW]
