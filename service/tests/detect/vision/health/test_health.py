import cv2
import numpy as np
import pytest

from embereye.detect.vision.health.health import PictureHealth
from embereye.detect.vision.thresholds import HealthThresholds
from embereye.units import SECOND

LIMITS = HealthThresholds()
RNG = np.random.default_rng(11)


def draw_scene(seed, size=(120, 160)):
    """Draw an invented yard with walls, boxes and poles."""
    rng = np.random.default_rng(seed)
    picture = np.full(size, 120, np.uint8)
    for _ in range(40):
        x, y = rng.integers(0, size[1] - 10), rng.integers(0, size[0] - 10)
        w, h = rng.integers(4, 40, 2)
        cv2.rectangle(picture, (int(x), int(y)), (int(x + w), int(y + h)), int(rng.integers(30, 220)), -1)
    return picture


YARD, HARBOUR = draw_scene(1), draw_scene(2)


def exposed(picture, noise=0.8):
    return np.clip(picture + RNG.normal(0, noise, picture.shape), 0, 255).astype(np.uint8)


class Camera:
    """Shows pictures to a health check, one every 0.6 s."""

    def __init__(self):
        self.health, self.now = PictureHealth(), 0

    def show(self, picture, seconds, *, noise=0.8, suspected=False):
        """Return the reported faults, one per check."""
        faults = []
        for _ in range(int(seconds / 0.6)):
            self.now += LIMITS.period_ns
            shown = picture() if callable(picture) else picture
            faults.append(self.health.observe(exposed(shown, noise), self.now, suspected=suspected))
        return faults


@pytest.fixture
def camera():
    watching = Camera()
    assert not any(watching.show(YARD, 30))
    return watching


def sprayed(picture):
    return 0.2 * cv2.GaussianBlur(picture.astype(np.float32), (0, 0), 10) + 80


def covered(picture):
    return np.full(picture.shape, 60.0) + np.linspace(0, 15, picture.shape[1])


