import pytest
from harness.settings import camera_settings

from embereye.camera.device.arrival_quality import ArrivalQuality
from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

from ..conftest import noisy_jpeg

STEP = SECOND // 10


def received(damages=(), stamps=()):
    """Return a quality and the arrival time of its last frame; one arrives every 0.1 s."""
    quality, now = ArrivalQuality(), 1_000 * SECOND
    for damage in damages:
        now += STEP
        quality.record_frame(damage, now)
    for stamp in stamps:
        now += STEP
        quality.record_frame(0.0, now)
        quality.record_stamp(stamp, now)
    return quality, now


@pytest.mark.parametrize(
    ("damages", "broken"),
    [
        ([0.0] * 50, False),
        ([1.0] * 9, False),  # too few to judge
        ([1.0] * 60, True),
        ([1.0, 0.0] * 30, False),
        ([1.0, 1.0, 0.0] * 20, True),
        ([0.05] * 100, False),
        ([0.7] * 60, True),
    ],
)
def test_a_camera_is_at_fault_if_most_of_its_frames_are_unusable(damages, broken):
    quality, now = received(damages)
    assert quality.fault(now).startswith("broken frames") == broken


def test_broken_frames_are_forgotten_once_good_ones_arrive():
    quality, now = received([1.0] * 60)
    for _ in range(101):
        now += STEP
        quality.record_frame(0.0, now)
    assert quality.fault(now) == ""


def test_a_frame_that_could_not_be_decoded_counts_once():
    quality, now = received()
    for _ in range(20):
        now += STEP
        quality.record_frame(0.2, now)
        quality.spoil_latest()
    assert quality.fault(now) == ("broken frames: 100% of the frames of 10 s cannot be decoded or are missing")


def ticking(count, start=0):
    return [start + number * STEP for number in range(count)]


@pytest.mark.parametrize(
    ("stamps", "fault"),
    [
        (ticking(50, start=77), ""),  # hours off, but running
        (ticking(20) + ticking(20, start=-3600 * SECOND), ""),  # set once
        ([5] * 40, "the sender's clock stopped: 40 frames with the same time stamp"),
        ([*ticking(9), 1, *ticking(9, 2), 1, *ticking(9, 2), 1], "the sender's clock jumps: 3 times in 10 s"),
        ([n * 5 * SECOND for n in range(9)], "the sender's clock jumps: 3 times in 10 s, last by +5.0 s"),
    ],
)
def test_a_clock_that_stops_or_keeps_jumping_is_a_fault(stamps, fault):
    quality, now = received(stamps=stamps)
    assert quality.fault(now).startswith(fault)
    assert bool(fault) == bool(quality.fault(now))


def test_frames_delayed_by_the_network_are_no_jump():
    quality, now = received(stamps=ticking(10))
    for burst in range(4):
        now += 2 * SECOND
        for number in range(20):
            quality.record_stamp((10 + burst * 20 + number) * STEP, now)
    assert quality.fault(now) == ""


def test_a_clock_that_runs_again_is_no_fault_after_a_while():
    quality, now = received(stamps=[0, 9 * SECOND, 0, 9 * SECOND])
    assert quality.fault(now)
    for number in range(101):
        now += STEP
        quality.record_stamp(9 * SECOND + number * STEP, now)
    assert quality.fault(now) == ""


def test_frames_that_wait_ever_longer_are_late_by_their_wait():
    stamps = [n * STEP for n in range(20)] + [2 * SECOND + n * STEP // 2 for n in range(60)]
    quality, _ = received(stamps=stamps)
    assert quality.late_ns == pytest.approx(3 * SECOND, rel=0.1)


@pytest.mark.parametrize(
    "stamps",
    [
        [n * STEP for n in range(50)],
        [-30 * SECOND + n * STEP for n in range(50)],  # a wrong clock
        [n * STEP * 1.005 for n in range(1_000)],  # … that runs slightly fast
        [n * STEP * 0.995 for n in range(1_000)],
        [*(n * STEP for n in range(50)), *(n * STEP - 40 * SECOND for n in range(50))],  # … and was set
    ],
)
def test_the_clock_of_a_sender_does_not_make_its_frames_late(stamps):
    quality, _ = received(stamps=map(int, stamps))
    assert quality.late_ns < SECOND // 2


@pytest.mark.parametrize(
    ("stamp", "fault"),
    [
        (lambda number, now: now - number * STEP, "the sender's clock stopped"),
        (lambda number, now: now - number * STEP // 2, "its pictures arrive 2.2 s late"),
    ],
)
def test_a_source_without_time_stamps_is_not_judged_by_the_previous_source(stamp, fault):
    settings, now, picture = camera_settings(deadline="2s"), [1_000 * SECOND], noisy_jpeg()
    camera = CameraDevice(
        Device(id="yard", source="rtsp://camera/"),
        settings,
        ShardLinks(submit=lambda camera: None, report=lambda camera, seen: None, clock=lambda: now[0]),
    )
    for number in range(45):
        camera.offer_frame(picture, stamp(number, now[0]))
        now[0] += STEP
    assert camera.status.blindness(now[0]).startswith(fault)
    camera.configure(Device(id="yard", source="http://camera/"), settings)
    camera.offer_frame(picture)
    assert camera.status.blindness(now[0]) == ""
