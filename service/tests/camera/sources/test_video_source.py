import asyncio
import signal
import subprocess

import cv2
import numpy as np
import pytest
from harness.eventually import eventually
from harness.need import FFMPEG

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.source import keep_playing
from embereye.camera.sources.video import source as video
from embereye.camera.sources.video.source import FileSource
from embereye.process.timing.backoff import Backoff
from embereye.wire.jpeg.header import read_header


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 30.0, (64, 48))
    for number in range(6):
        writer.write(np.full((48, 64, 3), 40 * number, np.uint8))
    writer.release()
    return path


async def test_a_file_is_played_over_and_over(clip):
    frames, states = [], []
    source = FileSource(str(clip), asyncio.Semaphore(1))
    player = asyncio.ensure_future(source.play(lambda data, *_: frames.append(data), states.append))
    await eventually(lambda: len(frames) > 8)
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)
    assert states == ["streaming"]
    header = read_header(frames[0])
    assert (header.width, header.height, header.complete) == (64, 48, True)


async def test_cancelling_ends_the_player_process(clip):
    source = FileSource(str(clip), asyncio.Semaphore(1))
    player = asyncio.ensure_future(source.play(lambda *_: None, lambda _: None))
    await eventually(lambda: source.process)
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)
    assert source.process.returncode is not None


async def test_a_killed_player_is_started_again(clip):
    source, frames, states = FileSource(str(clip), asyncio.Semaphore(1)), [], []
    player = asyncio.ensure_future(
        keep_playing("c", source, lambda data, *_: frames.append(data), states.append, Backoff(0.01, 0.02))
    )
    await eventually(lambda: frames)
    killed = source.process
    killed.kill()
    await eventually(lambda: any("ended with exit code -9" in state for state in states))
    seen = len(frames)
    await eventually(lambda: len(frames) > seen)
    assert source.process is not killed
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)


@pytest.mark.needs(FFMPEG)
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
async def test_a_file_of_another_codec_is_decoded_by_the_player(codec, tmp_path):
    path = tmp_path / "clip.mp4"
    command = [
        "ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", "color=red:size=160x120:rate=30", "-frames:v", "5",
        "-c:v", codec, "-preset", "ultrafast", str(path),
    ]  # fmt: skip
    if (await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)).returncode:
        pytest.skip(f"needs an FFmpeg with {codec}: Debian's, which `make peers` installs, has it")
    frames, states = [], []
    source = FileSource(str(path), asyncio.Semaphore(1))
    player = asyncio.ensure_future(source.play(lambda data, *_: frames.append(data), states.append))
    await eventually(lambda: len(frames) > 6)
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)
    picture = cv2.imdecode(np.frombuffer(frames[6], np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (120, 160, 3)
    assert np.abs(picture.reshape(-1, 3).mean(0) - (0, 0, 254)).max() < 8


async def test_a_hanging_player_is_killed_and_started_again(clip, monkeypatch):
    monkeypatch.setattr(video, "STALL_SECONDS", 0.3)
    source, frames, states = FileSource(str(clip), asyncio.Semaphore(1)), [], []
    player = asyncio.ensure_future(
        keep_playing("c", source, lambda data, *_: frames.append(data), states.append, Backoff(0.01, 0.02))
    )
    await eventually(lambda: frames)
    hung = source.process
    hung.send_signal(signal.SIGSTOP)
    await eventually(lambda: "failed: no frame within 0.3 s" in states)
    assert hung.returncode == -signal.SIGKILL
    seen = len(frames)
    await eventually(lambda: len(frames) > seen)
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)


async def test_a_missing_file_or_one_without_video_is_reported(tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"this is no video")
    for path, text in ((tmp_path / "none.mp4", "not a file"), (broken, "not a readable video")):
        with pytest.raises(SourceError, match=text):
            await FileSource(str(path), asyncio.Semaphore(1)).play(lambda *_: None, lambda _: None)
