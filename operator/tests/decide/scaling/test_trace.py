"""Scaling within a pass: actions, reports, and the explanation for people."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Load
from embereye_cli.explain import fleet as explain
from embereye_cli.explain import replay
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.schema import to_manifest
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.scaling import trace as trace_module
from embereye_operator.decide.scaling.explanation import explanation, sentences
from embereye_operator.decide.scaling.law import Measured, Observed
from embereye_operator.decide.scaling.trace import Entry, Trace, decode, encode, read

from ...fakes import START, World
from ...test_reconcile import condition, fleet_of

BUSY = Load(arrival_rate=2100, cost_seconds=0.001, utilization=0.9)


def scaled(shards: int = 1, **limits: Any) -> World:
    return World(fleet_of(count=12, shards=shards, autoscaling={"maxShards": 6, **limits}))


async def test_a_burst_scales_and_the_status_has_the_inputs() -> None:
    world = scaled()
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].load = BUSY
    outcome = await world.step()
    assert "scale 4" in world.runtime.log
    last = outcome.status.last_scale
    assert last is not None
    assert (last.from_, last.to) == (1, 4)
    assert last.reason.startswith("burst: ceil((3 to keep up")
    assert last.inputs["arrivalRate"] == 2100
    assert last.inputs["targetUtilization"] == 0.7
    assert any("Scaled" in event for event in world.runtime.events)
    for shard in world.runtime.shards.values():
        shard.load = Load(arrival_rate=525, cost_seconds=0.001, utilization=0.5)
    for _ in range(10):
        outcome = await world.step()
        for name, shard in world.runtime.shards.items():
            shard.load = Load(arrival_rate=525, cost_seconds=0.001, utilization=0.5) if name else Load()
    assert outcome.status.shards == 4
    assert outcome.status.last_scale == last, "the new shards are this change"
    assert condition(outcome.status, "ScalingActive")[0] == "True"


async def test_observe_decides_without_acting() -> None:
    world = scaled(observe=True)
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].load = BUSY
    outcome = await world.step()
    assert not [entry for entry in world.runtime.log if entry.startswith("scale")]
    assert outcome.status.required_shards == 4
    status, reason, message = condition(outcome.status, "ScalingActive")
    assert (status, reason) == ("False", "Observing")
    assert "4 shards instead of 1" in message


@pytest.mark.parametrize("mode", ["hpa", "keda", "none"])
async def test_in_other_modes_the_operator_never_writes_the_scale(mode: str) -> None:
    world = scaled(mode=mode)
    world.runtime.missing = set()
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].load = BUSY
    outcome = await world.step()
    assert not [entry for entry in world.runtime.log if entry.startswith("scale")]
    assert outcome.status.required_shards == 4, "the other autoscaler gets the number"


async def test_a_foreign_autoscaler_stops_ours_and_is_reported() -> None:
    world = scaled()
    await world.run_until_complete()
    world.runtime.others = ["HorizontalPodAutoscaler mine"]
    world.runtime.shards["hall-sensors-0"].load = BUSY
    outcome = await world.step()
    assert not [entry for entry in world.runtime.log if entry.startswith("scale")]
    assert condition(outcome.status, "Degraded")[:2] == ("True", "TwoScalers")
    assert condition(outcome.status, "ScalingActive")[:2] == ("False", "TwoScalers")


@pytest.mark.parametrize("limits", [{"mode": "none"}, {"observe": True}, {"mode": "hpa", "observe": True}])
async def test_a_foreign_autoscaler_may_scale_alone(limits: Any) -> None:
    world = scaled(**limits)
    world.runtime.others = ["HorizontalPodAutoscaler mine", "HorizontalPodAutoscaler another"]
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "Degraded")[0] == "False"


async def test_a_paused_fleet_is_not_scaled() -> None:
    world = scaled()
    await world.run_until_complete()
    world.manifest["spec"]["paused"] = True
    world.runtime.shards["hall-sensors-0"].load = BUSY
    await world.step()
    assert not [entry for entry in world.runtime.log if entry.startswith("scale")]


async def test_lost_measurements_leave_the_number() -> None:
    world = scaled(shards=3)
    await world.run_until_complete()
    for shard in world.runtime.shards.values():
        shard.reachable = False
    for _ in range(200):
        outcome = await world.step()
    assert not [entry for entry in world.runtime.log if entry.startswith("scale")]
    assert outcome.status.required_shards == 3
    assert condition(outcome.status, "ScalingActive")[:2] == ("False", "Holding")


async def test_hpa_and_keda_get_an_object_that_embedded_deletes_before_scaling() -> None:
    world = scaled(mode="hpa", minShards=1)
    world.runtime.missing = set()
    await world.run_until_complete()
    hpa = world.runtime.objects["HorizontalPodAutoscaler", "hall-sensors"]["spec"]
    assert hpa["scaleTargetRef"] == {"apiVersion": "embereye.dev/v1alpha1", "kind": "SensorFleet", "name": "hall"}
    metric = hpa["metrics"][0]["external"]
    assert metric["metric"]["name"] == "embereye_fleet_required_shards"
    assert metric["metric"]["selector"]["matchLabels"] == {"namespace": "default", "kind": "sensors", "fleet": "hall"}
    assert metric["target"] == {"type": "AverageValue", "averageValue": "1"}
    world.manifest["spec"]["autoscaling"]["mode"] = "keda"
    await world.run_until_complete()
    assert ("HorizontalPodAutoscaler", "hall-sensors") not in world.runtime.objects
    scaler = world.runtime.objects["ScaledObject", "hall-sensors"]["spec"]
    assert scaler["triggers"][0]["metadata"]["ignoreNullValues"] == "false"
    assert scaler["triggers"][0]["metadata"]["query"] == (
        'max(embereye_fleet_required_shards{namespace="default",kind="sensors",fleet="hall"})'
    )
    world.manifest["spec"]["autoscaling"]["mode"] = "embedded"
    world.runtime.shards["hall-sensors-0"].load = BUSY
    world.runtime.log.clear()
    await world.step()
    log = world.runtime.log
    assert log.index("delete ScaledObject hall-sensors") < log.index("scale 4")


async def test_a_missing_keda_is_reported() -> None:
    world = scaled(mode="keda")
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "ScalingActive")[:2] == ("False", "NotInstalled")
    assert condition(outcome.status, "Degraded")[:2] == ("True", "ScalerMissing")


async def test_a_network_policy_is_created_if_its_kind_exists() -> None:
    world = scaled()
    await world.run_until_complete()
    assert "NetworkPolicy" not in {kind for kind, _ in world.runtime.objects}
    world.runtime.missing = set()
    await world.run_until_complete()
    assert "NetworkPolicy" in {kind for kind, _ in world.runtime.objects}


async def test_monitors_and_rules_of_an_earlier_version_are_deleted() -> None:
    world = scaled()
    world.runtime.missing = set()
    await world.run_until_complete()
    policy = world.runtime.objects["NetworkPolicy", "hall-sensors"]
    for kind in ("ServiceMonitor", "PrometheusRule"):
        world.runtime.objects[kind, "hall-sensors"] = {**policy, "kind": kind}
    await world.run_until_complete()
    assert not {kind for kind, _ in world.runtime.objects} & {"ServiceMonitor", "PrometheusRule"}


async def test_the_start_up_time_of_a_shard_is_measured() -> None:
    world = scaled()
    await world.run_until_complete()
    world.runtime.starts_shards = False
    world.manifest["spec"]["shards"] = 2
    for _ in range(4):
        await world.step()
    world.runtime.starts_shards = True
    await world.runtime.apply(world.runtime.objects["Deployment", "hall-sensors-1"])
    await world.step()
    assert 6 <= world.memory.lead <= 10


def entry(second: int, rate: float | None, shards: int = 2) -> Entry:
    measured = None if rate is None else Measured(rate, 0.001, 5, 0.25, 0.5)
    observed = Observed(START + second * SECOND, shards, measured, ("a",) if rate is None else (), 8.0, 1.0)
    return Entry(Autoscaling(max_shards=6), 5.0, observed)


@pytest.mark.parametrize("rate", [None, 1234.5])
def test_a_trace_entry_survives_a_round_trip(rate: float | None) -> None:
    assert decode(encode(entry(0, rate))) == entry(0, rate)


def test_a_trace_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(encode(entry(2 * number, 700 if number < 5 else 2800)) for number in range(10)))
    assert replay.run(arguments(str(path))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "2 → 5" in lines[1]
    assert "burst" in lines[1]
    assert replay.run(arguments(str(path), "--json")) == 0
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 10


def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(encode(entry(0, 1)) + "\n{}\n")
    with pytest.raises(UserError, match=r"trace\.jsonl:2: "):
        list(read(path))
    path.write_bytes(bytes(range(128, 256)))
    with pytest.raises(UserError, match=":1: not an entry of a scaling trace"):
        list(read(path))
    with pytest.raises(UserError, match="cannot be read"):
        list(read(tmp_path / "absent"))


def test_a_trace_is_written_only_on_changes(tmp_path: Path) -> None:
    trace, fleet = Trace(tmp_path), parse_fleet(fleet_of())
    for second in (0, 2, 4, 30):
        trace.write(fleet, entry(second, 700).observed)
    trace.write(fleet, entry(32, 800).observed)
    (path,) = tmp_path.iterdir()
    assert [item.observed.time for item in read(path)] == [START + second * SECOND for second in (0, 30, 32)]


def test_the_traces_of_all_fleets_stay_within_their_limit(tmp_path: Path) -> None:
    """A pod that exceeds its volume's limit is evicted."""
    room, fleet = 400_000, parse_fleet(fleet_of())
    for trace in (Trace(tmp_path, room), Trace(tmp_path, room)):  # the second after a restart
        for number in range(400):
            trace.write(replace(fleet, name=f"hall-{number % 80}"), entry(number, number).observed)
            assert sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()) <= room
    *_, latest = read(tmp_path / f"{fleet.namespace}.sensors.hall-79.jsonl")
    assert latest == Entry(fleet.spec.autoscaling, fleet.spec.deadline / SECOND, entry(399, 399).observed)


