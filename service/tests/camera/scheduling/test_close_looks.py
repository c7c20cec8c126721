from embereye.camera.scheduling.close_looks import BURST, RATE, CloseLooks
from embereye.units import SECOND

START = 1_700_000_000 * SECOND


def allowed(looks, since_ns, seconds, each=100):
    return sum(looks.allow(since_ns + n * SECOND // each) for n in range(int(seconds * each)))


def test_however_many_cameras_suspect_fire_a_shard_looks_closely_a_few_times_a_second():
    looks = CloseLooks()
    assert allowed(looks, START, 10.0) <= BURST + 10 * RATE
    assert allowed(looks, START + 10 * SECOND, 10.0) >= 0.95 * 10 * RATE


def test_a_clock_that_steps_back_neither_adds_looks_nor_ends_them():
    looks = CloseLooks()
    allowed(looks, START, 1.0)
    assert allowed(looks, START - 3600 * SECOND, 1.0) <= 2 * RATE
    assert allowed(looks, START - 3599 * SECOND, 5.0) > 0
