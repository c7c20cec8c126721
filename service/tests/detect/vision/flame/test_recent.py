"""The memory of the last seconds, compared with plain lists of pictures."""

import numpy as np
import pytest

from embereye.detect.vision.flame.recent import PICTURES, SAMPLES, SPAN_NS, SWINGS, Film, Recent, series_of

RATE = 15.0
WHOLE = (90, 160)


@pytest.mark.parametrize("most", [1, 3, SWINGS, PICTURES])
def test_a_film_has_the_latest_pictures_in_order(most):
    film = Film(most)
    assert len(film.pictures) == 0
    for number in range(5 * most):
        film.append(np.full((2, 3), number, np.uint8), number)
        expected = list(range(max(0, number + 1 - most), number + 1))
        assert film.pictures[:, 0, 0].tolist() == list(film.times) == expected


def test_a_growing_window_fills_earlier_pictures_with_the_current_one():
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
        if grown:  # outside the known window, all pictures show the current one
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


def test_a_gap_has_one_slot_per_missing_picture():
    film, picture = Film(8), np.zeros((2, 3), np.uint8)
    for time in (0, 100, 200, 900, 1_000):
        if time == 900:
            film.note_gap()
        film.append(picture, time)
    assert list(film.slots) == [0, 1, 2, 9, 10]
    assert film.missing == 6
    film.note_gap()
    film.append(picture, 1_900)
    assert list(film.slots) == [9, 10, 19], "old pictures are dropped"
    film.note_gap()
    film.append(picture, 90_000)
    assert list(film.times) == [90_000]


def test_gaps_do_not_count_as_known_time():
    recent, window, seen = Recent(), (slice(0, 8), slice(0, 8)), []
    for number in range(180):
        if number % 45 < 30:
            recent.see(np.zeros((8, 8), np.uint8), window, int(number / RATE * 1e9))
            recent.swing(np.zeros((8, 8), np.uint8), int(number / RATE * 1e9))
            seen.append(recent.known_ns(int(number / RATE * 1e9)) / 1e9)
        elif number % 45 == 30:
            recent.note_gap()
            assert seen[-1] - 0.3 < recent.known_ns(int(number / RATE * 1e9)) / 1e9 <= seen[-1]
    assert seen[29] == pytest.approx(29 / RATE)
    assert seen[59] == pytest.approx(2 * seen[29], abs=0.4)
    assert max(seen) < SWINGS * 0.3


def test_a_series_has_a_row_for_each_picture():
    pictures = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert series_of(pictures, np.array([0, 5, 11])).tolist() == [[0, 5, 11], [12, 17, 23]]