def test_only_a_limited_number_of_deleted_fleets_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MAX_FLEETS", 2)
    trace, fleet = Trace(tmp_path), parse_fleet(fleet_of())
    for number in range(10):
        trace.write(replace(fleet, name=f"hall-{number}"), entry(number, 700).observed)
        trace.write(fleet, entry(number, 700 + number).observed)
    assert list(trace._latest) == [f"{fleet.namespace}/sensors/hall-9", fleet.key]


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    replay.add_arguments(parser)
    return parser.parse_args(words)


async def test_a_fleets_explanation_has_inputs_formula_and_result() -> None:
    world = scaled()
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].load = BUSY
    outcome = await world.step()
    fleet = parse_fleet({**world.manifest, "status": to_manifest(outcome.status)})
    text = "\n".join(sentences(explanation(fleet)))
    assert "λ 2100 items/s, c 1 ms" in text
    assert "ceil((3 to keep up" in text
    assert "1 → 4: burst" in text
    assert "bounded" not in text
    world.runtime.shards["hall-sensors-0"].load = Load()
    quiet = parse_fleet({**world.manifest, "status": to_manifest((await world.step()).status)})
    assert "\n  bounded    minShards makes it 1\n" in "\n".join(sentences(explanation(quiet)))
    idle = parse_fleet({**world.manifest, "status": {}})
    assert "no shard reports its load" in "\n".join(sentences(explanation(idle)))


def test_a_fleet_is_selected_by_name_and_kind() -> None:
    sensors = parse_fleet(fleet_of())
    cameras = parse_fleet({**fleet_of(), "kind": "CameraFleet", "spec": {}})
    assert explain.select([sensors, cameras], "sf/hall") is sensors
    assert explain.select([sensors, cameras], "camerafleets/hall") is cameras
    with pytest.raises(UserError, match="Name one of them"):
        explain.select([sensors, cameras], "hall")
    with pytest.raises(UserError, match="there are: sf/hall"):
        explain.select([sensors], "yard")


def test_an_unwritable_trace_fails_no_pass_and_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "scaling"
    folder.write_text("a file in place of the folder")
    trace, fleet = Trace(folder), parse_fleet(fleet_of())
    for number in range(3):
        trace.write(fleet, Observed(time=number * 60 * SECOND, shards=number, measured=None))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    folder.unlink()
    trace.write(fleet, Observed(time=180 * SECOND, shards=3, measured=None))
    assert [entry.observed.shards for entry in read(folder / f"{fleet.key.replace('/', '.')}.jsonl")] == [3]
