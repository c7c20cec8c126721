import random

import pytest

from embereye.camera.scheduling.fair_queue import Admission, Demand, Line, Pace, least_rate
from embereye.units import SECOND


def serve(line, cameras, seconds, *, pause=60.0, urgent=()):
    """Turns of every camera of {name: cost} that always has a frame waiting, on one thread."""
    now, turns, latest = 0.0, dict.fromkeys(cameras, 0), dict.fromkeys(cameras, 0.0)
    longest = dict.fromkeys(cameras, 0.0)
    while now < seconds:
        for camera in cameras:
            line.enter(camera, now, pause=pause, urgent=camera in urgent)
        camera, _ = line.pick(now)
        longest[camera] = max(longest[camera], now - latest[camera])
        turns[camera], latest[camera] = turns[camera] + 1, now
        now += cameras[camera]
        line.charge(camera, cameras[camera])
    return turns, longest


def test_cameras_share_time_not_turns():
    turns, _ = serve(Line(), {"vga": 0.001, "4k": 0.020, "hd": 0.005}, 10)
    assert turns["vga"] * 0.001 == pytest.approx(10 / 3, rel=0.02)
    assert turns["4k"] * 0.020 == pytest.approx(10 / 3, rel=0.02)
    assert turns["hd"] * 0.005 == pytest.approx(10 / 3, rel=0.02)


def test_whoever_has_an_expensive_frame_now_and_then_pays_for_it_later():
    line, dice = Line(), random.Random(4)
    now, spent = 0.0, {"bursts": 0.0, "even": 0.0}
    for _ in range(20_000):
        for camera in spent:
            line.enter(camera, now, pause=60, urgent=False)
        camera, _ = line.pick(now)
        seconds = dice.choice((0.001, 0.001, 0.05)) if camera == "bursts" else 0.002
        line.charge(camera, seconds)
        spent[camera] += seconds
        now += seconds
    assert spent["bursts"] == pytest.approx(spent["even"], rel=0.02)


def test_in_a_short_line_whoever_came_first_is_next_whatever_it_costs():
    line, now = Line(), 1000.0
    for number, camera in enumerate(["a", "b", "suspect", *["expensive"] * 5]):
        line.enter(camera, 10.0 * number, pause=2000, urgent=False)
        line.pick(10.0 * number)
        line.charge(camera, 0.3 if camera == "expensive" else 0.001)
    for number, camera in enumerate(["a", "expensive", "b", "suspect"]):
        line.enter(camera, now + 0.01 * number, pause=2000, urgent=camera == "suspect")
    line.forget("a")
    assert [line.pick(now + 0.05)[0] for _ in range(3)] == ["suspect", "expensive", "b"]
    assert line.pick(now + 0.05) is None


def test_in_a_long_line_whoever_cost_less_is_next():
    line = Line()
    for camera in ("expensive", "cheap"):
        line.enter(camera, 0.0, pause=60, urgent=False)
    for _ in range(2):
        camera, _ = line.pick(0.1)
        line.charge(camera, 0.3 if camera == "expensive" else 0.001)
        line.enter(camera, 0.1, pause=60, urgent=False)
    assert [line.pick(0.3)[0] for _ in range(2)] == ["cheap", "expensive"]


def test_a_line_that_never_ends_takes_no_more_memory():
    line = Line()
    serve(line, {"vga": 0.001, "4k": 0.020, "hd": 0.005}, 30, pause=0.5)
    assert max(len(line._come), len(line._fair), len(line._due)) < 1000


def test_whoever_was_away_saves_nothing_up():
    line = Line()
    serve(line, {"busy": 0.01}, 100)
    turns, _ = serve(line, {"busy": 0.01, "back": 0.01}, 1)
    assert abs(turns["busy"] - turns["back"]) <= 2


def test_no_camera_is_left_alone_for_longer_than_its_pause_while_that_can_be_kept():
    cameras = {"4k": 0.05} | {f"vga-{number}": 0.001 for number in range(100)}
    turns, longest = serve(Line(), cameras, 10, pause=0.5)
    assert max(longest.values()) <= 0.5 + 0.06
    assert turns["4k"] >= 19


def test_suspects_go_before_others_but_nobody_starves_for_them():
    cameras = {f"suspect-{number}": 0.05 for number in range(5)} | {"calm": 0.01}
    turns, longest = serve(Line(), cameras, 20, pause=0.5, urgent=cameras.keys() - {"calm"})
    assert sum(turns.values()) - turns["calm"] > 9 * turns["calm"]
    assert longest["calm"] <= 0.6


def test_a_camera_that_left_is_not_picked():
    line = Line()
    assert line.enter("gone", 0.0, pause=1, urgent=False)
    assert not line.enter("gone", 0.0, pause=1, urgent=False)
    line.forget("gone")
    line.charge("gone", 1.0)
    assert len(line) == 0
    assert line.pick(0.0) is None
    assert line.enter("gone", 5.0, pause=1, urgent=False)
    assert line.pick(6.5) == ("gone", 1.5)


