import os

import pytest

from embereye.camera.device.view_store import EVERY_NS, ViewStore
from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

NOON = 1_700_000_000 * SECOND
STOVE = (0.4, 0.5, 0.05, 0.08)


@pytest.fixture
def store(tmp_path):
    return ViewStore(tmp_path / "views")


def camera(**changes):
    return Device(id="yard/gate", source="rtsp://camera/1", **changes)


def known():
    usual_levels = UsualLevels()
    for second in range(1200):
        usual_levels.learn(STOVE, 0.004, 1.0, NOON + second * SECOND)
    return usual_levels


def test_the_usual_levels_of_a_view_survive_a_restart(store, tmp_path):
    store.save(camera(), known())
    assert ViewStore(tmp_path / "views").load(camera()).familiarity(STOVE, 0.004, NOON) == 1.0
    assert store.load(Device(id="another", source="rtsp://camera/1")) is None


@pytest.mark.parametrize("changed", [{"view": "2"}, {"detect_stream": "low"}])
def test_another_view_starts_empty_and_removes_the_first_views_file(store, tmp_path, changed):
    store.save(camera(), known())
    assert store.load(camera(**changed)) is None
    assert not list((tmp_path / "views").iterdir())


def test_no_file_is_saved_for_an_unknown_view(store, tmp_path):
    store.save(camera(), UsualLevels())
    assert not (tmp_path / "views").exists()


def test_an_unreadable_view_is_learned_again(store, tmp_path, caplog):
    store.save(camera(), known())
    (path,) = (tmp_path / "views").iterdir()
    path.write_bytes(b"half")
    assert store.load(camera()) is None
    assert "not a saved view" in caplog.text


def test_an_unwritable_folder_is_logged_once(tmp_path, caplog):
    (tmp_path / "views").write_text("a file")
    store = ViewStore(tmp_path / "views")
    for _ in range(3):
        store.save(camera(), known())
    assert caplog.text.count("cannot be saved") == 1


def test_cameras_are_saved_in_turn(store):
    cameras = {"a": 1, "b": 2}
    assert store.next_due(cameras, NOON) is None
    due = [store.next_due(cameras, NOON + EVERY_NS + second * SECOND) for second in range(4)]
    assert sorted(name for name in due if name) == [1, 2]
    assert store.next_due({}, NOON) is None


def test_only_the_most_recently_saved_views_are_stored(store, tmp_path, monkeypatch):
    monkeypatch.setattr("embereye.camera.device.view_store.MAX_VIEWS", 3)
    cameras, usual_levels = [Device(id=f"yard/{number}") for number in range(10)], known()
    for number, camera_device in enumerate(cameras):
        before = set((tmp_path / "views").glob("*"))
        store.save(camera_device, usual_levels)
        (saved,) = set((tmp_path / "views").glob("*")) - before
        os.utime(saved, (number, number))
    store.save(cameras[9], usual_levels)
    assert [bool(store.load(camera_device)) for camera_device in cameras] == [False] * 7 + [True] * 3
