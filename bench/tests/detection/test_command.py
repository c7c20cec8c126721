import json

import cv2
import numpy as np
import pytest

from embereye.sim.scenes.scene import Room
from embereye_cli.main import main

RATE = 15.0


def record(path, jpegs):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), RATE, (320, 240))
    for jpeg in jpegs:
        picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        writer.write(picture)
    writer.release()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, room = tmp_path_factory.mktemp("clips"), Room(320, 240, 4)
    record(folder / "one.avi", room.fire(2.0, 90, RATE))
    record(folder / "two.avi", room.walk(45))
    labels = [
        {"file": "one.avi", "label": "fire", "onset_s": 0.0},
        {"file": "two.avi", "label": "negative", "onset_s": None},
    ]
    (folder / "labels.json").write_text(json.dumps(labels))
    return folder


def results(out):
    report = json.loads(out)
    return report["clips"], {result["name"]: result for result in report["results"]}


def test_a_labelled_folder_is_scored(folder, capsys):
    main(["bench", "detection", str(folder), "--json"])
    clips, by_name = results(capsys.readouterr().out)
    assert [clip["verdict"] for clip in clips] == ["ok", "ok"]
    assert by_name["fire-within-5s"]["value"] == 100
    assert by_name["false-alarm-clips"]["value"] == 0
    assert by_name["cost-quiet"]["baseline"] > 0
    assert by_name["cost-quiet"]["ratio"] > 0


def test_the_cost_of_detection_is_measured_separately(folder, capsys):
    main(["bench", "detection", str(folder), "--cost", "--json"])
    by_name = {result["name"]: result for result in json.loads(capsys.readouterr().out)["results"]}
    assert set(by_name) == {"cost-quiet", "cost-busy", "cost-suspect", "cost-detail", "details-of-a-shard"}
    measured = (by_name["cost-quiet"], by_name["cost-detail"])
    assert all(result["value"] > result["baseline"] > 0 for result in measured)
    assert by_name["details-of-a-shard"]["value"] > 0, "the fire of one.avi is small enough for a detail"


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_failures_appear_in_stills_and_in_the_exit_code(folder, tmp_path, capsys, suffix):
    wrong = tmp_path / "clips"
    wrong.mkdir()
    for name in ("one.avi", "two.avi"):
        (wrong / name).symlink_to(folder / name)
    labels = [{"file": "one.avi", "label": "negative"}, {"file": "two.avi", "label": "fire"}]
    (wrong / "labels.json").write_text(json.dumps(labels))
    sheet = tmp_path / f"sheet{suffix}"
    assert main(["bench", "detection", str(wrong), "--json", "--stills", str(sheet)]) == 1
    clips, by_name = results(capsys.readouterr().out)
    assert [clip["verdict"] for clip in clips] == ["false alarm", "missed"]
    assert by_name["false-alarms"]["value"] > 100, "one alarm in six seconds"
    if suffix == ".html":
        assert sheet.read_text().count("<figure>") == 2
    else:
        assert cv2.imread(str(sheet)).shape == (240, 960, 3)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, "cannot be read"),
        ("{}x", "is not a list of"),
        ('[{"file": "one.avi"}]', "is not a list of"),
        ('[{"file": "one.avi", "label": "cat"}]', 'label "cat" of one.avi is not one of fire, smoke, negative'),
        ('[{"file": "none.avi", "label": "fire"}]', "none.avi: no such file in"),
    ],
)
def test_unusable_labels_give_a_one_sentence_error(tmp_path, labels, words, capsys):
    if labels is not None:
        (tmp_path / "labels.json").write_text(labels)
    assert main(["bench", "detection", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
