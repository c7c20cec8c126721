import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from embereye_bench.detection.distant import WIDTHS, Distant, made_smaller, results_of
from embereye_bench.detection.folds import LabelledClip
from embereye_bench.detection.footage import footage

SIZE = 320, 240


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "a.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 15.0, SIZE)
    for _ in range(20):
        writer.write(np.full((SIZE[1], SIZE[0], 3), 250, np.uint8))
    writer.release()
    return LabelledClip(path, "fire", "a", 0.5, fixed=True)


def test_a_copied_clip_is_not_decoded_again_but_another_of_the_same_name_is(clip, tmp_path):
    cache = tmp_path / "cache"
    footage(clip, cache)
    cached = sorted(cache.iterdir())
    copy = tmp_path / "copy" / clip.name
    copy.parent.mkdir()
    shutil.copy(clip.path, copy)
    footage(LabelledClip(copy, "fire", "a", 0.0, fixed=True), cache)
    assert sorted(cache.iterdir()) == cached
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    footage(LabelledClip(copy, "fire", "a", 0.0, fixed=True), cache)
    assert len(list(cache.iterdir())) == 2 * len(cached)


def test_a_fire_made_smaller_has_the_same_times_and_is_decoded_like_a_cameras(clip, tmp_path):
    small = made_smaller(footage(clip, tmp_path / "cache"), np.zeros((90, 120, 3), np.uint8), 4, tmp_path)
    assert small.pictures.shape[1:] == (120, 160, 3)
    assert small.closer(0).shape == (720, 960, 3)
    lit = np.count_nonzero(small.closer(3)[..., 0] > 125) / (720 * 960)
    assert 0.6 / 16 < lit < 1 / 16, "a quarter of each side, its edges faded"
    assert small.seconds == pytest.approx(np.arange(20) / 15.0, abs=0.01)


def test_distant_fires_are_counted_by_width_with_and_without_close_ups():
    clip = LabelledClip(Path("a"), "fire", "a", 0.0, fixed=True)
    fires = [Distant(clip, 0.04, 3.0, None), Distant(clip, 0.035, 12.0, 4.0), Distant(clip, 0.01, None, None)]
    counts = {result.name: (result.value, result.baseline) for result in results_of(fires)}
    assert counts["3-to-5-wide-5s"] == (1, 1)
    assert counts["3-to-5-wide-15s"] == (2, 1)
    assert counts["0-to-2-wide-15s"] == (0, 0)
    assert len(counts) == 4 < 2 * len(WIDTHS)
