from embereye.camera.clips.ring import SPACING_NS, Budget, ClipFrame, Ring
from embereye.units import SECOND

STEP = SECOND // 15


def fill(ring, seconds, *, start=0.0, size=1000, suspected=False, before=5 * SECOND):
    for number in range(int(seconds * 15)):
        frame = ClipFrame(int(start * SECOND) + number * STEP, bytes(size), 64, 48)
        ring.add(frame, before, suspected=suspected)


def span(ring):
    frames = ring.frames()
    return (frames[-1].time_ns - frames[0].time_ns) / SECOND


def test_a_quiet_camera_stores_a_few_frames_per_second_and_a_suspect_all():
    ring = Ring(Budget())
    fill(ring, 10)
    assert 15 <= len(ring.frames()) <= 21
    assert 4.5 <= span(ring) <= 5
    fill(ring, 5.2, start=10, suspected=True)
    assert len(ring.frames()) >= 74
    assert span(ring) <= 5


def test_a_small_share_first_thins_frames_and_then_shortens_the_time():
    budget = Budget(total=40_000)
    rings = [Ring(budget) for _ in range(4)]
    for ring in rings:
        fill(ring, 20)
    assert budget.used <= budget.total
    assert all(4 <= span(ring) <= 5 for ring in rings)
    assert all(len(ring.frames()) <= 10 for ring in rings)


def test_no_camera_uses_anothers_share_and_only_suspects_borrow():
    budget = Budget(total=100_000)
    quiet, greedy = Ring(budget), Ring(budget)
    fill(greedy, 20, size=20_000)
    assert budget.used <= 50_000
    fill(greedy, 5, start=20, size=5_000, suspected=True)
    assert 50_000 < budget.used <= 100_000
    fill(quiet, 10, size=2_000)
    fill(greedy, 1, start=26, size=5_000, suspected=True)
    assert budget.used <= 100_000
    assert span(quiet) >= 4


def test_a_closed_ring_returns_its_bytes():
    budget = Budget()
    ring = Ring(budget)
    fill(ring, 3)
    ring.close()
    assert (budget.used, budget.rings) == (0, 0)


def test_a_clock_set_back_does_not_stop_the_ring():
    ring = Ring(Budget())
    fill(ring, 6, start=1000)
    fill(ring, 2, start=500)
    newest = ring.frames()[-1].time_ns
    assert newest >= 501.5 * SECOND
    assert SPACING_NS < SECOND


def test_pictures_stamped_by_a_clock_that_was_ahead_are_dropped_once_it_is_set():
    ring = Ring(Budget())
    fill(ring, 6, start=1030)
    fill(ring, 2, start=1000)
    times = [frame.time_ns for frame in ring.frames()]
    assert times == sorted(times)
    assert times[-1] >= 1001.5 * SECOND
