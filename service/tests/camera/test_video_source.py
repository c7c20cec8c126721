import asyncio

import cv2
import numpy as np
import pytest

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.source import keep_playing
from embereye.camera.sources.video import FileSource
from embereye.process.backoff import Backoff
from embereye.wire.jpeg import read_header

from .conftest import eventually


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 30.0, (64, 48))
    for number in range(6):
        writer.write(np.full((48, 64, 3), 40 * number, np.uint8))
    writer.release()
    return path


async def test_a_file_is_played_over_and_over(clip):
    frames, states = [], []
    player = asyncio.ensure_future(FileSource(str(clip), asyncio.Semaphore(1)).play(frames.append, states.append))
    await eventually(lambda: len(frames) > 8)
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)
    assert states == ["streaming"]
    header = read_header(frames[0])
    assert (header.width, header.height, header.complete) == (64, 48, True)


async def test_cancelling_ends_the_player_process(clip):
    source = FileSource(str(clip), asyncio.Semaphore(1))
    player = asyncio.ensure_future(source.play(lambda _: None, lambda _: None))
    await eventually(lambda: source.process)
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)
    assert source.process.returncode is not None


async def test_a_player_that_is_killed_is_started_again(clip):
    source, frames, states = FileSource(str(clip), asyncio.Semaphore(1)), [], []
    player = asyncio.ensure_future(
        keep_playing("c", source, lambda data, *_: frames.append(data), states.append, Backoff(0.01, 0.02))
    )
    await eventually(lambda: frames)
    killed = source.process
    killed.kill()
    await eventually(lambda: any("ended with code -9" in state for state in states))
    seen = len(frames)
    await eventually(lambda: len(frames) > seen)
    assert source.process is not killed
    player.cancel()
    await asyncio.gather(player, return_exceptions=True)


async def test_a_file_that_is_not_there_or_no_video_is_told(tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"this is no video")
    for path, text in ((tmp_path / "none.mp4", "is not a file"), (broken, "not a video that can be read")):
        with pytest.raises(SourceError, match=text):
            await FileSource(str(path), asyncio.Semaphore(1)).play(lambda _: None, lambda _: None)
