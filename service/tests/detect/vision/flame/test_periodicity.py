import numpy as np
import pytest

from embereye.detect.vision.flame.periodicity import DIP_FAST, EVERY_NS, Periodicity, best_return
from embereye.detect.vision.flame.recent import Film, Recent
from embereye.detect.vision.thresholds import FlameThresholds

RNG = np.random.default_rng(5)
RATE = 15.0
BOX = (0, 0, 32, 32)


def value(draw, seconds=4.0, box=BOX, *, pauses=False):
    """Return how well `draw` repeats; `pauses`: the last three quarters of every three seconds are missing."""
    recent = Recent()
    memory = Periodicity(FlameThresholds(), recent)
    before, time_ns = None, 0
    for number in range(int(seconds * RATE)):
        if pauses and number / RATE % 3 >= 2.25:
            if before is not None:
                recent.note_gap()
            before = None
            continue
        time_ns = int(number / RATE * 1e9)
        picture = draw(number / RATE)
        recent.see(picture, (slice(0, 32), slice(0, 32)), time_ns)
        if before is not None:
            recent.swing(np.uint8(255) * (np.abs(picture.astype(int) - before) > 20), time_ns)
        before = picture
    return memory.of(box, time_ns)


def wheel(period):
    """Return a function that draws a bright spoke turning once in `period` seconds."""
    y, x = np.mgrid[-16:16, -16:16]
    angle = np.arctan2(y, x)

    def draw(seconds):
        turned = np.angle(np.exp(1j * (angle - 2 * np.pi * seconds / period)))
        return np.where(np.abs(turned) < 0.4, 230, 60).astype(np.uint8)

    return draw


@pytest.mark.parametrize("period", [0.5, 0.8, 1.2, 2.0])
def test_turning_and_flashing_things_repeat_themselves(period):
    assert value(wheel(period)) > 0.6


def test_noise_and_a_still_picture_do_not_repeat_themselves():
    assert value(lambda _: RNG.integers(0, 255, (32, 32), dtype=np.uint8)) < 0.4
    assert value(lambda _: np.full((32, 32), 80, np.uint8)) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("period", [0.5, 0.8, 1.2, 2.0])
def test_turning_things_repeat_themselves_across_pauses(period):
    assert value(wheel(period), 11.0, pauses=True) > 0.6


def test_noise_does_not_repeat_itself_across_pauses():
    assert value(lambda _: RNG.integers(0, 255, (32, 32), dtype=np.uint8), 11.0, pauses=True) < 0.4


def test_there_is_no_result_with_too_short_a_memory():
    assert value(wheel(0.8), seconds=0.3) == 0.0


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (31, 31, 1, 1), (0, 0, 32, 32)])
def test_a_region_at_any_edge_is_analysed(box):
    assert -1 <= value(wheel(0.8), box=box) <= 1.0001


def test_only_recent_regions_are_remembered():
    recent = Recent()
    memory = Periodicity(FlameThresholds(), recent)
    recent.see(np.zeros((32, 32), np.uint8), (slice(0, 320), slice(0, 480)), 0)
    for number in range(2_000):
        memory.of((number % 60 * 8, number // 60 * 8, 8, 8), number * EVERY_NS // 10)
    assert len(memory._known) <= 10


@pytest.mark.parametrize("count", [8, 20, 48])
def test_the_best_return_agrees_with_a_calculation_per_lag(count):
    for _ in range(20):
        turning = np.sin(np.arange(count) * RNG.uniform(0.2, 2.0))[:, None, None]
        pictures = (128 + 60 * turning + RNG.normal(0, 20, (count, 12, 14))).clip(0, 255).astype(np.uint8)
        shortest, longest = 2, count // 2
        flat = pictures.reshape(count, -1).astype(float)
        flat -= flat.mean(axis=0)
        norms = np.linalg.norm(flat, axis=1)
        curve = [(flat[:-lag] * flat[lag:]).sum() / (norms[:-lag] * norms[lag:]).sum() for lag in range(1, longest + 1)]
        dipped = next((index for index, value in enumerate(curve) if value < DIP_FAST), len(curve))
        expected = max(curve[max(dipped, shortest) :], default=0.0)
        film = Film(count)
        for number, picture in enumerate(pictures):
            film.append(picture, number)
        assert best_return(film, (0, 0, 14, 12), shortest, longest, DIP_FAST) == pytest.approx(expected, abs=1e-4)
