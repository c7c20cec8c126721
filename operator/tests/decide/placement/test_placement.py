"""The owners of devices."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye_operator.decide.placement.placement import LIMIT, place, shard_loads, spread

DEVICES = [f"device-{number}" for number in range(2000)]


def shards(count: int) -> list[str]:
    return [f"hall-sensors-{index}" for index in range(count)]


def moved(before: dict[str, str], after: dict[str, str]) -> float:
    return sum(before[device] != after[device] for device in before) / len(before)


def test_every_device_has_one_owner_among_the_shards() -> None:
    placed = place(DEVICES, shards(7), {})
    assert list(placed) == DEVICES
    assert set(placed.values()) == set(shards(7))


def test_placement_does_not_depend_on_the_order_of_its_arguments() -> None:
    before = place(DEVICES, shards(5), {})
    assert before == place(list(reversed(DEVICES)), list(reversed(shards(5))), {})
    backwards = dict(reversed(before.items()))
    assert place(DEVICES, shards(6), before) == place(list(reversed(DEVICES)), shards(6), backwards)


def test_without_shards_nothing_is_placed() -> None:
    assert place(DEVICES, [], {}) == {}


def test_an_owner_retains_its_devices() -> None:
    before = place(DEVICES, shards(5), {})
    assert place(DEVICES, shards(5), before) == before
    more = place([*DEVICES, "new"], shards(5), before)
    assert {device: more[device] for device in DEVICES} == before


def test_a_ninth_shard_gets_its_share_and_no_more() -> None:
    before = place(DEVICES, shards(8), {})
    after = place(DEVICES, shards(9), before)
    assert moved(before, after) <= 0.12
    assert all(after[device] in {before[device], "hall-sensors-8"} for device in DEVICES)
    assert spread(shard_loads(after, shards(9), {})) <= LIMIT


def test_only_the_devices_of_a_removed_shard_move() -> None:
    before = place(DEVICES, shards(9), {})
    after = place(DEVICES, shards(8), before)
    assert all(after[device] == before[device] for device in DEVICES if before[device] in shards(8))
    assert spread(shard_loads(after, shards(8), {})) <= LIMIT


def test_measured_costs_are_balanced() -> None:
    weights = {device: 10.0 if number < 200 else 0.1 for number, device in enumerate(DEVICES)}
    before = place(DEVICES, shards(4), {})
    after = place(DEVICES, shards(4), before, weights=weights)
    assert spread(shard_loads(after, shards(4), weights)) <= LIMIT
    assert moved(before, after) < 0.05
    assert place(DEVICES, shards(4), before, weights=weights, rebalance=False) == before


def test_a_device_heavier_than_all_others_stays() -> None:
    weights = {"device-0": 1000.0}
    before = place(DEVICES[:10], shards(3), {}, weights=weights)
    assert place(DEVICES[:10], shards(3), before, weights=weights) == before


def test_a_lost_shard_blinds_no_zone() -> None:
    zones = {device: f"zone-{number // 4}" for number, device in enumerate(DEVICES)}
    placed = place(DEVICES, shards(4), {}, zones=zones)
    together = Counter((zones[device], shard) for device, shard in placed.items())
    assert max(together.values()) <= 2, "four devices of a zone on four shards"


@given(
    count=st.integers(1, 120),
    start=st.integers(1, 12),
    steps=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_any_sequence_of_scalings_ends_complete_and_stable(count: int, start: int, steps: list[int], seed: int) -> None:
    devices = DEVICES[:count]
    generator = random.Random(seed)
    weights = {device: generator.lognormvariate(0, 1) for device in devices}
    placed = place(devices, shards(start), {}, weights=weights)
    for step in steps:
        placed = place(devices, shards(step), placed, weights=weights)
        assert set(placed) == set(devices)
        assert set(placed.values()) <= set(shards(step))
        loads = shard_loads(placed, shards(step), weights)
        mean = sum(loads.values()) / step
        assert max(loads.values()) <= max(LIMIT * mean, mean + max(weights.values()))
        for _ in range(20):
            again = place(devices, shards(step), placed, weights=weights)
            if again == placed:
                break
            placed = again
        assert place(devices, shards(step), placed, weights=weights) == placed, "it comes to rest"


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_devices_on_many_shards_stay(count: int) -> None:
    placed = place(DEVICES[:count], shards(8), {})
    assert len(set(placed.values())) == count
    assert place(DEVICES[:count], shards(8), placed) == placed
