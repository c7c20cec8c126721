"""Capacity planning."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from embereye.process.lifecycle import UserError
from embereye_cli import plan as command
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.capacity.costs import Costs, Curve, PictureCost, parse_costs
from embereye_operator.decide.capacity.plan import CameraDemand, SensorDemand, max_devices, plan

COSTS = Costs(
    measured="here, today", readings=Curve(((1000.0, 0.03), (10_000.0, 0.12))), frames=Curve(((100.0, 0.02),)),
    reading_bytes=120.0, frame_bytes=3300.0,
    pictures={"jpeg": PictureCost(Curve(((100.0, 0.22),)), 1_000_000, 0.002, 1.0),
              "h264": PictureCost(Curve(((100.0, 0.3),)), 230_400, 0.003, 0.1)},
    sensor_shard_mb=80.0, sensor_mb=0.02, camera_shard_mb=150.0, camera_mb={"jpeg": 0.5, "h264": 2.0},
    sensor_shard=0.01, camera_shard=0.0, hub_idle=0.02, hub_device=10e-6, hub_mb=90.0, hub_device_mb=0.004,
)  # fmt: skip
HALF = Autoscaling(target_utilization=0.5)


def test_the_cores_of_sensors_follow_the_measured_curves() -> None:
    whole = plan([SensorDemand("hall", 550, 10.0, 0.0)], COSTS)
    (need,) = whole.needs
    assert need.shards == 1
    assert need.cores == pytest.approx(0.01 + 0.03 + 0.09 * 4500 / 9000), "between two measurements"
    assert need.inward == pytest.approx(550 * 10 * 120)
    assert whole.hub.cores == pytest.approx(0.02 + 550 * 10e-6)
    assert any("= 5,500/s" in step for step in need.arithmetic), "the arithmetic is shown"
    (thermal,) = plan([SensorDemand("hall", 100, 10.0, 4.0)], COSTS).needs
    assert thermal.cores == pytest.approx(0.01 + 0.03 + 4 * 0.02), (
        "beyond the last measurement the cost per item is constant"
    )
    curve = Curve(((100.0, 1.0), (200.0, 1.5)))
    assert [curve.cores(rate) for rate in (0.0, 50.0, 150.0, 400.0)] == [0.0, 0.5, 1.25, 3.0]


def test_recent_data_of_a_sensor_shard_is_bounded() -> None:
    def memory(sensors: int) -> float:
        return plan([SensorDemand("hall", sensors, 1.0, 0.0)], COSTS).needs[0].memory_mb

    assert memory(100) == pytest.approx(80 + 100 * (0.02 + 0.26)), "each its own"
    assert memory(1000) == pytest.approx(80 + 1000 * 0.02 + 33.6), "the limit of retained data"


def test_larger_pictures_cost_more_and_smaller_ones_less() -> None:
    def cores(width: int, height: int) -> float:
        return plan([CameraDemand("yard", 10, 10.0, "jpeg", width, height)], COSTS).needs[0].cores

    assert cores(1000, 1000) == pytest.approx(0.22)
    assert cores(2000, 1000) == pytest.approx(0.22 + 100 * 0.002)
    assert 0 <= cores(10, 10) < 0.22


def test_the_plan_uses_the_fewest_shards_at_target_utilization() -> None:
    def shards(cameras: int, capacity: float = 1.0) -> int:
        demand = CameraDemand("yard", cameras, 10.0, "jpeg", 1000, 1000, capacity, HALF)
        return plan([demand], COSTS).needs[0].shards

    # 2.2 ms a picture: 22 ms/s a camera, 0.5 of a core for each shard.
    assert [shards(1), shards(22), shards(23), shards(46)] == [1, 1, 2, 3]
    assert shards(46, capacity=2.0) == 2


def test_the_plan_reports_limits_that_are_too_low() -> None:
    few = Autoscaling(target_utilization=0.5, max_shards=1)
    demand = CameraDemand("yard", 100, 10.0, "jpeg", 1000, 1000, 1.0, few)
    assert "maxShards is 1" in plan([demand], COSTS).needs[0].warning
    alone = CameraDemand("gate", 1, 1000.0, "jpeg", 1000, 1000)
    assert "one device alone" in plan([alone], COSTS).needs[0].warning
    assert not plan([SensorDemand("hall", 1, 1.0, 0.0)], COSTS).needs[0].warning


def test_a_fleet_has_at_least_its_minimum_of_shards() -> None:
    demand = SensorDemand("hall", 4, 10, 0, limits=Autoscaling(min_shards=2))
    need, alone = plan([demand], COSTS).needs[0], plan([replace(demand, limits=Autoscaling())], COSTS).needs[0]
    assert (alone.shards, need.shards) == (1, 2)
    assert need.memory_mb - alone.memory_mb == pytest.approx(COSTS.sensor_shard_mb)
    assert "cores: 1; minShards is 2" in "\n".join(need.arithmetic)
    unscaled = replace(demand, shards=1)
    assert plan([unscaled], COSTS).needs[0].shards == 1


def test_without_autoscaling_the_declared_shards_are_planned() -> None:
    demand = CameraDemand("yard", 46, 10.0, "jpeg", 1000, 1000, 1.0, HALF, shards=2)
    (need,) = plan([demand], COSTS).needs
    assert (need.shards, need.warning) == (2, "spec.shards is 2, autoscaling is off, and 3 are needed")
    assert need.cores == pytest.approx(46 * 0.022)
    assert any("cores: 3; spec.shards is 2, and autoscaling is off" in step for step in need.arithmetic)
    (need,) = plan([replace(demand, shards=5)], COSTS).needs
    assert (need.shards, need.warning) == (5, "")


@pytest.mark.parametrize("autoscaling", ["{mode: none}", "{observe: true}", "{mode: hpa, observe: true}"])
def test_the_command_plans_no_shards_beyond_the_declared_ones(
    autoscaling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs, fleet = tmp_path / "costs.json", tmp_path / "fleet.yaml"
    costs.write_text(COSTS.to_json())
    sensors = ", ".join(f"{{id: s-{number}, zone: hall}}" for number in range(100))
    fleet.write_text(
        "apiVersion: embereye.dev/v1beta1\nkind: SensorFleet\nmetadata: {name: hall}\n"
        f"spec: {{shards: 1, autoscaling: {autoscaling}, sensors: [{sensors}]}}\n"
    )
    assert command.run(arguments(str(fleet), "--costs", str(costs), "--hz", "1000")) == 1
    out = capsys.readouterr().out
    assert "100 devices on 1 shard\n" in out
    assert "BUT       spec.shards is 1, autoscaling is off, and " in out


def test_a_machines_maximum_leaves_room_for_the_rest() -> None:
    demand = SensorDemand("hall", 100, 10.0, 0.0)
    whole = plan([demand], COSTS)
    most = max_devices(demand, whole, 2.0, COSTS)
    full = plan([SensorDemand("hall", most, 10.0, 0.0)], COSTS)
    assert full.cores == pytest.approx(2.0 * demand.limits.target_utilization, rel=0.02)
    assert full.cores <= 2.0 * demand.limits.target_utilization


def test_costs_survive_a_round_trip_and_incomplete_ones_are_refused() -> None:
    assert parse_costs(COSTS.to_json()) == COSTS
    document = json.loads(COSTS.to_json())
    del document["readings"]
    with pytest.raises(ValueError, match="readings is missing"):
        parse_costs(json.dumps(document))
    with pytest.raises(ValueError, match="not measurements at rising rates"):
        parse_costs(COSTS.to_json().replace("10000.0", "1000.0"))
    assert command.load_costs(None).measured, "costs are recorded with every version"


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(given)


def test_the_command_plans_declared_fleets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text(COSTS.to_json())
    example = Path(__file__).parents[4] / "charts/embereye/examples"
    manifests = [str(example / "sensorfleet.yaml"), str(example / "camerafleet.yaml")]
    assert command.run(arguments(*manifests, "--costs", str(costs), "--cores", "2")) == 0
    out = capsys.readouterr().out
    assert "default/sensors/warehouse: 4 devices on 2 shards" in out  # its minShards
    assert "default/cameras/warehouse: 2 devices on 1 shard\n" in out
    assert "in all: " in out
    assert command.run(arguments("--sensors", "100", "--costs", str(costs), "-o", "json")) == 0
    assert json.loads(capsys.readouterr().out)["needs"][0]["devices"] == 100


def test_devices_listed_in_a_config_map_are_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, lists = tmp_path / "fleet.yaml", tmp_path / "lists.yaml"
    fleet.write_text(
        "apiVersion: embereye.dev/v1beta1\nkind: SensorFleet\nmetadata: {name: hall}\n"
        "spec: {sensorsFrom: [{configMapRef: {name: hall}}]}\n"
    )
    lists.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hall}\n"
        "data: {list: '[{id: a, zone: hall}, {id: b, zone: hall}]'}\n"
    )
    assert command.run(arguments(str(fleet), str(lists))) == 0
    assert "default/sensors/hall: 2 devices on 1 shard" in capsys.readouterr().out
    with pytest.raises(UserError, match="ConfigMap hall does not exist"):
        command.run(arguments(str(fleet)))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "nothing to plan. Name manifests, or give --sensors"),
        (["--cameras", "1", "--size", "big"], '--size "big" is not'),
        (["--cameras", "1", "--fps", "0"], "--fps 0 is not between"),
        (["--sensors", "1", "--cores", "0"], "--cores 0 is not more than 0"),
        (["--sensors", "1", "--costs", "/none"], "/none does not exist"),
    ],
)
def test_invalid_arguments_are_named(given: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        command.run(arguments(*given))


def test_a_plan_warns_if_one_hub_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = 67_999  # (0.7 of a core - 0.02) / 10 µs
    assert not plan([SensorDemand("hall", full, 0.1, 0.0)], COSTS).hub.warning
    assert f"{full:,} devices" in plan([SensorDemand("hall", full + 2, 0.1, 0.0)], COSTS).hub.warning
    cameras = CameraDemand("yard", 8_000, 0.1, "jpeg", 640, 480)
    demand = SensorDemand("hall", 10, 0.1, 0.0)
    assert max_devices(demand, plan([demand, cameras], COSTS), 1e6, COSTS) == full - 8_000
    costs = tmp_path / "costs.json"
    costs.write_text(COSTS.to_json())
    assert command.run(arguments("--sensors", "70000", "--hz", "0.1", "--costs", str(costs))) == 1
    assert "BUT       a hub is one process" in capsys.readouterr().out


def test_a_hub_with_immeasurable_cost_per_device_is_never_full() -> None:
    free = replace(COSTS, hub_device=0.0)
    demand = SensorDemand("hall", 10, 10.0, 0.0)
    whole = plan([demand], free)
    assert not whole.hub.warning
    assert max_devices(demand, whole, 1.0, free) > 10


def test_a_hub_that_is_busy_when_idle_has_room_for_no_device() -> None:
    demand = SensorDemand("hall", 10, 10.0, 0.0)
    for device in (COSTS.hub_device, 0.0):
        whole = plan([demand], replace(COSTS, hub_idle=0.8, hub_device=device))
        assert "one core; 0 devices use 0.7" in whole.hub.warning


def test_the_network_calculation_is_shown() -> None:
    for demand, arithmetic in (
        (SensorDemand("hall", 20, 10.0, 0.0), "20 x 10/s x {0.reading_bytes:,.0f} B = "),
        (
            SensorDemand("hall", 20, 10.0, 4.0),
            "20 x (10/s x {0.reading_bytes:,.0f} B + 4/s x {0.frame_bytes:,.0f} B) = ",
        ),
    ):
        (need,) = plan([demand], COSTS).needs
        assert f"network   {arithmetic.format(COSTS)}{need.inward / 1e6:.2f} MB/s" in need.arithmetic[-1]


@pytest.mark.parametrize("change", ['"points"', '"curve"', "{", "[", '"readings": {'])
def test_a_malformed_file_of_costs_is_named(change: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(COSTS.to_json().replace(change, '"readings": [' if change.endswith(": {") else '"x"'))
    with pytest.raises(UserError, match=r"costs\.json is not a file of `embereye bench --calibrate`: "):
        command.load_costs(path)


def test_a_binary_file_of_costs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"costs\.json is not a file of `embereye bench --calibrate`: "):
        command.load_costs(path)
