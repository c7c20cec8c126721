import itertools
import math
from dataclasses import replace

import pytest

from embereye.camera.scheduling.pool_budget import PoolBudget, PoolLoad, Want

from .simulated_pool import Camera, SimulatedPool, merge, slices, time_got

COST = 0.0009  # seconds of a decoder per frame: two decoders are at 68 % with 100 cameras
NOTHING = [[], []]


def fleet(cameras=100, *, cost=COST, least=5.0):
    return [Camera(rate=15.0, cost=cost, target=15.0, least=least) for _ in range(cameras)]


def analysed(pool, begin, end):
    return sum(begin <= when < end for camera in pool.cameras for when in camera.analysed)


def possible(stalls, begin, end, *, cost=COST, offered=1500.0):
    """Return the frames that the decoders could have analysed in their time."""
    return min(offered * (end - begin), sum(time_got(each, begin, end) for each in stalls) / cost)


def rate_at(pool, second):
    return max(rate for when, rate in pool.rates if when <= second)


def rates_between(pool, begin, end):
    return [rate for when, rate in pool.rates if begin <= when < end]


def test_a_pool_that_keeps_up_is_left_alone():
    pool = SimulatedPool(fleet(), NOTHING)
    pool.run(10)
    assert set(rates_between(pool, 0, 10)) == {1500}
    assert analysed(pool, 1, 9) == pytest.approx(1500 * 8, rel=0.01)


def test_occasional_late_frames_neither_cut_rates_nor_delay_their_return():
    blips = [[(second + 0.3 * place, second + 0.3 * place + 0.045) for second in range(1, 20, 2)] for place in range(3)]
    pool = SimulatedPool(fleet(), blips[:2], blips[2])
    pool.budget.seconds = 5 * COST  # as after an overload: every camera at its minimum rate
    pool.run(20)
    assert pool.rates[0][1] < 1500
    assert set(rates_between(pool, 3, 20)) == {1500}


def neighbour(share, seed, begin=5.0, end=10.0, mean=0.006):
    return slices(share, begin, end, mean, seed)


