from pathlib import Path

import numpy as np

from embereye.sim.scenes.lookalikes import LOOKALIKES, candle, filmed
from embereye_bench.detection.day import MOST, RATE, Day, detection_digest, results_of, watch_day, watch_film
from embereye_bench.detection.folds import LabelledClip
from embereye_bench.detection.footage import Footage


def film(draw, name="drawn"):
    pictures, seconds = zip(*filmed(draw, RATE, 10.0), strict=True)
    return Footage(LabelledClip(Path(name), "negative", name, 0.0, fixed=True), np.stack(pictures), np.array(seconds))


def test_a_lasting_alarm_is_counted_once():
    day = Day()
    watch_film(film(candle(24), "flame"), None, 30.0, day)
    assert day.alarms == {("flame", "flame"): 1}
    assert day.seconds == 30.0
    assert [result.ok for result in results_of(day)] == [False, True]


def test_results_of_one_detector_are_not_reused_for_another(tmp_path):
    before = detection_digest(tmp_path)
    assert detection_digest(tmp_path) == before
    (tmp_path / "fold0.onnx").write_bytes(b"another network")
    assert detection_digest(tmp_path) != before


def test_a_day_is_played_in_parts_and_finished_films_are_not_played_again(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("embereye_bench.detection.day.watch_film", lambda film, *_: shown.append(film.clip.name))
    folder = tmp_path / "day"
    for part in (0, 1, 0):
        day = watch_day([], tmp_path, [None] * 4, 24.0, (part, 2), folder)
    assert sorted(shown) == sorted(LOOKALIKES)
    assert round(day.seconds) == 24 * 3600
    assert not day.alarms
    assert len(results_of(day)) == len(MOST)
