"""The index of stored clips."""

import subprocess
import sys
from typing import Any

import pytest

from embereye.hub.clips.index import Batch, ClipIndex, Place
from embereye.v1.clips_pb2 import Clip

# A process that indexes clips and prints its growth in bytes for each of the latest ones.
GROWTH = """
import asyncio, os, sys, tempfile, time
from hashlib import sha256
from pathlib import Path
from embereye.hub.clips.store import ClipStore
from embereye.process.telemetry.usage import resident_mb
from embereye.v1.clips_pb2 import Clip

def clip(number, data):
    now = time.time_ns()
    return Clip(
        sha256=sha256(data).hexdigest(), media=Clip.MEDIA_LINES, fleet="default/SensorFleet/hall", kind=1,
        device=f"sensor-{number % 40}", zone=f"zone-{number % 40}", episode=f"sensor-{number % 40}-smoke-{now}",
        from_ns=now - 10**10, until_ns=now, bytes=len(data), frames=20, retention_ns=10**15,
    )

async def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        clips, count, before = ClipStore(Path(folder)), 2_000, 0.0
        await clips.open()
        for number in range(count + 500):
            if number == 500:
                before = resident_mb(os.getpid())
            data = b"%d" % number
            assert await clips.store([(clip(number, data), data)]) == [None]
        print((resident_mb(os.getpid()) - before) * 2**20 / count)
        await clips.close()

asyncio.run(main())
"""


def test_an_indexed_clip_takes_less_than_a_kilobyte_and_a_half() -> None:
    run = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 1_500


def named(number: int, **fields: Any) -> Clip:
    return Clip(**{"sha256": f"{number:064x}", "until_ns": number, "bytes": 10, **fields})


def test_a_query_returns_the_clip_as_described() -> None:
    index = ClipIndex()
    clip = named(1, episode="e", from_ns=0, note="the first half", kept_ns=7, retention_ns=5, media=Clip.MEDIA_STILL)
    index.add(clip)
    assert (index.get(clip.sha256), index.of_episodes(["e"]), index.between(0, 5)) == (clip, [clip], [clip])
    assert (len(index), index.bytes, index.has_clip(clip.sha256)) == (1, 10, True)
    index.remove(clip)
    assert (index.get(clip.sha256), len(index), index.bytes, index.has_clip(clip.sha256)) == (None, 0, 0, False)


def test_newest_sorts_by_frame_time_and_oldest_by_storing_time() -> None:
    index = ClipIndex()
    clips = [named(number, kept_ns=100 - number) for number in (3, 1, 2)]
    for clip in clips:
        index.add(clip)
    assert [clip.until_ns for clip in index.newest(2)] == [3, 2]
    assert index.oldest() == [f"{number:064x}" for number in (3, 2, 1)]


@pytest.mark.parametrize(
    ("retention_ns", "is_expired"), [(0, False), (5, True), (6, False), (2**63 - 1, False), (-(2**63), True)]
)
def test_a_clip_expires_after_its_retention(retention_ns: int, is_expired: bool) -> None:
    index = ClipIndex()
    index.add(named(1, kept_ns=100, retention_ns=retention_ns))
    assert bool(index.expired(106)) == is_expired


@pytest.mark.parametrize(
    ("stored_by", "retention_ns", "is_expired"),
    [("", 0, True), ("", 9, False), ("robot", 0, False), ("robot", 5, True)],
)
def test_a_shards_clip_without_retention_expires_with_the_history(
    stored_by: str, retention_ns: int, is_expired: bool
) -> None:
    index = ClipIndex(recordings_ns=5)
    index.add(named(1, kept_ns=100, retention_ns=retention_ns, stored_by=stored_by))
    assert bool(index.expired(106)) == is_expired


def test_the_place_of_a_whole_clip_is_returned() -> None:
    index, batch = ClipIndex(), Batch("several.described")
    whole, parts = named(1), named(2)
    index.add(whole, Place(f"{whole.sha256}-1a-2b.jpg", batch))
    index.add(parts)
    assert index.place(whole.sha256) == Place(f"{whole.sha256}-1a-2b.jpg", batch)
    assert (index.place(parts.sha256), index.file_names()) == (None, {f"{whole.sha256}-1a-2b.jpg"})
