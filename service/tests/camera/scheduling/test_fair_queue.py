import random

import pytest

from embereye.camera.scheduling.fair_queue import FairQueue


def serve(queue, cameras, seconds, *, pause=60.0, urgent=()):
    """Return the turns of every camera of {name: cost} that always has a frame waiting, on one thread."""
    now, turns, latest = 0.0, dict.fromkeys(cameras, 0), dict.fromkeys(cameras, 0.0)
    longest = dict.fromkeys(cameras, 0.0)
    while now < seconds:
        for camera in cameras:
            queue.enter(camera, now, pause=pause, urgent=camera in urgent)
        camera, _ = queue.pick(now)
        longest[camera] = max(longest[camera], now - latest[camera])
        turns[camera], latest[camera] = turns[camera] + 1, now
        now += cameras[camera]
        queue.charge(camera, cameras[camera])
    return turns, longest


def test_cameras_share_time_not_turns():
    turns, _ = serve(FairQueue(), {"vga": 0.001, "4k": 0.020, "hd": 0.005}, 10)
    assert turns["vga"] * 0.001 == pytest.approx(10 / 3, rel=0.02)
    assert turns["4k"] * 0.020 == pytest.approx(10 / 3, rel=0.02)
    assert turns["hd"] * 0.005 == pytest.approx(10 / 3, rel=0.02)


def test_a_camera_pays_later_for_an_occasional_expensive_frame():
    queue, dice = FairQueue(), random.Random(4)
    now, spent = 0.0, {"bursts": 0.0, "even": 0.0}
    for _ in range(20_000):
        for camera in spent:
            queue.enter(camera, now, pause=60, urgent=False)
        camera, _ = queue.pick(now)
        seconds = dice.choice((0.001, 0.001, 0.05)) if camera == "bursts" else 0.002
        queue.charge(camera, seconds)
        spent[camera] += seconds
        now += seconds
    assert spent["bursts"] == pytest.approx(spent["even"], rel=0.02)


def test_a_turn_during_a_suspension_of_the_machine_is_charged_only_briefly():
    queue = FairQueue()
    cameras = dict.fromkeys("abcdefghij", 0.02)
    serve(queue, cameras, 10)
    queue.charge("a", 60.0)
    turns, _ = serve(queue, cameras, 30)
    assert turns["a"] >= 0.6 * turns["b"]


def test_a_short_queue_is_first_come_first_served():
    queue, now = FairQueue(), 1000.0
    for number, camera in enumerate(["a", "b", "suspect", *["expensive"] * 5]):
        queue.enter(camera, 10.0 * number, pause=2000, urgent=False)
        queue.pick(10.0 * number)
        queue.charge(camera, 0.3 if camera == "expensive" else 0.001)
    for number, camera in enumerate(["a", "expensive", "b", "suspect"]):
        queue.enter(camera, now + 0.01 * number, pause=2000, urgent=camera == "suspect")
    queue.forget("a")
    assert [queue.pick(now + 0.05)[0] for _ in range(3)] == ["suspect", "expensive", "b"]
    assert queue.pick(now + 0.05) is None


def test_a_long_queue_serves_the_cheaper_camera_first():
    queue = FairQueue()
    for camera in ("expensive", "cheap"):
        queue.enter(camera, 0.0, pause=60, urgent=False)
    for _ in range(2):
        camera, _ = queue.pick(0.1)
        queue.charge(camera, 0.3 if camera == "expensive" else 0.001)
        queue.enter(camera, 0.1, pause=60, urgent=False)
    assert [queue.pick(0.3)[0] for _ in range(2)] == ["cheap", "expensive"]


def test_a_queue_that_is_never_empty_does_not_grow():
    queue = FairQueue()
    serve(queue, {"vga": 0.001, "4k": 0.020, "hd": 0.005}, 30, pause=0.5)
    assert max(len(queue._arrived), len(queue._fair), len(queue._due)) < 1000


def test_a_camera_that_was_away_saves_up_no_time():
    queue = FairQueue()
    serve(queue, {"busy": 0.01}, 100)
    turns, _ = serve(queue, {"busy": 0.01, "back": 0.01}, 1)
    assert abs(turns["busy"] - turns["back"]) <= 2


def test_no_camera_waits_longer_than_its_pause_if_possible():
    cameras = {"4k": 0.05} | {f"vga-{number}": 0.001 for number in range(100)}
    turns, longest = serve(FairQueue(), cameras, 10, pause=0.5)
    assert max(longest.values()) <= 0.5 + 0.06
    assert turns["4k"] >= 19


def test_suspects_go_first_but_no_camera_starves():
    cameras = {f"suspect-{number}": 0.05 for number in range(5)} | {"calm": 0.01}
    turns, longest = serve(FairQueue(), cameras, 20, pause=0.5, urgent=cameras.keys() - {"calm"})
    assert sum(turns.values()) - turns["calm"] > 9 * turns["calm"]
    assert longest["calm"] <= 0.6


def test_a_camera_that_left_is_not_picked():
    queue = FairQueue()
    assert queue.enter("gone", 0.0, pause=1, urgent=False)
    assert not queue.enter("gone", 0.0, pause=1, urgent=False)
    queue.forget("gone")
    queue.charge("gone", 1.0)
    assert len(queue) == 0
    assert queue.pick(0.0) is None
    assert queue.enter("gone", 5.0, pause=1, urgent=False)
    assert queue.pick(6.5) == ("gone", 1.5)


def test_a_queue_drops_outdated_turns():
    queue = FairQueue()
    serve(queue, {f"camera-{number}": 0.001 for number in range(10)}, 30, pause=0.05)
    assert len(queue._fair) + len(queue._due) < 200


def test_a_queue_of_overdue_cameras_does_not_grow():
    queue = FairQueue()
    serve(queue, {f"camera-{number}": 0.02 for number in range(10)}, 100, pause=0.05)
    assert max(len(queue._arrived), len(queue._fair), len(queue._due)) < 100


def test_a_queue_that_is_never_empty_forgets_removed_cameras():
    queue = FairQueue()
    queue.enter("stays", 0.0, pause=10_000, urgent=False)
    for number in range(1000):
        queue.enter(f"camera-{number}", float(number), pause=10_000, urgent=True)
        queue.forget(f"camera-{number}")
    assert max(len(queue._arrived), len(queue._fair), len(queue._due)) < 100
    assert queue.pick(1000.0) == ("stays", 1000.0)
