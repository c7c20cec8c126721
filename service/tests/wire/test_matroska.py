import json
import subprocess

import cv2
import numpy as np
import pytest
from harness.need import FFMPEG

from embereye.units import MILLISECOND
from embereye.wire.matroska import MatroskaError, Muxer, frames

START = 1_795_000_000_123_000_000


def jpeg(level, size=(48, 64)):
    picture = np.full((*size, 3), level, np.uint8)
    return cv2.imencode(".jpg", picture)[1].tobytes()


PICTURES = [jpeg(20 + 10 * number) for number in range(20)]
TIMES = [START + at * MILLISECOND for at in [0, 40, 90, 300, *range(1000, 9000, 500)]]


def clip(times=TIMES):
    muxer = Muxer(64, 48, "gate", times[0])
    data = bytearray(muxer.begin())
    for picture, time_ns in zip(PICTURES, times, strict=False):
        data += muxer.frame(picture, time_ns)
    tail, patches = muxer.finish()
    data += tail
    for patch in patches:
        data[patch.offset : patch.offset + len(patch.data)] = patch.data
    return bytes(data)


def test_frames_and_their_times_are_read_back_from_a_file():
    read = list(frames(clip()))
    assert [still.jpeg for still in read] == PICTURES
    assert [still.time_ns for still in read] == TIMES


def test_a_frame_not_later_than_the_previous_one_is_left_out():
    read = list(frames(clip([START, START + MILLISECOND, START, START + MILLISECOND, START + 2 * MILLISECOND])))
    assert [still.time_ns - START for still in read] == [0, MILLISECOND, 2 * MILLISECOND]


def test_the_whole_frames_of_a_truncated_file_are_read():
    whole = clip()
    counts = [len(list(frames(whole[:length]))) for length in range(4, len(whole), 7)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == len(PICTURES)


def test_other_files_are_refused_and_damage_does_not_hang_the_reader():
    with pytest.raises(MatroskaError):
        list(frames(b"\xff\xd8 a picture"))
    rng = np.random.default_rng(5)
    whole = bytearray(clip())
    for _ in range(200):
        damaged = whole.copy()
        for place in rng.integers(4, len(whole), 20):
            damaged[place] = rng.integers(256)
        list(frames(bytes(damaged)))


@pytest.mark.needs(FFMPEG)
def test_ffprobe_reads_codec_size_duration_and_every_time(tmp_path):
    path = tmp_path / "clip.mkv"
    path.write_bytes(clip())
    command = ["ffprobe", "-v", "error", "-print_format", "json", "-show_format", "-show_streams", "-show_packets"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == ""
    probe = json.loads(done.stdout)
    (stream,) = probe["streams"]
    assert (stream["codec_name"], stream["width"], stream["height"]) == ("mjpeg", 64, 48)
    assert float(probe["format"]["duration"]) == pytest.approx(8.5, abs=0.05)
    times = [round(1000 * float(packet["pts_time"])) for packet in probe["packets"]]
    assert times == [(time_ns - START) // MILLISECOND for time_ns in TIMES]


@pytest.mark.needs(FFMPEG)
def test_a_player_seeks_to_a_second_in_the_middle(tmp_path):
    path = tmp_path / "clip.mkv"
    path.write_bytes(clip())
    command = [
        "ffprobe",
        "-v",
        "error",
        "-read_intervals",
        "6%+#1",
        "-show_entries",
        "packet=pts_time",
        "-of",
        "csv=p=0",
    ]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True, timeout=30)
    assert 5.0 <= float(done.stdout.split()[0].strip(",")) <= 6.0


def test_opencv_decodes_every_frame(tmp_path):
    path = tmp_path / "clip.mkv"
    path.write_bytes(clip())
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    levels = []
    while True:
        whole, picture = video.read()
        if not whole:
            break
        levels.append(round(float(picture.mean())))
    assert levels == [20 + 10 * number for number in range(20)]


def test_a_file_without_its_end_plays(tmp_path):
    path = tmp_path / "cut.mkv"
    path.write_bytes(clip()[:-2000])
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    assert video.read()[0]
