import cv2
import numpy as np
import pytest

from embereye.detect.vision.detector import Detector
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Mask

START = 1_700_000_000 * SECOND
RATE = 5.0
QUIET = 5.0  # seconds before anything happens


def clutter(seed=3):
    random = np.random.default_rng(seed)
    picture = np.full((120, 160, 3), (110, 120, 125), np.uint8)
    for _ in range(90):
        x, y = int(random.integers(0, 160)), int(random.integers(0, 120))
        w, h = int(random.integers(4, 26)), int(random.integers(4, 22))
        colour = tuple(float(value) for value in random.integers(30, 200, 3))
        cv2.rectangle(picture, (x, y), (x + w, y + h), colour, -1)
    return cv2.GaussianBlur(picture, (3, 3), 0)


SCENE = clutter()
CLOUDS = cv2.resize(np.random.default_rng(5).random((40, 24), np.float32), (192, 320), interpolation=cv2.INTER_CUBIC)


def veil(picture, opacity, colour):
    opacity = np.clip(opacity, 0, 1)[..., None]
    return (picture * (1 - opacity) + np.array(colour, np.float32) * opacity).astype(np.uint8)


def plume(seconds, colour=(165, 160, 155), strength=1.1):
    """Draw a plume that grows from a source at the bottom, rises and drifts."""
    if seconds <= 0:
        return SCENE
    rows, columns = np.mgrid[0:120, 0:160].astype(np.float32)
    up = (110 - rows) / 110
    width = 8 + 26 * np.clip(up, 0, 1)
    reach = min(1.0, seconds / 3)
    body = np.exp(-(((columns - 80 - 14 * up * np.sin(0.7 * seconds)) / width) ** 2)) * (up > 0) * (up < reach)
    texture = np.roll(CLOUDS, -int(12 * seconds), axis=0)[:120, :160]
    return veil(SCENE, strength * body * (0.35 + 0.5 * texture), colour)


def room_fills(seconds):
    return veil(SCENE, np.full((120, 160), 0.65 * min(1.0, max(0.0, seconds) / 40), np.float32), (170, 170, 170))


def puff(seconds):
    """Draw breath that appears at once and disappears after a few seconds."""
    return plume(max(0.0, seconds), strength=1.1 * max(0.0, 1 - seconds / 5))


def shadow(seconds):
    picture = SCENE.copy()
    if seconds > 0:
        picture[:, 40:110] = (0.55 * picture[:, 40:110]).astype(np.uint8)
    return picture


def lights_dim(seconds):
    return (SCENE * (1.0 if seconds < 0 else 0.6)).astype(np.uint8)


def contrast_switches(seconds):
    return SCENE if seconds < 0 else (0.6 * SCENE + 60).astype(np.uint8)


def defocus(seconds):
    return SCENE if seconds < 0 else cv2.GaussianBlur(SCENE, (0, 0), 3.0)


def person_stands(seconds):
    picture = SCENE.copy()
    if seconds > 0:
        sway = int(2 * np.sin(2 * seconds))
        cv2.ellipse(picture, (80 + sway, 75), (22, 44), 0, 0, 360, (150, 150, 145), -1)
    return picture


def headlight_glare(seconds):
    rows, columns = np.mgrid[0:120, 0:160].astype(np.float32)
    x = 200 - 40 * (seconds % 5)
    glow = 160 * np.exp(-((columns - x) ** 2 + (rows - 70) ** 2) / 30**2)
    return np.clip(0.4 * SCENE + glow[..., None] * (seconds > 0), 0, 255).astype(np.uint8)


def dusk(seconds):
    return (SCENE * (1 - 0.5 * max(0.0, seconds) / 60)).astype(np.uint8)


def watch(draw, seconds, detector=None, rate=RATE, noise=2.5, clock=lambda time: time):
    random = np.random.default_rng(1)
    detector = detector or Detector(flame=None)
    seen = []
    for number in range(int((QUIET + seconds) * rate)):
        time = number / rate
        picture = np.clip(draw(time - QUIET) + random.normal(0, noise, SCENE.shape), 0, 255).astype(np.uint8)
        seen.append(detector.detect(picture, START + int(clock(time) * SECOND)))
    return seen


def first_alarm(seen, rate=RATE):
    levels = [observation.level for observation in seen]
    return levels.index(Level.ALARM) / rate - QUIET if Level.ALARM in levels else None


