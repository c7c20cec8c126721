import json

import cv2
import numpy as np
import pytest

from embereye.sim.scenes.scene import Room
from embereye_bench.detection.public import Notified, average_precision, contest_results, start_of
from embereye_cli.main import main

RATE = 15.0


def record(path, jpegs):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), RATE, (320, 240))
    for jpeg in jpegs:
        picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        writer.write(picture)
    writer.release()


def report(capsys):
    read = json.loads(capsys.readouterr().out)
    return read["clips"], {result["name"]: result["value"] for result in read["results"]}


RTF = r"{\rtf1\ansi{\fonttbl\f0\fswiss\fcharset0 Helvetica;}{\colortbl;\red255\green255\blue255;}\f0\fs24 \cf0 %s}"


@pytest.mark.parametrize(
    ("text", "second"),
    [("12,Fire,Smoke", 12.0), ("0", 0.0), ("", None), ("\n", None), (RTF % "7,Smoke", 7.0), (RTF % "", None)],
)
def test_the_start_of_a_fire_is_read_from_plain_and_rich_text(text, second):
    assert start_of(text) == second


@pytest.mark.parametrize(
    ("start", "notified", "verdict"),
    [
        (10.0, 5.0, "TP"),
        (10.0, 4.9, "FP"),
        (10.0, 99.0, "TP"),
        (2.0, 0.0, "TP"),
        (10.0, None, "FN"),
        (None, 3.0, "FP"),
        (None, None, "TN"),
    ],
)
def test_a_notification_counts_from_five_seconds_before_the_start(start, notified, verdict):
    assert Notified("a.mp4", start, notified).verdict == verdict


def test_the_contest_score_multiplies_precision_recall_and_promptness():
    rows = [Notified("a", 0.0, 6.0), Notified("b", 10.0, 28.0), Notified("c", 0.0, None), Notified("d", None, 1.0)]
    by_name = {result.name: result.value for result in contest_results(rows, rate=5.0, memory=8.0)}
    assert by_name["precision"] == by_name["recall"] == pytest.approx(2 / 3)
    assert by_name["delay"] == 12.0
    assert by_name["fire-detection-score"] == pytest.approx(2 / 3 * 2 / 3 * 0.8 / (2 * 2))


def test_average_precision_is_the_mean_precision_at_each_true_picture():
    assert average_precision([3.0, 2.0, 1.0], [True, False, True]) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision([1.0], [False]) == 0.0


def test_videos_are_scored_in_the_form_of_the_contest(tmp_path, capsys):
    room = Room(320, 240, 4)
    for folder in ("videos/POS", "videos/NEG", "truth"):
        (tmp_path / folder).mkdir(parents=True)
    record(tmp_path / "videos/POS/one.avi", room.fire(2.0, 90, RATE))
    record(tmp_path / "videos/NEG/two.avi", room.walk(45))
    (tmp_path / "truth/one.rtf").write_text(RTF % "0,Fire")
    assert main(["bench", "detection", "--public", str(tmp_path), "--json"]) == 0
    clips, by_name = report(capsys)
    assert {clip["file"]: clip["verdict"] for clip in clips} == {"one.avi": "TP", "two.avi": "TN"}
    assert by_name["precision"] == by_name["recall"] == 1.0
    assert 0 < by_name["delay"] < 6


def test_pictures_are_scored_in_the_form_of_d_fire(tmp_path, capsys):
    room = Room(320, 240, 4)
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for name, jpegs, label in (("a", room.fire(2.0, 40, RATE), "1 0.5 0.5 0.1 0.1\n"), ("b", room.walk(2), "")):
        (tmp_path / f"images/{name}.jpg").write_bytes(list(jpegs)[-1])
        (tmp_path / f"labels/{name}.txt").write_text(label)
    assert main(["bench", "detection", "--public", str(tmp_path), "--json"]) == 0
    _, by_name = report(capsys)
    assert by_name["fire-average-precision"] in (0.5, 1.0), "one of two pictures shows fire"
    assert by_name["smoke-average-precision"] == 0.0, "none shows smoke"
    assert by_name["mean-average-precision"] == by_name["fire-average-precision"] / 2
    precision, recall = by_name["fire-precision"], by_name["fire-recall"]
    assert by_name["fire-f1"] == pytest.approx(2 * precision * recall / max(1e-9, precision + recall))


def test_a_folder_in_neither_form_gives_a_one_sentence_error(tmp_path, capsys):
    assert main(["bench", "detection", "--public", str(tmp_path)]) == 2
    assert "as of ONFIRE, nor folders images/ and labels/" in capsys.readouterr().err
    assert main(["bench", "detection", "--public"]) == 2
    assert "name one folder" in capsys.readouterr().err
