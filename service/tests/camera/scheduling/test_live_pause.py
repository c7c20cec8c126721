import pytest

from embereye.camera.scheduling.live_pause import LONGEST_SECONDS, RELAPSE_SECONDS, SHORTEST_SECONDS, LivePause


def length(pause, began):
    """Return how long `pause` lasts after an overload at `began`, in seconds, and when it ended."""
    pause.follow(overloaded=True, now=began)
    now = began
    while pause.is_on:
        now += 0.5
        pause.follow(overloaded=False, now=now)
    return now - began, now


def test_without_an_overload_nothing_pauses():
    pause = LivePause()
    pause.follow(overloaded=False, now=1.0)
    assert not pause.is_on


def test_a_pause_begins_at_once_and_ends_when_the_shard_has_kept_up_for_a_while():
    assert length(LivePause(), 100.0)[0] == SHORTEST_SECONDS


def test_a_shard_at_its_limit_does_not_change_every_few_seconds():
    pause, states = LivePause(), []
    for half_second in range(240):
        pause.follow(overloaded=half_second // 6 % 2 == 0, now=100 + half_second / 2)
        states.append(pause.is_on)
    assert all(states)


@pytest.mark.parametrize(("between", "longer"), [(RELAPSE_SECONDS / 2, 2), (RELAPSE_SECONDS * 2, 1)])
def test_an_overload_that_returns_soon_doubles_the_pause(between, longer):
    pause = LivePause()
    first, ended = length(pause, 100.0)
    assert length(pause, ended + between)[0] == longer * first


def test_no_pause_is_longer_than_the_longest():
    pause, ended = LivePause(), 100.0
    for _ in range(8):
        lasted, ended = length(pause, ended + 1)
    assert lasted == LONGEST_SECONDS
