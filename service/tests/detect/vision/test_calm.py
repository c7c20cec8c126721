import numpy as np

from embereye.detect.vision.calm import SceneChange
from embereye.detect.vision.thresholds import CALM
from embereye.units import SECOND

SIZE = (90, 160)
ROOM = np.random.default_rng(1).integers(40, 130, (*SIZE, 1)).repeat(3, 2)


def seen(number, noise=2.0):
    random = np.random.default_rng(number)
    return np.clip(ROOM + random.normal(0, noise, (*SIZE, 3)), 0, 255).astype(np.uint8)


def with_part(picture, colour, top=40, left=60, size=4):
    picture = picture.copy()
    picture[top : top + size, left : left + size] = colour
    return picture


def watched(count=3, noise=2.0, clock=False):
    scene = SceneChange()
    for number in range(count):
        picture = seen(number, noise)
        scene.learn(with_part(picture, 250 * (number % 2), 2, 2, 6) if clock else picture, number * SECOND)
    return scene


def test_the_first_picture_is_a_change():
    assert SceneChange().has_changed(seen(0))


def test_noise_is_no_change():
    for noise in (0.0, 2.0, 8.0, 15.0):
        scene = watched(noise=noise)
        assert not any(scene.has_changed(seen(number, noise)) for number in range(10, 40))


def test_a_small_flame_and_a_person_are_changes():
    scene = watched()
    assert scene.has_changed(with_part(seen(9), (40, 160, 250)))
    assert scene.has_changed(with_part(seen(9), (60, 60, 60), size=20))


def test_another_size_is_a_change():
    assert watched().has_changed(seen(9)[:80])


def test_a_change_behind_a_mask_does_not_count():
    ignored = np.zeros(SIZE, bool)
    ignored[30:60, 50:90] = True
    assert not watched().has_changed(with_part(seen(9), (40, 160, 250)), ignored)


def test_a_clock_does_not_count_after_a_while_unless_it_has_the_colour_of_a_flame():
    assert watched(5, clock=True).has_changed(with_part(seen(9), 120, 2, 2, 6))
    scene = watched(CALM.usual_after + 2, clock=True)
    assert not scene.has_changed(with_part(seen(9), 120, 2, 2, 6))
    assert scene.has_changed(with_part(seen(9), (20, 150, 240), 2, 2, 6))
    assert scene.has_changed(with_part(with_part(seen(9), 120, 2, 2, 6), 10))


def test_about_one_picture_a_second_is_learned():
    scene = watched(1)
    assert not scene.is_due(SECOND // 10)
    assert scene.is_due(SECOND)
    assert scene.is_due(-SECOND)