@pytest.mark.parametrize(("share", "least"), [(0.25, 0.9), (0.5, 0.85)], ids=["half a core", "a whole core"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_a_busy_neighbour_the_pool_adapts_and_recovers_soon(share, least, seed):
    stalls = [merge(neighbour(share, seed + place), neighbour(share, seed + place, 20, 25)) for place in (0, 10)]
    pool = SimulatedPool(fleet(), stalls, neighbour(0.1, seed))
    pool.run(30)
    for begin in (5, 20):
        assert analysed(pool, begin, begin + 5) >= least * possible(stalls, begin, begin + 5)
        assert rates_between(pool, begin + 5 + 3, begin + 10)[0] == 1500


def test_a_tenth_of_stolen_cpu_time_costs_no_frames():
    stalls = [slices(0.1, 3, 20, 0.01, seed) for seed in (1, 2, 3)]
    pool = SimulatedPool(fleet(), stalls[:2], stalls[2])
    pool.run(20)
    assert set(rates_between(pool, 0, 20)) == {1500}
    assert analysed(pool, 0, 20) >= 0.97 * 1500 * 20


@pytest.mark.parametrize("length", [0.2, 0.6, 1.0])
def test_a_pause_of_the_whole_machine_is_forgotten_within_three_seconds(length):
    stalls = [(5.0, 5.0 + length), (15.0, 15.0 + length)]
    pool = SimulatedPool(fleet(), [stalls, stalls], stalls)
    pool.run(20)
    for end in (5 + length, 15 + length):
        assert rates_between(pool, end + 3, 20)[0] == 1500
    assert analysed(pool, 0, 20) >= 0.9 * (20 - 2 * length) * 1500


def test_overload_uses_all_time_for_fresh_frames_at_least_at_minimum_rates():
    cost = 2 / 150  # a tenth of the offered frames
    pool = SimulatedPool(fleet(cost=cost, least=1.0), NOTHING)
    pool.run(25)
    assert analysed(pool, 10, 25) >= 0.9 * possible(NOTHING, 10, 25, cost=cost)
    assert min(sum(10 <= when < 25 for when in camera.analysed) for camera in pool.cameras) >= 15
    assert sum(rates_between(pool, 5, 25)) / len(rates_between(pool, 5, 25)) < 200
    assert max(age for camera in pool.cameras for age in camera.ages) < 1


def test_a_tenfold_overload_leaves_every_camera_its_minimum_rate():
    """Frames of 1 to 29 ms on two decoders: 22 s of work per second."""
    cameras = [Camera(15.0, 0.001 + 0.028 * number / 99, 15.0, 1.0) for number in range(100)]
    pool = SimulatedPool(cameras, NOTHING)
    pool.run(25)
    assert min(len(camera.analysed) for camera in cameras) >= 23
    assert max(after - before for camera in cameras for before, after in itertools.pairwise(camera.analysed)) < 1.2
    assert len(cameras[0].analysed) > 5 * len(cameras[99].analysed)  # cheap frames are not shed for expensive ones


def test_a_suspect_is_not_slowed_down_under_overload():
    cameras = fleet(cost=0.0025)
    cameras[7].urgent = True
    pool = SimulatedPool(cameras, NOTHING)
    pool.run(20)
    assert len(cameras[7].analysed) >= 15 * 20 * 0.98
    assert max(len(camera.analysed) for camera in cameras[8:]) < 12 * 20


def test_an_expensive_camera_slows_down_only_itself():
    cameras = [*fleet(99, cost=0.001), Camera(rate=15.0, cost=0.08, target=15.0, least=1.0)]
    pool = SimulatedPool(cameras, NOTHING)
    pool.run(20)
    assert min(len(camera.analysed) for camera in cameras[:-1]) >= 0.85 * 15 * 20
    assert 1 <= len(cameras[-1].analysed) / 20 < 10


# Single decisions.

WANTS = [Want(target=15.0, least=5.0, cost=0.001)] * 100
FINE = PoolLoad(decoders_busy=0.7, loop_busy=0.6, backlog_age_seconds=0.0, served=1.0, late=0.003)


def load(**changed):
    return replace(FINE, **changed)


SHORT = [load(backlog_age_seconds=2.0, served=0.8)] * 2


def adapted(*loads, wants=WANTS, budget=None):
    budget = budget or PoolBudget()
    for number, each in enumerate(loads):
        budget.adapt(each, wants, 100 + number / 2)
    return budget


@pytest.mark.parametrize(
    "late",
    [
        {"backlog_age_seconds": 0.4, "served": 0.3},
        {"backlog_age_seconds": 3.0, "served": 0.96},
        {"decoders_busy": 1.0},
        {"backlog_age_seconds": 0.2, "served": 0.5},
        {"loop_busy": 0.9},
        {"loop_busy": 1.0, "late": 0.01},
    ],
    ids=["a pause", "all have their turn", "no time to spare", "a burst", "a busy event loop", "a loop that keeps up"],
)
def test_rates_are_not_cut_without_an_overload(late):
    assert adapted(load(**late), load(**late), load(**late)).seconds == math.inf


@pytest.mark.parametrize(
    "short",
    [
        {"backlog_age_seconds": 2.0, "served": 0.8},
        {"decoders_busy": 1.0, "served": 0.8},
        {"loop_busy": 0.99, "late": 0.1},
        {"loop_busy": 0.99, "late": math.inf},
        {"loop_busy": 0.99, "served": 0.8},
    ],
)
def test_an_overloaded_pool_or_event_loop_cuts_all_rates(short):
    budget = adapted(load(**short), load(**short))
    assert 5 < budget.rate(WANTS[0]) < 14


def test_a_single_busy_moment_cuts_no_rate():
    moment = load(loop_busy=1.0, late=0.1)
    assert not adapted(moment, FINE, moment, FINE).is_limited


def test_a_cut_has_time_to_work_before_the_next():
    short = load(backlog_age_seconds=9.0, served=0.5)
    budget = PoolBudget()
    rates = []
    for tick in range(5):
        budget.adapt(short, WANTS, 100 + tick / 4)
        rates.append(budget.rate(WANTS[0]))
    assert rates[2] == rates[3] > rates[4]


def test_spare_time_is_returned_at_once_or_in_growing_steps():
    short, idle = load(backlog_age_seconds=2.0, served=0.5), load(decoders_busy=0.3, loop_busy=0.3)
    budget = adapted(short, short)
    for at, expected in ((101.0, 7.5), (101.5, 11.25), (102.0, math.inf)):
        budget.adapt(idle, WANTS, at)
        assert budget.rate(WANTS[0]) == pytest.approx(expected, rel=0.03)
    budget = adapted(short, short)
    rates = []
    while budget.is_limited:
        budget.adapt(load(decoders_busy=0.88), WANTS, 101.5 + len(rates) / 2)
        rates.append(budget.rate(WANTS[0]))
    steps = [after / before for before, after in itertools.pairwise(rates[:-1])]
    assert steps == sorted(steps)
    assert len(rates) <= 8


def test_cameras_that_want_less_than_their_share_are_not_limited():
    wants = [Want(15.0, 5.0, 0.001)] * 50 + [Want(15.0, 1.0, 0.010)] * 10
    budget = adapted(*SHORT, wants=wants)
    assert budget.rate(wants[0]) >= 15
    assert budget.rate(wants[-1]) < 12


def test_a_camera_without_a_target_rate_is_not_part_of_the_budget():
    budget = adapted(*SHORT, wants=[Want(0.0, 1.0, 0.01)])
    assert not budget.is_limited


def test_cameras_with_unknown_costs_can_be_cut():
    wants = [Want(15.0, 5.0, 0.0)] * 10
    assert 5 <= adapted(*SHORT, wants=wants).rate(wants[0]) < 15


def test_no_rate_falls_below_the_minimum():
    budget = PoolBudget()
    for tick in range(20):
        budget.adapt(load(backlog_age_seconds=9.0, served=0.1), WANTS, 100 + tick)
    assert budget.rate(WANTS[0]) == 5


def test_a_budget_used_up_by_an_urgent_camera_recovers():
    burning, calm = Want(15.0, 0.0, 0.1, urgent=True), Want(15.0, 0.0, 0.01)  # no key frame came lately
    budget = adapted(*SHORT, wants=[burning, calm])
    assert budget.is_limited
    for tick in range(60):
        budget.adapt(load(decoders_busy=0.1, loop_busy=0.1), [replace(burning, urgent=False), calm], 102 + tick / 2)
    assert not budget.is_limited
