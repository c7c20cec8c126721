"""The matrix of faults and soaks: what they choose, how they judge, what they write."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from harness.cluster import attacked
from harness.cluster.faults import FAULTS as IN_CLUSTER
from harness.devices import REST, TextDevice
from harness.machine import local_site
from harness.machine.faults import FAULTS
from harness.machine.local_site import CLOCK, Layout, LocalSite
from harness.machine.slope import slope
from harness.machine.soak import (
    ADAPT_SECONDS,
    SENSORS_ON_FIRE,
    WARM_SECONDS,
    Row,
    Samples,
    Soaked,
    SoakPlan,
    familiar,
    fires_of,
    layout_of,
    load_cameras,
    load_commands,
    load_sensors,
    read_soaked,
    role_of,
    write_result,
    write_samples,
)
from harness.machine.soak_page import write_soak_page
from harness.machine.soak_text import PICTURE, write_soak_text
from harness.matrix import matrix
from harness.matrix.edits import DEFINITIONS, VERSION, edits, merge
from harness.matrix.fault import NOTHING, Fault
from harness.matrix.matrix import Alerts, Outcome, choose_pairs, read_outcomes, store_outcome, write_outcomes
from harness.matrix.reliability import page
from harness.matrix.rules import CALM, STARVED, BaselineAlerts, labels, lapsed_rules, states
from harness.records.diary import Diary

from embereye_cli.main import COMMANDS
from embereye_operator.api.fleets import parse_fleet

FINE = Outcome(
    faults=("hub killed",), gap=0.2, gap_limit=1.5, recovery=2.0, recovery_limit=30.0, evidence=40, evidence_lost=0,
    evidence_doubled=0, fires=3, alarms_lost=0, alarms_doubled=0, taken_back=0, slowest=0.3,
    delays=(0.1, 0.3),
)  # fmt: skip
ABOUT = {
    "at": "2026-01-01T00:00:00Z", "seed": 7, "commit": "abcdef0123",
    "machine": {"cpu": "Some", "cores": 2, "memoryGb": 8.0, "python": "3.11"},
}  # fmt: skip


def test_pairs_follow_from_the_seed_and_none_comes_twice() -> None:
    faults = list(FAULTS.values())
    pairs = choose_pairs(faults, 10, 7)
    assert pairs == choose_pairs(faults, 10, 7) != choose_pairs(faults, 10, 8)
    assert len(set(pairs)) == 10
    assert all(first != second for first, second in pairs)
    assert len(choose_pairs(faults[:2], 10, 1)) == 1


def test_two_faults_that_take_the_same_node_are_no_pair() -> None:
    pairs = choose_pairs(list(IN_CLUSTER.values()), 1000, 1)
    assert ("node off", "PostgreSQL gone") in pairs or ("PostgreSQL gone", "node off") in pairs
    assert not {("node off", "node drained"), ("node drained", "node off")} & set(pairs)
    assert ("hub killed", "all hubs killed") not in pairs, "a killed hub cannot be killed again"
    assert all(first != "API server down" for first, _ in pairs), "other faults need the API server"


@pytest.mark.parametrize(
    "change",
    [
        {"evidence_lost": 1}, {"evidence_doubled": 1}, {"alarms_lost": 1}, {"alarms_doubled": 1}, {"taken_back": 1},
        {"gap": 1.6}, {"recovery": 30.1}, {"problem": "it hung"}, {"alerts_missing": ("HubDown",)},
        {"alerts_foreign": ("DevicesDark",)}, {"alerts_left": ("HubDown",)},
    ],
)  # fmt: skip
def test_anything_lost_doubled_or_late_fails(change: dict[str, object]) -> None:
    assert FINE.ok
    assert not replace(FINE, **change).ok  # type: ignore[arg-type]


def test_results_are_read_as_they_were_written_and_the_page_has_them(tmp_path: Path) -> None:
    bad = replace(FINE, faults=("hub killed", "disk full"), alarms_lost=1, problem="no alarm")
    write_outcomes(tmp_path / "run.json", ABOUT, [FINE, bad])
    about, outcomes = read_outcomes(tmp_path / "run.json")
    assert (about, outcomes) == (ABOUT, [FINE, bad])
    text = page(about, outcomes, FAULTS, CLOCK.parent)
    assert "seed 7" in text
    assert "gaps + 1 s | 4 of 4 |" in text
    late = replace(FINE, faults=("hub killed", "rolled out"), delays=(0.1, 1.3))
    assert "| 5 of 6; late with hub killed and rolled out |" in page(about, [*outcomes, late], FAULTS, CLOCK.parent)
    cut_off = replace(late, feed_gap=0.4)
    assert "| 6 of 6 |" in page(about, [*outcomes, cut_off], FAULTS, CLOCK.parent), "no hub could publish it"
    assert "| the hub is killed (-9) | 0.2 s |" in text
    assert "**failed**: no alarm" in text
    assert "| alarms lost, doubled | 0, 0 | 1, 0 of 6 |" in text


def test_the_page_compares_planned_moves_with_no_fault_and_has_alarm_delays() -> None:
    faults = {NOTHING.name: NOTHING, **FAULTS}
    quiet = replace(FINE, faults=(NOTHING.name,), gap=0.14, delays=tuple(number / 1000 for number in range(1, 101)))
    moves = [
        replace(FINE, faults=("planned move",), gap=0.17, moved=0.11),
        replace(FINE, faults=("scaled far",), gap=0.31),
    ]
    text = page(ABOUT, [FINE, *moves, quiet], faults, CLOCK.parent)
    assert "| not longer than without a fault | 0.11 s, 0.31 s, 0.14 s |" in text
    assert "| p95 ≤ 100 ms | 50, 95, 100 ms of 100 |" in text
    rows = [line for line in text.splitlines() if line.endswith("| passed |")]
    assert rows[0].startswith(f"| {NOTHING.summary} | 0.14 s |"), "the baseline comes first"
    assert "| none moved, not run, not run |" in page(ABOUT, [FINE], faults, CLOCK.parent)


def test_fires_share_out_the_time_of_a_row() -> None:
    assert matrix.spread(2, 4.0) == [0.2, 2.2]
    assert len(matrix.spread(NOTHING.fires, NOTHING.duration)) == NOTHING.fires
    assert max(matrix.spread(NOTHING.fires, NOTHING.duration)) < NOTHING.duration


def test_a_row_that_is_run_again_takes_its_place_and_says_so() -> None:
    late = replace(FINE, gap=FINE.gap_limit + 1)
    outcomes = [late, replace(FINE, faults=("hub killed", "disk full"))]
    store_outcome(outcomes, FINE)
    store_outcome(outcomes, replace(FINE, faults=("disk full",)))
    assert [(outcome.faults, outcome.ok, outcome.tries) for outcome in outcomes] == [
        (FINE.faults, True, 2), (("hub killed", "disk full"), True, 1), (("disk full",), True, 1),
    ]  # fmt: skip
    text = page(ABOUT, outcomes, FAULTS, CLOCK.parent)
    assert text.count("passed (run 2 times)") == 1
    assert "the table shows its last run" in text


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time without alerts that counts as calm."""
    monkeypatch.setattr(matrix, "CALM", 0.2)


