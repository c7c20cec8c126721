"""A hub uploads evidence to a bucket of moto's server, over failures of either side."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.in_process import report, running_hub, sign

from embereye.addons.archive.bucket import Bucket
from embereye.addons.archive.options import ArchiveOptions, read_archive
from embereye.addons.archive.places import PlaceError
from embereye.addons.archive.tables import ARCHIVED
from embereye.addons.archive.tests.buckets import MotoBucket, open_bucket
from embereye.addons.archive.uploader import Uploader
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.tables.transaction import Rows
from embereye.levels import Kind
from embereye.process.lifecycle import UserError
from embereye.v1.clips_pb2 import Clip

JPEG = b"\xff\xd8 a picture \xff\xd9"


class TestedArchive(Addon):
    """The add-on with moto's header."""

    __test__ = False

    def __init__(self, options: ArchiveOptions) -> None:
        self._options = options

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        progress = Rows(ARCHIVED)
        hub.add_part(progress)
        uploader = Uploader(hub, clips, progress, self._options, open_bucket=open_bucket)
        return Parts(tasks={"archive": uploader.run})


def options_for(bucket: MotoBucket, folder: Path) -> ArchiveOptions:
    keys = folder / "keys"
    keys.mkdir(exist_ok=True)
    (keys / "access-key-id").write_text("key\n")
    (keys / "secret-access-key").write_text("secret\n")
    return ArchiveOptions(bucket.name, "site-1", endpoint=bucket.url, credentials=keys, timeout=20)


@contextlib.asynccontextmanager
async def archiving(folder: Path, options: ArchiveOptions) -> AsyncIterator[tuple[Hub, Uploader, ClipStore]]:
    async with running_hub(folder / "hub", lambda: TestedArchive(options)) as (hub, parts):
        uploader: Uploader = parts.tasks["archive"].__self__  # type: ignore[attr-defined]
        yield hub, uploader, uploader._clips


async def store_clip(clips: ClipStore, content: bytes, media: Clip.Media.ValueType = Clip.MEDIA_CLIP) -> str:
    digest = hashlib.sha256(content).hexdigest()
    clip = Clip(
        sha256=digest, media=media, fleet="default/cameras/yard", device="cam-1", zone="hall", kind=Kind.SMOKE.wire,
        episode="e", from_ns=10**18, until_ns=10**18 + 10**9, bytes=len(content), frames=1, width=2, height=2,
    )  # fmt: skip
    assert await clips.store([(clip, content)]) == [None]
    return digest


async def test_events_pictures_and_clips_arrive_with_hash_lock_and_audit(bucket: MotoBucket, tmp_path: Path) -> None:
    async with archiving(tmp_path, options_for(bucket, tmp_path)) as (hub, uploader, clips):
        await eventually(lambda: "events" in uploader._progress)
        item = sign()
        item.snapshot = JPEG
        report(hub, item)
        digest = await store_clip(clips, b"content of a clip")
        await eventually(lambda: len(bucket.names) == 3)
        picture, clip, events = sorted(bucket.names)
        assert picture.startswith("site-1/alarms/")
        assert picture.endswith("/s-01-smoke.jpg")
        assert clip == f"site-1/clips/2001/09/09/hall-cam-1-{digest}.mkv"
        lines = [json.loads(line) for line in bucket.get(events)["Body"].splitlines()]
        assert [line["state"] for line in lines] == ["ZONE_STATE_ALARM"]
        for name, content in ((picture, JPEG), (clip, b"content of a clip")):
            stored = bucket.get(name)
            assert stored["Body"] == content
            assert stored["Metadata"]["sha256"] == hashlib.sha256(content).hexdigest()
            assert stored["ObjectLockMode"] == "COMPLIANCE"
        await eventually(lambda: uploader.lag_ns == 0 and uploader.waiting_events == 0)
        trail = [(entry.who, entry.detail) for entry in await hub.history.audit(0, 100)]
        assert ("archive", f"SHA-256 {digest}") in trail
        assert ("archive", f"SHA-256 {hashlib.sha256(JPEG).hexdigest()}") in trail


async def test_after_an_outage_everything_follows_oldest_first(bucket: MotoBucket, tmp_path: Path) -> None:
    async with archiving(tmp_path, options_for(bucket, tmp_path)) as (hub, uploader, clips):
        await eventually(lambda: "events" in uploader._progress)
        bucket.stop()
        report(hub, sign())
        await eventually(lambda: bool(uploader.failing))
        digests = [await store_clip(clips, f"clip {number}".encode()) for number in range(3)]
        await eventually(lambda: uploader.lag_ns > 0)
        bucket.start()
        await eventually(lambda: len(bucket.names) == 4)
        assert {digest for digest in digests if any(digest in name for name in bucket.names)} == set(digests)
        await eventually(lambda: not uploader.failing)


async def test_a_restarted_hub_continues_where_it_was(bucket: MotoBucket, tmp_path: Path) -> None:
    options = options_for(bucket, tmp_path)
    async with archiving(tmp_path, options) as (hub, uploader, clips):
        await eventually(lambda: "events" in uploader._progress)
        report(hub, sign())
        await eventually(lambda: len(bucket.names) == 1)
        bucket.stop()
        report(hub, sign("yard", "s-02"))
        await store_clip(clips, b"clip")
        await eventually(lambda: bool(uploader.failing))
        await hub.committer.flush(30)
    bucket.start()
    async with archiving(tmp_path, options) as (_, uploader, _clips):
        await eventually(lambda: len([name for name in bucket.names if "clips" in name]) == 1)
        events = [name for name in bucket.names if "events" in name]
        zones = {json.loads(line)["zone"] for name in events for line in bucket.get(name)["Body"].splitlines()}
        assert "yard" in zones


async def test_a_wrong_bucket_or_address_is_named(bucket: MotoBucket, tmp_path: Path) -> None:
    options = options_for(bucket, tmp_path)
    nowhere = ArchiveOptions("nowhere", endpoint=bucket.url, credentials=options.credentials)
    with pytest.raises(PlaceError, match=r"there is no such bucket \(NoSuchBucket\)"):
        await Bucket(nowhere).put("a", b"a", "text/plain", {})
    bucket.stop()
    with pytest.raises(PlaceError, match=r"cannot be reached|no answer"):
        await Bucket(options).put("a", b"a", "text/plain", {})
    with pytest.raises(PlaceError, match="No such file"):
        Bucket(ArchiveOptions("a", credentials=tmp_path / "none"))


async def test_garbage_from_the_service_is_a_failure_and_no_more(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x00nonsense\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        options = ArchiveOptions("evidence", endpoint=f"http://127.0.0.1:{port}", timeout=5)
        with pytest.raises(PlaceError):
            await Bucket(options, {}).put("a", b"a", "text/plain", {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{}", "bucket is missing"),
        ("bucket: A", 'bucket: "A" is not the name of a bucket'),
        ("{bucket: abc, endpoint: ftp://x}", "is not of the form https://HOST:PORT"),
        ("{bucket: abc, lock: 1}", "lock is not a field"),
        ("{bucket: abc, folder: /mnt}", "the file names a bucket, too"),
        ("{folder: /mnt, prefix: a/../..}", "leads out of the folder"),
        ("{folder: mnt}", 'folder: "mnt" is not an absolute path'),
    ],
)
def test_a_wrong_file_is_refused(content: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "archive.yaml"
    file.write_text(content)
    with pytest.raises(UserError) as refused:
        read_archive(file)
    assert sentence in str(refused.value)
