import asyncio
import errno
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from harness.settings import camera_settings

from embereye.camera.annotate import Annotator
from embereye.camera.coco import CocoFolder
from embereye.camera.decode.image import decode
from embereye.camera.recording import Settings, watch
from embereye.camera.sources.video.player import frames
from embereye.levels import Kind, Level
from embereye.process.lifecycle import UserError
from embereye.sim.cameras.mjpeg import serve_mjpeg
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.sim.scenes.scene import Room
from embereye.units import SECOND
from embereye.wire.jpeg.header import read_header
from embereye_cli.devices.detect import expand, settings_of
from embereye_cli.main import main

RATE = 15.0


def record(path, jpegs, rate=RATE):
    pictures = [decode(jpeg, 1) for jpeg in jpegs]
    height, width = pictures[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), rate, (width, height))
    for picture in pictures:
        writer.write(picture)
    writer.release()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, room = tmp_path_factory.mktemp("clips"), Room(320, 240, 4)
    record(folder / "fire.avi", [*room.quiet(15), *room.fire(2.0, 90, RATE)])
    record(folder / "walk.avi", room.walk(60))
    (folder / "notes.txt").write_text("not a clip")
    return folder


def test_a_fire_in_a_recording_raises_an_alarm_with_its_reasons(folder):
    replay = watch(str(folder / "fire.avi"), Settings(settings_of("")))
    (alarm,) = replay.alarms
    assert alarm.kind == Kind.FLAME
    assert 1.0 < alarm.time < 1.0 + 6.0, "the network takes a drawn fire for one at times"
    flame = next(detection for detection in replay.detections if detection.kind == Kind.FLAME)
    assert flame.level == Level.ALARM
    assert flame.start < alarm.time
    assert {term.name for term in flame.why} >= {"flame.flicker", "flame.lasted"}
    assert replay.frames == 105
    assert replay.seconds == pytest.approx(104 / RATE, abs=0.01)


def test_json_has_all_results_also_after_an_unreadable_source(folder, tmp_path, capsys):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"this is no video")
    assert main(["detect", "--json", str(broken), str(folder), "/does/not/exist.mp4"]) == 2
    out, err = capsys.readouterr()
    results = json.loads(out)
    assert [entry["file"] for entry in results] == [
        str(broken), str(folder / "fire.avi"), str(folder / "walk.avi"), "/does/not/exist.mp4",
    ]  # fmt: skip
    assert all(
        set(entry) == {"file", "seconds", "frames", "detections", "alarms", "faults", "nearest"} for entry in results
    )
    fire, walk = results[1], results[2]
    assert [alarm["kind"] for alarm in fire["alarms"]] == ["flame"]
    assert set(fire["detections"][0]) >= {"start", "kind", "score", "box", "why"}
    assert set(fire["detections"][0]["why"][0]) == {"name", "value", "threshold", "unit"}
    assert walk["alarms"] == walk["detections"] == walk["faults"] == []
    assert {words.partition(":")[0] for words in walk["nearest"]} == {"flame", "smoke"}
    assert all(" short, " in words for words in walk["nearest"])
    assert f"{broken}: not a readable video" in err
    assert "exist.mp4: does not exist. Name a video file" in err


