from embereye.camera.scheduling.close_ups import BURST, DETAILS, FRESH_NS, RATE, TERM_NS, CloseUpBudget
from embereye.units import SECOND

START = 1_700_000_000 * SECOND


def allowed(budget, since_ns, seconds, each=100):
    return sum(budget.allow(since_ns + n * SECOND // each) for n in range(int(seconds * each)))


def test_close_ups_per_second_are_limited_for_all_cameras_together():
    budget = CloseUpBudget()
    assert allowed(budget, START, 10.0) <= BURST + 10 * RATE
    assert allowed(budget, START + 10 * SECOND, 10.0) >= 0.95 * 10 * RATE


def test_a_clock_that_steps_back_neither_adds_close_ups_nor_stops_them():
    budget = CloseUpBudget()
    allowed(budget, START, 1.0)
    assert allowed(budget, START - 3600 * SECOND, 1.0) <= 2 * RATE
    assert allowed(budget, START - 3599 * SECOND, 5.0) > 0


def having(details, cameras, at):
    return {camera for camera in cameras if details.allow(camera, at)}


def test_few_cameras_have_details_at_a_time_and_they_take_turns():
    details, had = CloseUpBudget().details, set()
    cameras = [f"camera-{number}" for number in range(3 * DETAILS)]
    for step in range(60):
        now = having(details, cameras, START + step * SECOND)
        assert len(now) <= DETAILS
        had |= now
    assert had == set(cameras)


def test_a_camera_keeps_its_details_while_no_other_waits():
    details = CloseUpBudget().details
    assert all(details.allow("a", START + step * SECOND) for step in range(3 * TERM_NS // SECOND))


def test_unused_details_go_to_the_next_camera():
    details = CloseUpBudget().details
    cameras = [f"camera-{number}" for number in range(DETAILS)]
    assert having(details, cameras, START) == set(cameras)
    assert not details.allow("late", START + SECOND)
    assert details.allow("late", START + SECOND + FRESH_NS)


def test_a_clock_that_steps_back_denies_details_only_briefly():
    details = CloseUpBudget().details
    cameras = [f"camera-{number}" for number in range(DETAILS)]
    having(details, cameras, START)
    assert having(details, cameras, START - 3600 * SECOND) == set(cameras)