class Rules:
    """A Prometheus whose alerts a test sets directly."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}

    async def alerts(self) -> dict[str, str]:
        return self.states

    async def labelled(self) -> dict[str, list[str]]:
        return labels(
            {"labels": {"alertname": name, "fleet": "halls"}, "state": state} for name, state in self.states.items()
        )


async def watched(fault: Fault[Any], *steps: dict[str, str], pressure: float = 0.0) -> dict[str, Any]:
    """Judge a fault during which the rules pass through these states, one after the other."""
    rules = Rules()
    alerts = Alerts(rules)
    await alerts.begin()
    for step in steps:
        rules.states = {f"EmberEye{name}": state for name, state in step.items()}
        await asyncio.sleep(0.6)
    result = asyncio.ensure_future(alerts.end([fault], pressure))
    await asyncio.sleep(0.6)
    rules.states = {}
    return await result


@pytest.mark.usefixtures("hasty")
async def test_a_fault_has_to_fire_its_own_alerts_and_no_others() -> None:
    hub = replace(FAULTS["hub frozen"], alerts=frozenset({"HubDown"}), besides=frozenset({"HubNotReached"}))
    both = await watched(hub, {"HubDown": "pending"}, {"HubDown": "firing", "HubNotReached": "firing"})
    assert both["alerts"] == ("HubDown", "HubNotReached")
    assert not both["alerts_missing"]
    assert not both["alerts_foreign"]
    assert not both["alerts_left"]
    assert both["resolved"] > 0
    other = await watched(hub, {"DevicesDark": "firing"})
    assert other["alerts_missing"] == ("HubDown",)
    assert other["alerts_foreign"] == ("DevicesDark",)


@pytest.mark.usefixtures("hasty")
async def test_an_alert_that_does_not_resolve_is_listed_with_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "RESOLVE_SECONDS", 0.3)
    left = (await watched(FAULTS["planned move"], {"DevicesDark": "firing"}))["alerts_left"]
    assert left == ('DevicesDark{fleet="halls"} firing',)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", sorted(STARVED))
async def test_a_busy_machine_may_alert_that_it_is_slow(name: str) -> None:
    slow = {name: "firing"}
    assert (await watched(FAULTS["planned move"], slow))["alerts_foreign"] == (name,)
    assert (await watched(FAULTS["planned move"], slow, pressure=0.9))["alerts_foreign"] == ()


@pytest.mark.usefixtures("hasty")
async def test_an_alert_that_lasts_as_long_as_a_machine_is_busy_may_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "RESOLVE_SECONDS", 0.3)
    old = {"FramesOld": "firing"}
    assert (await watched(FAULTS["planned move"], old, pressure=0.9))["alerts_left"] == ()
    assert (await watched(FAULTS["planned move"], old))["alerts_left"] == ('FramesOld{fleet="halls"} firing',)


@pytest.mark.usefixtures("hasty")
async def test_an_alert_that_is_pending_at_recovery_belongs_to_the_fault() -> None:
    late = await watched(FAULTS["planned move"], {"CoverageBurnsSlowly": "pending"})
    assert late["resolved"] >= 0.5, "it was waited for"
    assert late["alerts"] == (), "it never fired"


def test_rules_in_time_lapse_keep_their_proportions() -> None:
    rules = {rule["alert"]: rule for group in lapsed_rules()["groups"] for rule in group["rules"] if "alert" in rule}
    assert rules["EmberEyeHubDown"]["for"] == "2s", "a minute"
    assert rules["EmberEyeFleetNotReady"]["for"] == "10s", "five minutes"
    assert "[120s]" in rules["EmberEyeCoverageBurnsFast"]["expr"], "an hour"
    assert "[10s]" in rules["EmberEyeCoverageBurnsFast"]["expr"], "five minutes"
    assert "offset 20s" in rules["EmberEyeCoverageBurnsFast"]["expr"], "ten minutes"


def test_of_several_alerts_with_one_name_those_that_fire_count() -> None:
    alerts = [{"labels": {"alertname": "A"}, "state": state} for state in ("pending", "firing", "pending")]
    assert states(alerts) == {"A": "firing"}
    assert states(alerts[:1]) == {"A": "pending"}
    assert states([]) == {}


def test_an_alert_that_fires_before_any_fault_belongs_to_none() -> None:
    baseline = BaselineAlerts()
    full = {"EmberEyeDiskFilling": "firing"}
    assert not baseline.update({"EmberEyeDiskFilling": "pending"}), "it may be about to fire"
    assert [baseline.update(full) for _ in range(12)].index(True) > CALM
    assert baseline.without({**full, "EmberEyeHubDown": "firing"}) == {"EmberEyeHubDown": "firing"}
    calm = BaselineAlerts()
    assert [calm.update({}) for _ in range(CALM)][-1]
    assert calm.without(full) == full


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_field_with_a_default_is_edited_to_another_allowed_value(kind: str) -> None:
    all_edits = edits(kind)
    names = [name for name, _ in all_edits]
    assert len(names) == len(set(names)) >= 20
    assert {"deadline", "canary.within", "autoscaling.catchUp"} <= set(names)
    devices = (
        {"sensors": [{"id": "a", "zone": "a"}]}
        if kind == "SensorFleet"
        else {"cameras": [{"id": "a", "zone": "a", "source": "push"}]}
    )
    plain = {
        "apiVersion": f"embereye.dev/{VERSION}",
        "kind": kind,
        "metadata": {"name": "x", "namespace": "y"},
        "spec": devices,
    }
    before = parse_fleet(plain)
    for name, spec in all_edits:
        assert parse_fleet(merge(plain, {"spec": spec}), old=plain).spec != before.spec, name


def test_the_page_of_a_cluster_says_how_it_is_made() -> None:
    rows = [replace(FINE, faults=(name,)) for name in IN_CLUSTER]
    text = page(ABOUT, rows, IN_CLUSTER, Path(attacked.__file__).parent)
    assert 'make faults ARGS="--cluster --page"' in text
    assert all(f"| {fault.summary} | 0.2 s |" in text for fault in IN_CLUSTER.values())


def test_a_leak_differs_from_noise_even_if_processes_restart() -> None:
    dice = np.random.default_rng(3)
    at = np.arange(0.0, 3600.0, 10.0)

    def segment(per_hour: float, base: float) -> tuple[list[float], list[float]]:
        return list(at), list(base + per_hour * at / 3600 + dice.normal(0, 0.5, len(at)))

    steady = slope([segment(0.0, 100), segment(0.0, 140)])
    assert steady is not None
    assert not steady.is_growth
    assert abs(steady.value) < 0.5
    leaking = slope([segment(3.0, 100), segment(3.0, 60)])
    assert leaking is not None
    assert leaking.is_growth
    assert leaking.low < 3.0 < leaking.high
    assert slope([([0.0, 1.0], [1.0, 2.0])]) is None, "two samples are too few"


def test_the_interval_of_a_process_that_does_not_grow_is_nearly_always_around_zero() -> None:
    dice = np.random.default_rng(4)
    at = list(np.arange(0.0, 600.0, 10.0))
    slopes = [slope([(at, list(dice.normal(50, 1, len(at))))]) for _ in range(200)]
    missed = sum(not growth.low <= 0 <= growth.high for growth in slopes if growth)
    assert missed <= 20, "of 200 intervals at 95 % some ten miss"


def test_of_many_slopes_that_are_judged_together_chance_makes_none_a_leak() -> None:
    dice = np.random.default_rng(5)
    at = list(np.arange(0.0, 6000.0, 120.0))
    slopes = [slope([(at, list(dice.normal(50, 1, len(at))))], together=200) for _ in range(200)]
    assert not any(growth.is_growth for growth in slopes if growth)
    leak = [50 + 3 * second / 3600 + dice.normal(0, 0.5) for second in at]
    leaking = slope([(at, leak)], together=20)
    assert leaking is not None
    assert leaking.is_growth


def test_a_level_that_wanders_is_hardly_ever_taken_for_a_leak() -> None:
    dice = np.random.default_rng(7)
    at = list(np.arange(0.0, 5400.0, 120.0))

    def wandering(leak: float) -> list[float]:
        """A level that moves randomly and returns a fifth of its way at each step."""
        value, levels = 0.0, []
        for second in at:
            value = 0.8 * value + dice.normal(0, 0.6)
            levels.append(50 + value + leak * second / 3600)
        return levels

    slopes = [slope([(at, wandering(0.0))], together=5, steps=True) for _ in range(200)]
    assert sum(growth.is_growth for growth in slopes if growth) <= 16, "judged as independent, some 30 of them grow"
    leaks = [slope([(at, wandering(8.0))], together=5, steps=True) for _ in range(200)]
    assert sum(growth.is_growth for growth in leaks if growth) >= 180


def test_one_step_is_no_slope_and_counts_if_it_is_large_and_permanent() -> None:
    dice = np.random.default_rng(8)
    at = list(np.arange(0.0, 5400.0, 120.0))

    def stepping(by: float, back: float = 5400.0) -> bool:
        values = [50 + by * (1800 <= second < back) + dice.normal(0, 0.05) for second in at]
        growth = slope([(at, values)], steps=True)
        assert growth is not None
        assert growth.low < 0
        return growth.is_growth

    assert not stepping(1.0)
    assert stepping(3.0)
    assert not stepping(3.0, 4000.0), "the memory was released"


def test_a_soak_s_events_follow_from_its_seed() -> None:
    plan = SoakPlan(seconds=7200, seed=5)
    schedule = plan.schedule()
    assert schedule == SoakPlan(seconds=7200, seed=5).schedule() != SoakPlan(seconds=7200, seed=6).schedule()
    assert all(0 < at <= 7200 for at, _ in schedule)
    faults = [event for _, event in schedule if event != "fire"]
    assert 10 <= len(faults) <= 60
    assert set(faults) <= set(FAULTS)
    assert not [event for _, event in replace(plan, fault_seconds=0.0).schedule() if event != "fire"]


def test_a_soak_makes_each_fault_once_before_it_judges_what_its_processes_use() -> None:
    plan = SoakPlan(seconds=3600, seed=5)
    first = [event for at, event in plan.schedule() if event != "fire" and at <= WARM_SECONDS]
    assert sorted(first) == sorted(plan.faults)
    assert len(SoakPlan(seconds=60, seed=5).schedule()) < 5, "there is no time for it in a short one"


def test_a_soak_has_a_sensor_per_fire_or_enough_to_reset_some_before_all_burn() -> None:
    short, day = SoakPlan(seconds=600, seed=5), SoakPlan(seconds=86400, seed=5)
    assert fires_of(short) >= len(short.schedule())
    assert fires_of(day) == SENSORS_ON_FIRE >= 4 * 8, "four burn in each fault"


def test_a_soak_s_building_has_what_its_faults_are_made_on() -> None:
    layout = layout_of(SoakPlan(seconds=60, seed=1, mjpeg=1, h264=1), 2, 3)
    assert layout.cameras, "faults of a camera are made on one that pushes"
    assert set(layout.pulled) == {"mjpeg-1", "h264-1"}
    assert len(layout.sensors) == 100


def test_the_load_is_played_by_commands_that_exist_to_devices_that_are_declared() -> None:
    plan = SoakPlan(seconds=60, seed=1, sensors=3, mjpeg=2, h264=1)
    commands = load_commands(plan, 1, 2, 3)
    assert [tuple(command[3:5]) for command in commands] == [("simulate", "sensors"), ("simulate", "cameras"),
                                                            ("simulate", "cameras")]  # fmt: skip
    assert all(tuple(command[3:5]) in COMMANDS for command in commands)
    assert set(load_sensors(plan)) == {"load-000", "load-001", "load-002"}
    assert set(load_cameras(plan, 2, 3)) == {"mjpeg-1", "mjpeg-2", "h264-1"}


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("python -m embereye_cli up fleets.yaml --json", "operator"),
        ("python -m embereye_cli hub --host 127.0.0.1", "hub"),
        ("python -m embereye_cli shard sensor", "sensor shard"),
        ("python -m embereye.camera.decode.process 39 34", "decoder"),
        (
            "python -c from multiprocessing.spawn import spawn_main",
            "python -c from multiprocessing.spawn import spawn_main",
        ),
    ],
)
def test_processes_are_known_by_their_commands_and_none_is_taken_for_another(command: str, role: str) -> None:
    assert role_of(command) == role


def used(memory: Callable[[float], float], descriptors: Callable[[float], int]) -> Samples:
    """Samples of a shard over two hours: its memory, with noise, and its descriptors, as functions of time."""
    dice = np.random.default_rng(6)
    times = np.arange(0.0, 7200.0, 10.0)
    return Samples({("sensor shard", 1): [(at, memory(at) + dice.normal(0, 0.3), descriptors(at), 9) for at in times]})


def is_leak(samples: Samples) -> bool:
    return samples.slopes()["memory_mb"]["sensor shard"].is_growth


TAKEN_OVER = 3600.0  # when a shard gets the devices of another one, in seconds


def test_memory_for_more_devices_than_ever_is_no_leak() -> None:
    def connections(at: float) -> int:
        return 100 if at < TAKEN_OVER else 165

    step = used(lambda at: 97 if at < TAKEN_OVER else 112 + min(3.0, (at - TAKEN_OVER) / 60), connections)
    assert not is_leak(step)
    assert is_leak(used(lambda at: 97 if at < TAKEN_OVER else 112, lambda _: 100)), "it got no more devices"
    # It loses the devices, and gets them back.
    again = used(lambda at: 112 if at < TAKEN_OVER else 117, lambda at: 100 if 1500 < at < TAKEN_OVER else 165)
    assert is_leak(again), "it had room for them before"


def test_a_leak_is_found_even_if_devices_are_taken_over_meanwhile() -> None:
    leak = used(lambda at: 97 + 15 * (at >= TAKEN_OVER) + 3 * at / 3600, lambda at: 100 + 65 * (at >= TAKEN_OVER))
    growth = leak.slopes()["memory_mb"]["sensor shard"]
    assert growth.low < 3 < growth.high
    assert growth.is_growth
    every = used(lambda at: 97 + 5 * (at // 1500), lambda at: 165 if at % 1500 < 300 else 100)
    assert is_leak(every), "each take-over leaves some memory behind"
    # Leaking descriptors are not a load: they are judged as one span.
    leaking = used(lambda at: 97 + at / 60, lambda at: int(100 * 1.2 ** (at // 900)))
    assert leaking.slopes()["descriptors"]["sensor shard"].is_growth


def test_growth_after_a_new_load_is_judged_once_the_process_has_adapted() -> None:
    rows: list[Row] = [(at, 50.0, 100 if at < TAKEN_OVER else 111, 9, 30.0) for at in np.arange(0.0, 7200.0, 10.0)]
    before, after = familiar(rows)
    assert (before[0][0], before[-1][0]) == (WARM_SECONDS, TAKEN_OVER - 10)
    assert (after[0][0], after[-1][0]) == (TAKEN_OVER + ADAPT_SECONDS, 7190)
    few_more: list[Row] = [(at, 50.0, 100 + number % 10, 9, 30.0) for number, (at, *_) in enumerate(rows)]
    assert len(familiar(few_more)) == 1


async def test_a_sensor_that_has_burnt_burns_again_only_after_its_zone_was_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reset_zones(address: str, token: str) -> list[str]:
        return ["fire-0000", "another"]

    monkeypatch.setattr(local_site, "reset_zones", reset_zones)
    site = LocalSite(tmp_path, Diary(tmp_path, lambda _: None), Layout(fires=2))
    for name in ("fire-0000", "fire-0001"):
        site.texts[name] = TextDevice(name, name, "127.0.0.1", 1)
        site.texts[name]._connected.set()
    await site.ignite()
    assert site.texts["fire-0000"].values != REST
    site.put_out()
    assert site.texts["fire-0000"].values == REST
    assert site.burnt == ["fire-0000"]
    await site.ignite()
    assert site.texts["fire-0001"].values != REST
    with pytest.raises(RuntimeError, match="none of their zones was reset"):
        await site.ignite()
    (tmp_path / "data" / "hub").mkdir(parents=True)
    (tmp_path / "data" / "hub" / "admin-token").write_text("secret")
    await site.reset()
    assert site.burnt == ["fire-0001"]
    zone, _ = await site.ignite()
    assert (zone, site.burnt) == ("fire-0000", ["fire-0001", "fire-0000"])


def test_a_soak_s_report_and_summary_name_the_failure(tmp_path: Path) -> None:
    soaked = Soaked(SoakPlan(seconds=3600, seed=5), seconds=3600.0)
    soaked.fires = [(10.0, 0.02), (20.0, 0.04)]
    soaked.outcomes = [FINE]
    # Warm, and grows by a megabyte in ten minutes.
    seconds = np.arange(0.0, WARM_SECONDS + 1200, 10.0)
    soaked.samples.rows["hub", 1] = [(at, 100 + at / 600, 20, 9, 30.0) for at in seconds]
    soaked.samples.rows["decoder", 2] = [(at, 100, 20, 9, 30.0) for at in np.arange(0.0, WARM_SECONDS, 10.0)]
    assert soaked.unjudged == ["decoder"]
    assert not soaked.ok
    line = soaked.summary()
    assert line.startswith("soak: FAIL hours=1.00 seed=5 faults=1 faults_failed=0 fires=2 lost=0 doubled=0")
    assert line.endswith("leaks=1 unjudged=1")
    write_soak_page(tmp_path / "soak.html", soaked)
    text = (tmp_path / "soak.html").read_text()
    assert line in text
    assert "<polyline" in text
    assert "make soak HOURS=1 ARGS='--seed 5'" in text
    soaked.samples.rows.clear()
    assert soaked.ok
    assert soaked.summary().startswith("soak: PASS")


def test_a_soak_is_read_as_it_was_written_and_its_page_has_it(tmp_path: Path) -> None:
    soaked = Soaked(SoakPlan(seconds=3600, seed=5), about=ABOUT, seconds=3600.0)
    soaked.fires = [(10.0, 0.02), (20.0, 0.04)]
    soaked.missed = ["fire-7"]
    soaked.outcomes = [FINE, replace(FINE, gap=1.0), replace(FINE, faults=("disk full",), problem="no alarm")]
    for pid in (1, 2):  # the second lived for a moment
        seconds = np.arange(0.0, WARM_SECONDS * 2.5 / pid, 10.0)
        soaked.samples.rows["hub", pid] = [(at, 100.0, 20, 9, 30.0 + (at > WARM_SECONDS + 600)) for at in seconds]
    write_result(tmp_path / "soak.json", soaked)
    write_samples(tmp_path / "samples.csv", soaked.samples)
    again = read_soaked(tmp_path)
    assert again == soaked
    write_soak_text(tmp_path, again)
    text = (tmp_path / "soak.md").read_text()
    assert "seed 7, commit" in text
    assert f"| alarms lost, doubled | 0, 0 | 1, 0 of {3 + 3 * FINE.fires} |" in text
    assert "| 30, 39, 40, 40 ms |" in text
    none = "+0.00 [+0.00, +0.00]"
    assert f"| hub | 100.0 | 100.0 | {none} | {none} | {none} | 30.0, then 31.0 |" in text
    assert f"| {FINE.faults[0]} | 2 | 1 s |" in text
    assert "**failed** 1 times: no alarm" in text
    assert ET.parse(tmp_path / PICTURE).getroot().tag.endswith("svg")


def test_python_processes_see_a_stepped_wall_clock_and_an_unchanged_monotonic_one(tmp_path: Path) -> None:
    step = tmp_path / "step"
    step.write_bytes(int(3600e9).to_bytes(8, sys.byteorder, signed=True))
    code = "import time; print(time.time(), time.time_ns(), time.monotonic())"
    environment = {**os.environ, "PYTHONPATH": str(CLOCK), "CLOCK_STEP_FILE": str(step)}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    seconds, nanoseconds, monotonic = map(float, out.stdout.split())
    assert seconds == pytest.approx(time.time() + 3600, abs=60)
    assert nanoseconds / 1e9 == pytest.approx(time.time() + 3600, abs=60)
    assert monotonic == pytest.approx(time.monotonic(), abs=60)


def test_grpcs_deadlines_hold_below_a_stepped_clock(tmp_path: Path) -> None:
    step = tmp_path / "step"
    step.write_bytes(int(-3600e9).to_bytes(8, sys.byteorder, signed=True))
    code = "import time; from grpc.aio._utils import _timeout_to_deadline as at; print(at(5) - time.time())"
    environment = {**os.environ, "PYTHONPATH": str(CLOCK), "CLOCK_STEP_FILE": str(step)}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert float(out.stdout) == pytest.approx(3605, abs=60)  # by the clock of the system, as gRPC's core reads it
