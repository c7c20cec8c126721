"""The scaling law, and the steps derived from it."""

import dataclasses
from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import Load
from embereye_operator.api.schema import Duration
from embereye_operator.api.shared import Autoscaling, ScaleDown
from embereye_operator.decide.scaling.law import Decision, Measured, Observed, Scaler, measure, required_shards, terms

START = 1_800_000_000 * SECOND
LIMITS = Autoscaling(max_shards=20)
QUIET = Measured(arrival_rate=0, cost=0.001, backlog=0, oldest_age=0, utilization=0)


def required(current: int = 2, limits: Autoscaling = LIMITS, lead: float = 0, **measured: Any) -> int:
    return required_shards(
        dataclasses.replace(QUIET, **measured),
        limits,
        current=current,
        deadline=5,
        lead=lead,
    )


@pytest.mark.parametrize(
    ("measured", "shards"),
    [
        ({}, 1),
        ({"arrival_rate": 700}, 1),  # 0.7 cores at a target of 0.7: exactly one shard
        ({"arrival_rate": 701}, 2),
        ({"arrival_rate": 3500}, 5),
        ({"arrival_rate": 700, "backlog": 3000}, 2),  # and 3 CPU seconds of backlog in 60 s
        ({"arrival_rate": 1_000_000}, 20),
    ],
)
def test_shards_handle_arrivals_and_work_off_the_backlog(measured: dict[str, Any], shards: int) -> None:
    assert required(**measured) == shards


def test_a_slow_start_of_new_shards_requires_more() -> None:
    assert required(arrival_rate=2000, lead=0) == 3
    assert required(arrival_rate=2000, lead=30) == 4


def test_a_shard_with_two_cores_counts_twice() -> None:
    measured = dataclasses.replace(QUIET, arrival_rate=3500)
    assert required_shards(measured, LIMITS, current=2, deadline=5, lead=0, capacity=2.0) == 3
    assert required_shards(measured, LIMITS, current=2, deadline=5, lead=0, capacity=0.5) == 10


def test_a_deep_queue_or_an_old_item_requires_one_more_despite_the_cost() -> None:
    assert required(current=3, backlog=15_001, cost=0) == 4
    assert required(current=3, oldest_age=2.6) == 4
    assert required(current=3, oldest_age=2.4) == 1


def test_limits_apply() -> None:
    assert required(limits=Autoscaling(min_shards=3)) == 3
    assert required(limits=Autoscaling(max_shards=2), arrival_rate=10_000) == 2


def test_loads_add_up_and_cost_is_weighted_by_rate() -> None:
    measured = measure(
        [
            Load(arrival_rate=100, cost_seconds=0.001, utilization=0.2, queue_depth=5, oldest_age_ns=10**9),
            Load(arrival_rate=300, cost_seconds=0.002, utilization=0.4, queue_depth=7, oldest_age_ns=2 * 10**9),
        ]
    )
    assert measured is not None
    assert (measured.arrival_rate, measured.backlog, measured.oldest_age) == (400, 12, 2)
    assert measured.cost == pytest.approx(0.00175)
    assert measured.utilization == pytest.approx(0.3)
    assert measure([]) is None