def test_a_line_keeps_nothing_of_turns_long_past():
    line = Line()
    serve(line, {f"camera-{number}": 0.001 for number in range(10)}, 30, pause=0.05)
    assert len(line._fair) + len(line._due) < 200


def arrivals(pace, rate, seconds, *, start=0.0, waited=0.0, urgent=False):
    """Frames taken of a camera that sends `rate` a second, each of which waits `waited` seconds."""
    taken = 0
    for number in range(int(rate * seconds)):
        now = int((1000 + start + number / rate) * SECOND)
        if not pace.take(now):
            taken += 1
            pace.learn(waited, now, urgent=urgent)
    return taken


def paced(target=15.0, least=5.0):
    pace = Pace()
    pace.configure(target, least)
    return pace


def test_a_pool_that_keeps_up_looks_at_every_frame():
    assert arrivals(paced(), 15, 60) == 900
    assert arrivals(paced(), 30, 60) == 900


@pytest.mark.parametrize("late", [0.02, 0.06])
def test_a_frame_that_comes_late_does_not_cost_the_one_that_comes_on_time(late):
    pace = paced()
    times = [1000 + number / 15 + (late if number % 5 == 3 else 0) for number in range(150)]
    assert not any(pace.take(int(time * SECOND)) for time in times)


def test_frames_are_taken_on_after_the_clock_was_set_back():
    pace = paced()
    arrivals(pace, 15, 5)
    assert arrivals(pace, 15, 5, start=-3600) == 75


def test_under_overload_the_rate_falls_to_the_least_and_no_further():
    pace = paced()
    arrivals(pace, 15, 20, waited=0.5)
    assert pace.rate == 5
    assert arrivals(pace, 15, 60, start=20, waited=0.5) == pytest.approx(300, abs=2)


@pytest.mark.parametrize("rate", [5.5, 7.0, 10.0, 13.0])
def test_a_rate_between_is_kept_on_average(rate):
    pace = paced()
    pace.rate = rate
    taken = sum(not pace.take(int((1000 + number / 15) * SECOND)) for number in range(15 * 60))
    assert taken == pytest.approx(60 * rate, abs=3)


def test_a_short_pause_of_the_machine_changes_nothing():
    pace = paced()
    arrivals(pace, 15, 5)
    arrivals(pace, 15, 2 / 15, start=5, waited=0.8)
    arrivals(pace, 15, 1, start=6)
    assert pace.rate == 15


def test_the_rate_comes_back_step_by_step_and_only_after_a_calm():
    pace = paced()
    arrivals(pace, 15, 10, waited=0.5)
    arrivals(pace, 15, 2.5, start=10)
    assert pace.rate == 5
    arrivals(pace, 15, 4, start=12.5)
    assert 6 <= pace.rate <= 10
    arrivals(pace, 15, 12, start=16.5)
    assert pace.rate == 15


def test_waits_between_calm_and_late_hold_the_rate():
    pace = paced()
    pace.rate = 9.0
    arrivals(pace, 15, 30, waited=0.06)
    assert pace.rate == 9


def test_a_suspect_is_never_slowed_down():
    pace = paced()
    arrivals(pace, 15, 10, waited=0.5, urgent=True)
    assert pace.rate == 15


@pytest.mark.parametrize("rate", [1.0, 2.5, 7.0, 14.0])
def test_exactly_those_frames_are_looked_at_that_come_when_one_is_wanted(rate):
    pace = paced(least=1.0)
    pace.rate = rate
    for number in range(300):
        now = (1000 * 30 + number) * SECOND // 30
        wanted = pace.wanted_ns
        assert (pace.take(now) == "") == (now >= wanted or not wanted), number