def test_results_are_printed_for_people_too(folder, capsys):
    assert main(["detect", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "flame alarm at" in out
    assert "no alarm" in out
    assert "flicker" in out


def test_a_lower_rate_analyses_fewer_frames_of_the_same_time(tmp_path):
    room = Room(320, 240, 4)
    film = record(tmp_path / "fire.avi", [*room.quiet(15), *room.fire(2.0, 150, RATE)])
    replay = watch(str(film), Settings(settings_of("flame"), fps=5.0))
    assert replay.frames == pytest.approx(55, abs=1)
    assert replay.seconds == pytest.approx(164 / RATE, abs=0.3)
    assert replay.alarms


def test_only_the_named_detectors_run(folder):
    assert not watch(str(folder / "fire.avi"), Settings(settings_of("smoke, motion"))).alarms


def test_a_black_picture_is_a_fault_and_not_clear(tmp_path):
    room = Room(320, 240, 4)
    black = cv2.imencode(".jpg", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    replay = watch(str(record(tmp_path / "dark.avi", [*room.quiet(15), *[black] * 90])), Settings(settings_of("")))
    assert replay.faults
    assert replay.faults[0].start > 1.0


@pytest.mark.parametrize("linked", [False, True])
def test_an_annotated_video_does_not_overwrite_its_recording(linked, folder, tmp_path, capsys):
    film, out = tmp_path / "fire.mp4", tmp_path / "seen.mp4"
    film.write_bytes((folder / "fire.avi").read_bytes())
    if linked:
        out.symlink_to(film)
    else:
        out = film
    assert main(["detect", "--annotate", str(out), str(film)]) == 2
    assert f"--annotate {out} is the recording itself" in capsys.readouterr().err
    assert film.read_bytes() == (folder / "fire.avi").read_bytes()


def test_a_folder_that_cannot_be_read_is_named(folder, monkeypatch, capsys):
    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert main(["detect", str(folder)]) == 2
    assert capsys.readouterr().err == f"embereye: {folder} cannot be read: Permission denied\n"


def test_a_cameras_answer_cannot_steer_the_terminal(capsys):
    with socket.create_server(("127.0.0.1", 0)) as camera:

        def answer():
            connection, _ = camera.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 404 No\x1b[2J\r\nContent-Length: 0\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        assert main(["detect", f"http://127.0.0.1:{camera.getsockname()[1]}/stream"]) == 2
        answering.join()
    assert capsys.readouterr().err.endswith(": HTTP 404 Not Found\n\n")  # nothing of the camera's own words


def test_an_annotated_video_plays_as_long_as_the_recording(folder, tmp_path):
    out = tmp_path / "seen.mp4"
    assert main(["detect", "--annotate", str(out), str(folder / "fire.avi")]) == 0
    video = cv2.VideoCapture(str(out))
    count = 0
    while video.read()[0]:
        count += 1
    assert count == pytest.approx(105, abs=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--detectors", "flame,ghosts", "x.mp4"], '--detectors: "ghosts" is not one of flame, heat, motion, smoke'),
        (["--fps", "-3", "x.mp4"], "--fps -3 is not"),
        (["--annotate", "o.mp4", "a.mp4", "b.mp4"], "needs exactly one recording, not 2"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(arguments, words, capsys):
    assert main(["detect", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_frame_that_cannot_be_decoded_is_left_out_of_an_annotated_video(tmp_path):
    whole = next(iter(Room(320, 240, 4).quiet(1)))
    annotator = Annotator(tmp_path / "seen.mp4")
    for number, data in enumerate([whole, whole[: len(whole) // 2], whole]):
        annotator.add(data, number / RATE, None)
    annotator.close()
    assert len(list(frames(str(tmp_path / "seen.mp4")))) == 3


def test_a_folder_without_videos_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no video"):
        list(expand([str(tmp_path)]))


def test_detect_and_a_file_source_read_the_same_frames(folder):
    """`embereye detect` and a fleet's file source read files by the same function, so they see the same bytes."""
    played = list(frames(str(folder / "fire.avi")))
    header = read_header(played[0][0])
    assert (header.width, header.height, header.complete) == (320, 240, True)
    times = [seconds for _, seconds in played]
    assert times[0] == 0.0
    assert np.allclose(np.diff(times), 1 / RATE, atol=0.002)


@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_a_video_stream_is_analysed_as_pictures(encoding):
    cameras = await prepare([CameraSpec("a")], fps=15, size=(160, 120))
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(cameras, "127.0.0.1", 0, stop, port.set_result, encoding))
    pictures = []
    settings = Settings(camera_settings(), seconds=4.0)
    address = f"rtsp://127.0.0.1:{await port}/a"
    replay = await asyncio.to_thread(watch, address, settings, lambda data, *_: pictures.append(data))
    stop.set()
    await server
    assert replay.frames >= 10
    assert all(read_header(data).complete for data in pictures)


async def test_setting_the_wall_clock_does_not_change_a_streams_time(monkeypatch):
    cameras = await prepare([CameraSpec("a")], fps=15, size=(160, 120))
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_mjpeg(cameras, "127.0.0.1", 0, stop, port.set_result))
    address, wall, hours, pictures = f"http://127.0.0.1:{await port}/a.mjpg", time.time_ns, itertools.count(), []
    monkeypatch.setattr(time, "time_ns", lambda: wall() - next(hours) * 3600 * SECOND)
    settings = Settings(camera_settings(), seconds=4.0)
    await asyncio.to_thread(watch, address, settings, lambda _, seconds, __: pictures.append(seconds))
    stop.set()
    await server
    assert len(pictures) >= 10
    assert all(before < after for before, after in itertools.pairwise(pictures))


@pytest.mark.parametrize("encoding", ["H264", "JPEG"])
async def test_an_unwritable_output_ends_a_stream_with_the_reason(encoding, tmp_path, capsys):
    cameras = await prepare([CameraSpec("a")], fps=15, size=(160, 120))
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(cameras, "127.0.0.1", 0, stop, port.set_result, encoding))
    words = ["detect", "--for", "20", "--annotate", str(tmp_path / "none" / "seen.mp4")]
    assert await asyncio.to_thread(main, [*words, f"rtsp://127.0.0.1:{await port}/a"]) == 2
    stop.set()
    await server
    assert f"embereye: --annotate {tmp_path}/none/seen.mp4: cannot be written" in capsys.readouterr().err


def test_a_second_coco_export_of_the_same_recording_adds_no_stills(folder, tmp_path, capsys):
    data = tmp_path / "data"
    assert main(["detect", "--coco", str(data), str(folder / "fire.avi")]) == 0
    first = json.loads((data / "annotations.json").read_text())
    assert first["images"], "a fire was seen"
    assert {box["category_id"] for box in first["annotations"]} == {1}
    for image in first["images"]:
        assert cv2.imread(str(data / "images" / image["file_name"])).shape == (image["height"], image["width"], 3)
    for box in first["annotations"]:
        x, y, width, height = box["bbox"]
        assert 0 <= x <= x + width <= 320
        assert 0 <= y <= y + height <= 240
        assert box["image_id"] in {image["id"] for image in first["images"]}
    assert main(["detect", "--coco", str(data), str(folder / "fire.avi")]) == 0
    assert json.loads((data / "annotations.json").read_text()) == first
    capsys.readouterr()


def test_an_export_does_not_change_boxes_that_people_corrected(folder, tmp_path):
    data = tmp_path / "data"
    assert main(["detect", "--coco", str(data), str(folder / "fire.avi")]) == 0
    corrected = json.loads((data / "annotations.json").read_text())
    corrected["annotations"] = [{**corrected["annotations"][0], "id": 1, "bbox": [1.0, 2.0, 3.0, 4.0]}]
    (data / "annotations.json").write_text(json.dumps(corrected))
    assert main(["detect", "--coco", str(data), str(folder / "fire.avi")]) == 0
    assert json.loads((data / "annotations.json").read_text())["annotations"] == corrected["annotations"]


def test_recordings_without_fire_are_exported_without_boxes(folder, tmp_path):
    data = tmp_path / "data"
    assert main(["detect", "--coco", str(data), str(folder / "fire.avi")]) == 0
    fires = json.loads((data / "annotations.json").read_text())
    assert main(["detect", "--coco", str(data), "--no-fire", str(folder / "walk.avi")]) == 0
    both = json.loads((data / "annotations.json").read_text())
    assert len(both["images"]) > len(fires["images"])
    assert [box["bbox"] for box in both["annotations"]] == [box["bbox"] for box in fires["annotations"]]


def test_a_folder_of_something_else_is_not_overwritten(folder, tmp_path, capsys):
    (tmp_path / "annotations.json").write_text("[]")
    assert main(["detect", "--coco", str(tmp_path), str(folder / "walk.avi")]) == 2
    assert "not a data set in COCO's format" in capsys.readouterr().err
    assert (tmp_path / "annotations.json").read_text() == "[]"


def test_no_fire_without_a_folder_for_it_is_refused(folder, capsys):
    assert main(["detect", "--no-fire", str(folder / "walk.avi")]) == 2
    assert "--coco" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_failure(folder):
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "embereye_cli", "detect", folder / "walk.avi"]
    with os.fdopen(writer) as closed:
        ended = subprocess.run(words, check=False, stdout=closed, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr.strip()) == (0, b"")


def test_an_unwritable_data_set_is_reported_before_the_analysis(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["detect", "--coco", str(data), str(folder / "walk.avi")]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert f"--coco {data}: cannot be written: Not a directory" in printed.err


def test_results_are_printed_even_if_the_data_set_cannot_be_written(folder, tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(CocoFolder, "save", refuse)
    assert main(["detect", "--json", "--coco", str(tmp_path / "data"), str(folder / "walk.avi")]) == 2
    printed = capsys.readouterr()
    assert [result["frames"] for result in json.loads(printed.out)] == [60]
    assert "cannot be written: No space left on device" in printed.err