class Clocked:
    """A scaler with a test clock; every step applies the decision."""

    def __init__(self, shards: int = 2, limits: Autoscaling | None = None) -> None:
        self.limits = limits or Autoscaling(max_shards=20, scale_down=ScaleDown(stabilization=Duration(60 * SECOND)))
        self.scaler = Scaler()
        self.shards = shards
        self.now = START

    def step(self, rate: float | None, seconds: int = 2, missing: tuple[str, ...] = (), backlog: int = 0) -> Decision:
        self.now += seconds * SECOND
        measured = None if rate is None else dataclasses.replace(QUIET, arrival_rate=rate, backlog=backlog)
        observed = Observed(self.now, self.shards, measured, missing, lead=0)
        decision = self.scaler.decide(self.limits, observed, 5)
        self.shards = decision.shards
        return decision

    def run(self, rate: float, seconds: int) -> list[int]:
        return [self.step(rate).shards for _ in range(seconds // 2)]


def test_an_ordinary_step_up_waits_for_confirmation() -> None:
    clock = Clocked(shards=4)
    assert clock.run(5 * 700, 2) == [4]
    assert clock.step(4 * 700).shards == 4, "it was only a moment"
    assert clock.run(5 * 700, 6) == [4, 4, 5]


def test_a_stall_of_the_operator_confirms_nothing() -> None:
    clock = Clocked(shards=4)
    assert clock.run(5 * 700, 2) == [4]
    assert clock.step(5 * 700, seconds=60).shards == 4
    assert clock.run(5 * 700, 4) == [4, 5]


def test_a_burst_is_answered_at_once_and_not_reverted_for_a_while() -> None:
    clock = Clocked()
    clock.run(700, 120)
    clock.shards = 2
    decision = clock.step(6 * 700)
    assert (decision.shards, decision.reason.split(":")[0]) == (6, "burst")
    assert set(clock.run(700, 58)) == {6}


def test_a_deep_queue_is_a_burst() -> None:
    decision = Clocked().step(0, backlog=10_001)
    assert decision.shards == 3
    assert "more than queueDepth 5000" in decision.reason


def test_shards_are_removed_only_if_unneeded_for_the_window() -> None:
    clock = Clocked(shards=5)
    sizes = clock.run(5 * 700, 60) + clock.run(2 * 700, 60)
    assert set(sizes) == {5}
    assert clock.run(2 * 700, 10)[-1] == 2


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_a_load_around_a_boundary_does_not_flip_the_required_shards(shards: int) -> None:
    clock = Clocked(shards=shards)
    clock.run((shards - 0.5) * 700, 60)
    loads = [shards - 1 + offset for offset in (0.03, -0.03, 0.01, -0.08, 0.0) * 60]
    assert {clock.step(load * 700).required for load in loads} == {shards}
    assert clock.shards == shards
    decision = clock.step((shards - 1 - 0.05) * 700)
    assert decision.reason.endswith(f"; {shards} until it is 0.1 lower") == (shards > 1)
    assert clock.step((shards - 1.2) * 700).required == max(1, shards - 1)


def test_fewer_shards_stay_required_around_a_boundary_from_below() -> None:
    clock = Clocked(shards=3)
    clock.run(0.5 * 700, 100)
    assert clock.shards == 1
    loads = (0.97, 0.95, 0.99, 0.96) * 30
    assert {clock.step(load * 700).required for load in loads} == {1}


def test_flapping_load_does_not_flap_shards() -> None:
    clock = Clocked(shards=4)
    clock.run(4 * 700, 80)
    sizes = [size for _ in range(20) for size in (*clock.run(1 * 700, 20), *clock.run(4 * 700, 20))]
    assert set(sizes) == {4}


def test_a_new_operator_removes_no_shard_before_a_full_window() -> None:
    clock = Clocked(shards=8)
    assert set(clock.run(700, 58)) == {8}
    assert "too briefly" in clock.step(700).reason
    assert clock.run(700, 6)[-1] == 1


class TestUnknownLoad:
    def test_stays(self) -> None:
        clock = Clocked(shards=8)
        clock.run(700, 50)
        for _ in range(200):
            decision = clock.step(None)
            assert (decision.shards, decision.required, decision.known) == (8, 8, False)

    def test_of_one_shard_stays_too_and_names_it(self) -> None:
        clock = Clocked(shards=8)
        for _ in range(200):
            decision = clock.step(700, missing=("hall-sensors-3",))
            assert decision.shards == 8
            assert "hall-sensors-3" in decision.reason

    def test_grows_if_the_others_alone_need_more(self) -> None:
        clock = Clocked(shards=2)
        assert clock.step(4 * 700, missing=("hall-sensors-1",)).shards == 4

    def test_does_not_count_as_little_load_afterwards(self) -> None:
        clock = Clocked(shards=5)
        clock.run(5 * 700, 30)
        for _ in range(60):
            clock.step(None)
        assert set(clock.run(700, 58)) == {5}
        assert clock.run(700, 6)[-1] == 1


def test_bounds_apply_at_once_without_measurements() -> None:
    clock = Clocked(shards=9, limits=Autoscaling(min_shards=2, max_shards=4))
    assert clock.step(None).shards == 4
    clock.shards = 9
    assert clock.step(700).shards == 4
    clock.shards = 1
    assert clock.step(None).shards == 2


def test_a_clock_that_is_set_back_restarts_the_window() -> None:
    clock = Clocked(shards=5)
    clock.run(700, 50)
    clock.now -= 3_600 * SECOND
    assert set(clock.run(700, 58)) == {5}
    assert clock.run(700, 6)[-1] == 1


def test_the_bound_that_changes_the_result_is_reported() -> None:
    assert Clocked(shards=1).step(0).reason.endswith(" = 0; minShards makes it 1")
    assert Clocked(shards=1).step(25 * 700).reason.endswith(" = 25; maxShards makes it 20")
    assert Clocked(shards=20).step(0, backlog=100_001).reason.endswith("each of 20 shards; maxShards makes it 20")
    assert Clocked(shards=2).step(2 * 700).reason.endswith(" = 2")


def test_the_formula_is_shown() -> None:
    text = str(terms(dataclasses.replace(QUIET, arrival_rate=1400, backlog=6000), LIMITS, lead=15))
    assert text == ("ceil((2 to keep up + 0.1 for the backlog + 0.35 for the time a new shard takes) / 1 core) = 3")
