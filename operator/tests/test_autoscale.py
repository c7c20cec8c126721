"""The scaling law."""

import dataclasses

import pytest

from embereye.v1.shard_pb2 import Load
from embereye_operator.autoscale import Measured, decide, measure, required_shards
from embereye_operator.model import Autoscaling

LIMITS = Autoscaling(max_shards=20)
QUIET = Measured(arrival_rate=0, cost=0.001, backlog=0, oldest_age=0, utilization=0)


def required(current: int = 2, limits: Autoscaling = LIMITS, lead: float = 0, **measured: float) -> int:
    return required_shards(
        dataclasses.replace(QUIET, **measured),  # type: ignore[arg-type]
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
def test_shards_keep_up_and_work_the_backlog_off(measured: dict[str, float], shards: int) -> None:
    assert required(**measured) == shards


def test_a_slow_start_of_new_shards_asks_for_more() -> None:
    assert required(arrival_rate=2000, lead=0) == 3
    assert required(arrival_rate=2000, lead=30) == 4


def test_a_deep_queue_or_an_old_item_asks_for_one_more_whatever_the_cost_says() -> None:
    assert required(current=3, backlog=15_001, cost=0) == 4
    assert required(current=3, oldest_age=2.6) == 4
    assert required(current=3, oldest_age=2.4) == 1


def test_limits_hold() -> None:
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


def test_unknown_load_holds() -> None:
    decision = decide(LIMITS, 4, {"a": Load()}, expected=["a", "b"], deadline=5)
    assert (decision.shards, decision.required) == (4, 4)
    assert "b" in decision.reason
    assert measure([]) is None