FAULTS = {
    "picture black": (lambda: np.full(YARD.shape, 6), 0.8, 2.4),
    "picture white": (lambda: np.full(YARD.shape, 250) + RNG.normal(0, 2, YARD.shape), 0.8, 2.4),
    "picture blank": (lambda: np.full(YARD.shape, 128), 0.2, 2.4),
    "overexposed": (lambda: np.clip(YARD * 2.0 + 120, 0, 255), 0.8, 7),
    "lens covered or sprayed": (lambda: sprayed(YARD), 0.8, 20),
    "lens covered or out of focus": (lambda: covered(YARD), 0.5, 20),
    "out of focus": (lambda: cv2.GaussianBlur(YARD, (0, 0), 3), 0.8, 20),
    "camera moved": (lambda: HARBOUR, 0.8, 27),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_picture_is_reported_in_time_and_ends_with_its_cause(camera, fault):
    picture, noise, within = FAULTS[fault]
    faults = camera.show(picture, within, noise=noise)
    assert faults[-1].partition(":")[0] == fault
    assert camera.show(YARD, 12)[-1] == ""


def test_an_exactly_unchanged_picture_is_frozen_until_it_changes(camera):
    still = exposed(YARD)
    faults = camera.show(still, 6.6, noise=0)
    assert faults[-1] == "picture frozen: exactly the same for 6 s"
    assert faults[6] == ""
    assert camera.show(YARD, 0.6) == [""]


def test_a_device_may_show_the_same_picture_for_its_deadline(camera):
    camera.health.patience_ns = 60 * SECOND
    assert not any(camera.show(exposed(YARD), 50, noise=0))


def test_a_picture_frozen_behind_a_clock_is_frozen(camera):
    dead = exposed(YARD)

    def with_clock():
        picture = dead.copy()
        picture[2:10, 4:60] = RNG.integers(0, 255, (8, 56))
        return picture

    faults = camera.show(with_clock, 40, noise=0)
    assert faults[-1].startswith("picture frozen behind an overlay: 9")


LIGHTS = {
    "lights off": lambda: YARD * 0.08 + 12,
    "dusk": lambda: YARD * 0.35,
    "sun": lambda: np.clip(YARD * 1.4, 0, 255),
    "fog": lambda: YARD * 0.3 + 130,
    "infrared": lambda: 255 * (YARD / 255) ** 1.7,
    "flicker of a lamp": lambda: YARD * RNG.choice([0.4, 1.0]),
}


@pytest.mark.parametrize("light", LIGHTS)
def test_other_light_is_no_fault(camera, light):
    assert not any(camera.show(LIGHTS[light], 60, noise=3.0))
    assert not any(camera.show(YARD, 10))


def test_a_lorry_that_passes_is_no_fault(camera):
    position = iter(range(-140, 170, 10))

    def passing():
        picture, x = YARD.copy(), next(position)
        cv2.rectangle(picture, (x, 10), (x + 130, 110), 180, -1)
        cv2.rectangle(picture, (x + 20, 30), (x + 60, 60), 90, -1)
        return picture

    assert not any(camera.show(passing, 18))


def test_a_fire_that_fills_the_picture_is_no_fault(camera):
    def blaze():
        return np.clip(cv2.GaussianBlur(RNG.normal(200, 400, YARD.shape), (0, 0), 6), 120, 255)

    assert not any(camera.show(blaze, 60, suspected=True))


def test_a_lasting_scene_becomes_a_reference_and_the_old_one_is_remembered(camera):
    faults = camera.show(HARBOUR, 30)
    assert faults[-1] == (
        "camera moved: the scene is not the learned one; if it stays it becomes the reference in 10 min"
    )
    assert camera.show(HARBOUR, 600)[-1] == ""
    assert not any(camera.show(YARD, 60))
    assert camera.show(draw_scene(3), 40)[-1].startswith("camera moved")


@pytest.mark.parametrize("picture", [lambda: sprayed(YARD), lambda: cv2.GaussianBlur(YARD, (0, 0), 3)])
def test_a_covered_or_blurred_scene_never_becomes_the_reference(camera, picture):
    assert camera.show(picture, 1300)[-1]


def test_a_camera_that_keeps_moving_remains_a_fault(camera):
    numbers = iter(range(1000))

    def turning():
        return np.roll(HARBOUR, next(numbers) * 5, axis=1)

    faults = camera.show(turning, 300)
    assert faults[-1].startswith("camera moves: the picture shifts by 5% of its width a second")
    assert all(faults[8:]), "within 5 s, and without a pause"


@pytest.mark.parametrize("jolts", [1, 2])
def test_a_jolt_is_no_movement(camera, jolts):
    shifts = iter([0] * 5 + [6] * jolts + [0] * 40)
    assert not any(camera.show(lambda: np.roll(YARD, next(shifts), axis=1), 18))


def test_a_camera_that_comes_to_rest_sees_again(camera):
    place = iter([5 * n for n in range(20)] + [95] * 40)
    faults = camera.show(lambda: np.roll(YARD, next(place), axis=1), 18)
    assert faults[18].startswith("camera moves")
    assert not any(fault.startswith("camera moves") for fault in faults[24:])


def test_something_passing_an_empty_scene_is_no_moving_camera():
    watching, steps = Camera(), iter(range(1000))

    def headlights():
        step = next(steps)
        return cv2.circle(np.zeros((120, 160), np.uint8), (20 + 3 * step % 120, 30 + 2 * step % 60), 9, 255, -1)

    assert not any(fault.startswith("camera moves: the picture shifts") for fault in watching.show(headlights, 60))


def test_a_moving_camera_is_reported_even_while_fire_is_suspected(camera):
    numbers = iter(range(1000))
    faults = camera.show(lambda: np.roll(HARBOUR, next(numbers) * 5, axis=1), 30, suspected=True)
    assert faults[-1].startswith("camera moves")


def test_a_new_picture_size_resets_the_checks(camera):
    assert not any(camera.show(draw_scene(4, (90, 160)), 30))


def test_a_check_is_due_twice_per_deadline_and_after_a_clock_step_back():
    health = PictureHealth()
    assert health.is_due(5 * SECOND)
    health.observe(YARD, 5 * SECOND)
    assert not health.is_due(5 * SECOND + LIMITS.period_ns - 1)
    assert health.is_due(5 * SECOND + LIMITS.period_ns)
    assert health.is_due(4 * SECOND)
