"""Who owns what."""

from collections import Counter

import pytest

from embereye_operator.placement import place

DEVICES = [f"device-{number}" for number in range(2000)]


def shards(count: int) -> list[str]:
    return [f"hall-sensors-{index}" for index in range(count)]


def test_every_device_has_one_owner_among_the_shards() -> None:
    placed = place(DEVICES, shards(7), {})
    assert list(placed) == DEVICES
    assert set(placed.values()) == set(shards(7))


def test_placement_depends_on_names_alone() -> None:
    assert place(DEVICES, shards(5), {}) == place(DEVICES, list(reversed(shards(5))), place(DEVICES, shards(2), {}))


def test_without_shards_nothing_is_placed() -> None:
    assert place(DEVICES, [], {}) == {}


@pytest.mark.parametrize(("before", "after"), [(8, 9), (9, 8), (1, 2)])
def test_only_devices_of_the_shard_that_comes_or_goes_move(before: int, after: int) -> None:
    old, new = place(DEVICES, shards(before), {}), place(DEVICES, shards(after), {})
    changed = set(shards(max(before, after))) - set(shards(min(before, after)))
    for device in DEVICES:
        if old[device] != new[device]:
            assert old[device] in changed or new[device] in changed


def test_shards_get_about_the_same() -> None:
    counts = Counter(place(DEVICES, shards(8), {}).values())
    assert max(counts.values()) < 1.25 * len(DEVICES) / 8
