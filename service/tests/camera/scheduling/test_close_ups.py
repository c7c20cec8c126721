from embereye.camera.scheduling.close_ups import BURST, DETAILS, FRESH_NS, RATE, TERM_NS, CloseUpBudget
from embereye.units import SECOND

START = 1_700_000_000 * SECOND


def allowed(looks, since_ns, seconds, each=100):
    return sum(looks.allow(since_ns + n * SECOND // each) for n in range(int(seconds * each)))


def test_however_many_cameras_suspect_fire_a_shard_looks_closely_a_few_times_a_second():
    looks = CloseUpBudget()
    assert allowed(looks, START, 10.0) <= BURST + 10 * RATE
    assert allowed(looks, START + 10 * SECOND, 10.0) >= 0.95 * 10 * RATE


def test_a_clock_that_steps_back_neither_adds_looks_nor_ends_them():
    looks = CloseUpBudget()
    allowed(looks, START, 1.0)
    assert allowed(looks, START - 3600 * SECOND, 1.0) <= 2 * RATE
    assert allowed(looks, START - 3599 * SECOND, 5.0) > 0


def having(details, cameras, at):
    return {camera for camera in cameras if details.allow(camera, at)}


def test_a_few_cameras_at_a_time_have_details_and_all_of_them_in_turn():
    details, had = CloseUpBudget().details, set()
    cameras = [f"camera-{number}" for number in range(3 * DETAILS)]
    for step in range(60):
        now = having(details, cameras, START + step * SECOND)
        assert len(now) <= DETAILS
        had |= now
    assert had == set(cameras)


def test_a_camera_keeps_its_details_while_nobody_waits():
    details = CloseUpBudget().details
    assert all(details.allow("a", START + step * SECOND) for step in range(3 * TERM_NS // SECOND))


def test_what_a_camera_no_longer_asks_for_goes_to_the_next_one():
    details = CloseUpBudget().details
    cameras = [f"camera-{number}" for number in range(DETAILS)]
    assert having(details, cameras, START) == set(cameras)
    assert not details.allow("late", START + SECOND)
    assert details.allow("late", START + SECOND + FRESH_NS)


def test_a_clock_that_steps_back_takes_details_from_nobody_for_good():
    details = CloseUpBudget().details
    cameras = [f"camera-{number}" for number in range(DETAILS)]
    having(details, cameras, START)
    assert having(details, cameras, START - 3600 * SECOND) == set(cameras)