def test_a_fresh_frame_may_come_before_its_time_without_more_being_looked_at():
    pace = paced(least=1.0)
    pace.rate = 3.0
    early = SECOND // 16
    taken = sum(not pace.take(1000 * SECOND + number * SECOND // 100, early) for number in range(100 * 60))
    assert taken == pytest.approx(60 * 3, abs=3)


def test_while_the_pool_keeps_up_every_frame_is_wanted_but_of_a_flood_none_before_the_next_turn():
    pace = paced()
    pace.take(1000 * SECOND)
    assert pace.wanted_ns == 0
    assert pace.take(1000 * SECOND + 1000) == "above target rate"
    assert 1000 * SECOND < pace.wanted_ns < 1001 * SECOND
    assert not pace.take(pace.wanted_ns + 1)
    pace.take(pace.wanted_ns + 2)
    pace.configure(0.0, 0.0)
    assert pace.wanted_ns == 0


def test_a_pause_that_costs_some_frames_cuts_nobody():
    pace = paced()
    for number in range(6):
        pace.learn(number / 15, 1000 * SECOND + number * SECOND // 15, urgent=False, unseen=True)
    pace.learn(0.4, 1000 * SECOND + SECOND // 2, urgent=False)
    pace.learn(0.02, 1000 * SECOND + SECOND * 2 // 3, urgent=False)
    assert pace.rate == 15


def test_frames_that_take_each_others_place_unseen_halve_the_rate_until_it_is_the_least():
    pace = paced(least=1.0)
    for number in range(15 * 3):
        pace.learn(number / 15, 1000 * SECOND + number * SECOND // 15, urgent=False, unseen=True)
    assert pace.rate == 1


def test_new_limits_hold_at_once():
    pace = paced()
    pace.rate = 5.0
    pace.configure(15.0, 8.0)
    assert pace.rate == 8
    pace.configure(6.0, 2.0)
    assert pace.rate == 6
    pace.configure(0.0, 2.0)
    assert arrivals(pace, 100, 1, waited=1.0) == 100


def test_the_deadline_sets_a_least_rate_of_its_own():
    assert least_rate(5.0, 2 * SECOND) == 5
    assert least_rate(1.0, SECOND // 2) == 4


def demands(*shares):
    return [Demand(f"camera-{number}", 5.0, share / 5.0) for number, share in enumerate(shares)]


def decided(admission, wanted, seconds, threads=1, start=0):
    for second in range(seconds + 1):
        admission.decide(wanted, threads, (start + second) * SECOND + 1)
    return set(admission.refused)


def test_what_the_pool_cannot_serve_is_refused_with_a_reason_that_names_the_remedy():
    admission = Admission()
    assert decided(admission, demands(0.3, 0.3, 0.7, 0.2), 4) == set()
    assert decided(admission, demands(0.3, 0.3, 0.7, 0.2), 6) == {"camera-2"}
    assert admission.refused["camera-2"] == (
        "refused: at 5 frames/s of 140 ms this camera needs 70 % of a thread, and the others need 80 % of this shard's"
        " 100 %: add shards, or lower its fps.min or its resolution"
    )


def test_a_short_burst_of_cost_refuses_nobody():
    admission = Admission()
    for start in range(0, 60, 6):
        assert decided(admission, demands(0.8, 0.8), 3, start=start) == set()
        assert decided(admission, demands(0.4, 0.4), 1, start=start + 4) == set()


def test_a_camera_that_is_added_never_darkens_one_that_was_watched():
    admission = Admission()
    decided(admission, demands(0.4, 0.4), 6)
    assert decided(admission, demands(0.4, 0.4, 0.3), 6, start=10) == {"camera-2"}


def test_a_refused_camera_is_taken_again_once_there_is_clearly_room():
    admission = Admission()
    wanted = demands(0.4, 0.3, 0.4)
    decided(admission, wanted, 6)
    assert decided(admission, demands(0.4, 0.1, 0.38), 3, start=10) == {"camera-2"}  # would fit, with nothing to spare
    assert decided(admission, demands(0.2, 0.1, 0.4), 1, start=20) == set()
    assert decided(admission, demands(0.4), 1, start=30) == set()


def test_a_camera_of_unknown_cost_is_admitted():
    admission = Admission()
    assert decided(admission, demands(0.8, 0.0), 6) == set()


def test_ten_times_too_much_leaves_every_camera_its_least_rate():
    """100 cameras at 15/s with frames of 1 to 29 ms, on two threads: 22 s of work a second."""
    cameras = list(range(100))
    paces, cost = [paced(15.0, 1.0) for _ in cameras], [0.001 + 0.028 * camera / 99 for camera in cameras]
    line, waiting, working = Line(), set(), {}
    threads, turns, latest, longest = [0.0, 0.0], [0] * 100, [1000.0] * 100, [0.0] * 100
    steps = 60 * 200  # 5 ms each
    due = [1000.0 + camera / 1500 for camera in cameras]
    for step in range(steps):
        now = 1000.0 + step * 0.005
        for camera in cameras:
            if working.get(camera, 0.0) <= now and due[camera] <= now:
                due[camera] += 1 / 15
                if not paces[camera].take(int(now * SECOND)):
                    waiting.add(camera)
                    line.enter(camera, now, pause=1.0, urgent=False)
        for thread in (0, 1):
            while threads[thread] <= now and (picked := line.pick(now)):
                camera, waited = picked
                paces[camera].learn(waited, int(now * SECOND), urgent=False)
                line.charge(camera, cost[camera])
                threads[thread] = max(threads[thread], now - 0.005) + cost[camera]
                working[camera] = threads[thread]
                turns[camera] += 1
                longest[camera] = max(longest[camera], now - latest[camera])
                latest[camera] = now
    assert min(turns) >= 60
    assert max(longest) < 1.1
    assert turns[0] > 5 * turns[99]  # cheap frames are not shed for expensive ones