@pytest.mark.parametrize("colour", [(165, 160, 155), (190, 175, 165), (110, 110, 115)])
def test_a_lasting_plume_is_smoke(colour):
    seen = watch(lambda t: plume(t, colour), 35)
    assert 10 < first_alarm(seen) < 32
    (smoke,) = seen[-1].findings
    assert smoke.kind == Kind.SMOKE
    x, y, width, height = smoke.box
    assert x < 0.5 < x + width
    assert 0 <= y < y + height <= 1
    assert {term.name for term in smoke.terms} >= {"smoke.loss", "smoke.spread.below", "smoke.lasted"}


def test_a_room_that_fills_with_smoke_is_smoke():
    assert first_alarm(watch(room_fills, 50)) < 50


def test_lasting_smoke_is_not_learned_as_background():
    seen = watch(plume, 5 * 60, rate=1.0)
    assert seen[-1].level == Level.ALARM
    assert first_alarm(seen, 1.0) < 60


@pytest.mark.parametrize("back", [0.5, 3600.0])
@pytest.mark.parametrize("draw", [plume, room_fills])
def test_after_a_clock_set_back_smoke_is_not_learned_as_background(draw, back):
    seen = watch(draw, 50, clock=lambda time: time - back * (time > QUIET + 10))
    assert first_alarm(seen) == pytest.approx(first_alarm(watch(draw, 50)), abs=1)


@pytest.mark.parametrize(
    "draw",
    [puff, shadow, lights_dim, contrast_switches, defocus, person_stands, headlight_glare, dusk, lambda _: SCENE],
)
def test_other_veils_are_no_smoke(draw):
    assert max(observation.level for observation in watch(draw, 25)) == Level.CLEAR


def film_of_dust_that_restarts(seconds):
    """Draw a plume that clears at once every 13 s."""
    return plume(seconds % 13 if seconds > 0 else 0)


def test_a_veil_that_clears_at_once_is_forgotten():
    assert max(observation.level for observation in watch(film_of_dust_that_restarts, 80)) == Level.CLEAR


def lorry_passes(seconds):
    picture = plume(seconds).copy()
    if 10 < seconds < 11:
        picture[5:] = (60, 50, 40)
    return picture


def strobe_flashes(seconds):
    picture = plume(seconds)
    return np.clip(1.4 * picture, 0, 255) if seconds > 5 and seconds % 4 < 0.2 else picture


@pytest.mark.parametrize("draw", [lorry_passes, strobe_flashes])
def test_smoke_that_is_not_visible_for_a_moment_is_not_forgotten(draw):
    assert first_alarm(watch(draw, 40)) < first_alarm(watch(plume, 40)) + 7


def test_the_alarm_ends_after_the_smoke():
    seen = watch(lambda t: plume(t) if t < 30 else SCENE, 90)
    assert first_alarm(seen)
    assert seen[-1].level == Level.CLEAR


def restless_exposure(seconds):
    return SCENE if seconds < 0 else np.clip(0.6 * SCENE + 62 + 6 * np.sin(4 * seconds), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("share", [0, 0.5, 0.8])
def test_another_exposure_next_to_a_mask_is_no_smoke(share):
    masks = [Mask(x=[0, share, share, 0], y=[0, 0, 1, 1])]
    seen = watch(restless_exposure, 25, Detector(flame=None, masks=masks))
    assert max(observation.level for observation in seen) == Level.CLEAR


def test_smoke_from_before_an_absence_of_the_camera_does_not_count():
    seen = watch(lambda t: plume(t) if t < 30 else SCENE, 40, clock=lambda time: time + 3600 * (time > QUIET + 30))
    assert seen[int((QUIET + 30) * RATE)].level == Level.ALARM
    assert {observation.level for observation in seen[int((QUIET + 30) * RATE) + 1 :]} == {Level.CLEAR}


def test_smoke_behind_a_mask_is_ignored():
    everything = Mask(x=[0, 1, 1, 0], y=[0, 0, 1, 1])
    seen = watch(plume, 30, Detector(flame=None, masks=[everything]))
    assert first_alarm(seen) is None


@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 300, 3), (9, 9, 3)])
def test_a_picture_of_any_size_is_analysed(shape):
    detector = Detector(flame=None)
    for number in range(20):
        picture = np.random.default_rng(number).integers(0, 255, shape, dtype=np.uint8)
        assert detector.detect(picture, START + number * SECOND // 2).level == Level.CLEAR
