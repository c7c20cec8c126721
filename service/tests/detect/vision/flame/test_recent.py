"""What is remembered of the last seconds, beside lists of pictures that are kept one by one."""

import numpy as np
import pytest

from embereye.detect.vision.flame.recent import PICTURES, SAMPLES, SPAN_NS, SWINGS, Film, Recent, series_of

RATE = 15.0
WHOLE = (90, 160)


@pytest.mark.parametrize("most", [1, 3, SWINGS, PICTURES])
def test_a_film_holds_the_latest_pictures_in_their_order(most):
    film = Film(most)
    assert len(film.pictures) == 0
    for number in range(5 * most):
        film.append(np.full((2, 3), number, np.uint8), number)
        kept = list(range(max(0, number + 1 - most), number + 1))
        assert film.pictures[:, 0, 0].tolist() == list(film.times) == kept


def test_a_window_that_grows_shows_of_earlier_pictures_what_it_shows_now():
    rng = np.random.default_rng(7)
    recent, pictures, samples, noted = Recent(), [], [], 0
    top, bottom, left, right = 40, 51, 60, 77
    for number in range(4 * PICTURES):
        time_ns = int(number / RATE * 1e9)
        if number % 37 == 20:
            top, left = top - 2 * int(rng.integers(0, 3)), left - 2 * int(rng.integers(0, 3))
            bottom, right = bottom + int(rng.integers(0, 5)), right + int(rng.integers(0, 5))
        window = slice(top, bottom), slice(left, right)
        grey = rng.integers(0, 255, WHOLE, dtype=np.uint8)
        grown = recent.window != window
        recent.see(grey, window, time_ns)
        if grown:  # outside of what was known, all pictures show what this one does
            for whole, known in (*pictures, *samples):
                shown = grey.copy()
                shown[known] = whole[known]
                whole[:] = shown
            pictures = [(whole, window) for whole, _ in pictures]
            samples = [(whole, window) for whole, _ in samples]
        pictures = [*pictures, (grey.copy(), window)][-PICTURES:]
        if not samples or time_ns - noted >= SPAN_NS // SAMPLES:
            samples, noted = [*samples, (grey.copy(), window)][-SAMPLES:], time_ns
        recent.swing(np.uint8(255) * (grey > 200), time_ns)
        for film, plain in ((recent.pictures, pictures), (recent.samples, samples)):
            assert np.array_equal(film.pictures, [whole[window][::2, ::2] for whole, _ in plain])
        assert recent.swings.pictures.shape[1:] == recent.pictures.pictures.shape[1:] or not recent.swings.times
    assert len(recent.swings.times) == SWINGS


def test_a_series_has_a_row_for_each_picture():
    pictures = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert series_of(pictures, np.array([0, 5, 11])).tolist() == [[0, 5, 11], [12, 17, 23]]
