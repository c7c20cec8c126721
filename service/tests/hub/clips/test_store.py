"""Clips from a shard's disk to the hub's disk, and from there to people."""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import cv2
import grpc
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from embereye.camera.clips.recorder import Recorder
from embereye.camera.clips.ring import ClipFrame
from embereye.camera.clips.spool import ClipSpool
from embereye.hub.clips import store as clips_module
from embereye.hub.clips.store import ClipStore, NoRoomError
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http import replay as replay_module
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.services.clips import ClipsService
from embereye.levels import Kind, Level, Sense
from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import Tasks
from embereye.shard.clips import delivery as delivery_module
from embereye.shard.clips.delivery import Delivery
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip, ClipChunk, FetchClipRequest, HeldResponse, ListClipsRequest
from embereye.v1.clips_pb2_grpc import ClipsStub, add_ClipsServicer_to_server
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.wire.matroska import Muxer, frames

JPEG = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()

if TYPE_CHECKING:
    from embereye.v1.clips_pb2_grpc import ClipsAsyncStub


def content(seconds: float = 3.0, seed: int = 0) -> bytes:
    began = time.time_ns() // 1_000_000 * 1_000_000 - 5 * SECOND + seed
    muxer = Muxer(64, 48, f"clip {seed}", began)
    data = muxer.begin()
    for number in range(int(seconds * 10)):
        data += muxer.frame(JPEG, began + number * SECOND // 10)
    return data + muxer.finish()[0]


def described(data: bytes, **fields: Any) -> Clip:
    now = time.time_ns()
    known: dict[str, Any] = {
        "media": Clip.MEDIA_CLIP,
        "device": "gate",
        "episode": "e1",
        "until_ns": now,
        "from_ns": now - 3 * SECOND,
    }
    return Clip(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), **{**known, **fields})


TOKEN = "an-admins-token-of-forty-characters-or-so"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Running:
    hub: Hub
    clips: ClipStore
    stub: "ClipsAsyncStub"
    control: "ClipsAsyncStub"
    address: str
    base: str
    folder: Path

    async def deliver(self, data: bytes, clip: Clip, offset: int = 0, upto: int | None = None) -> None:
        async def chunks() -> AsyncIterator[ClipChunk]:
            yield ClipChunk(clip=clip, offset=offset)
            for start in range(offset, upto or len(data), 1000):
                yield ClipChunk(offset=start, data=data[start : min(start + 1000, upto or len(data))])

        await self.control.Deliver(chunks(), timeout=10)

    async def alarm(self, episode: str = "e1") -> str:
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{episode}-1", episode=episode, fleet="default/cameras/yard", device="gate", zone="yard",
            kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
        )  # fmt: skip
        self.hub.inbox.admit(item, lambda _: None)
        await self.hub.committer.flush(10)
        return next(zone.alarm for zone in self.hub.zones.messages() if zone.name == "yard")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A hub in this process, with its clips, over gRPC and HTTP."""
    clips = ClipStore(tmp_path / "clips", capacity=200_000)
    async with serve(tmp_path, clips) as running:
        await clips.open()
        yield running


@contextlib.asynccontextmanager
async def serve(folder: Path, clips: ClipStore) -> AsyncIterator[Running]:
    """Serve a hub with `clips` in this process, over gRPC and HTTP; close `clips` at the end."""
    store = StoreThreads(folder)
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    writing = asyncio.ensure_future(hub.run())
    service = Service(add_ClipsServicer_to_server, ClipsService(hub, clips), "embereye.v1.Clips")
    server, control = GrpcServer([service]), GrpcServer([service], control=True)
    people, address = (f"127.0.0.1:{opened_server.listen('127.0.0.1:0')}" for opened_server in (server, control))
    await server.start()
    await control.start()
    web = await serve_http(Api(hub, clips).app(CollectorRegistry()), "127.0.0.1", 0)
    async with channel(people) as link, channel(address) as opened:
        base = f"http://127.0.0.1:{bound_port(web)}"
        yield Running(hub, clips, ClipsStub(link), ClipsStub(opened), address, base, folder / "clips")
    await server.stop(0)
    await control.stop(0)
    await web.cleanup()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await clips.close()
    await store.close()


@contextlib.asynccontextmanager
async def serve_while_loading(running: Running, seconds: float) -> AsyncIterator[tuple[Running, Path]]:
    """Serve the clips of `running` again; reading them blocks until somebody writes to the path."""
    blocking = running.folder / "00" / "0.json"
    blocking.parent.mkdir(exist_ok=True)
    os.mkfifo(blocking)
    clips = ClipStore(running.folder, loading_seconds=seconds)
    loading = asyncio.ensure_future(clips.open())
    try:
        async with serve(running.folder.parent / "again", clips) as again:
            yield again, blocking
    finally:
        if not loading.done():
            await asyncio.to_thread(blocking.write_bytes, b"")
        await loading


async def fetch(stub: "ClipsAsyncStub", sha256: str) -> bytes:
    return b"".join([chunk.data async for chunk in stub.Fetch(FetchClipRequest(sha256=sha256), timeout=20)])


def clip_paths(clip: Clip) -> list[str]:
    address = f"/v1/clips/{clip.sha256}"
    return [f"{address}.mkv", f"{address}/frame.jpg", f"{address}.mjpg", "/v1/timeline", "/v1/alarms/0/clips"]


async def test_queries_wait_while_the_clips_are_being_read(running: Running) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)

    async def status(path: str) -> int:
        async with aiohttp.ClientSession(headers=SHOWN) as session, session.get(again.base + path) as answer:
            return answer.status

    async with serve_while_loading(running, 20) as (again, blocking):
        fetching = asyncio.ensure_future(fetch(again.stub, clip.sha256))
        listing = asyncio.ensure_future(again.stub.List(ListClipsRequest(), timeout=20))
        asking = [asyncio.ensure_future(status(path)) for path in clip_paths(clip)]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in (fetching, listing, *asking))
        await asyncio.to_thread(blocking.write_bytes, b"")
        assert await fetching == data
        assert [listed.sha256 for listed in (await listing).clips] == [clip.sha256]
        assert await asyncio.gather(*asking) == [200] * len(asking)


async def test_a_query_is_unavailable_if_reading_the_clips_takes_long(running: Running) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    async with serve_while_loading(running, 0.05) as (again, _):
        for call in (fetch(again.stub, clip.sha256), again.stub.List(ListClipsRequest(), timeout=20)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        async with aiohttp.ClientSession(headers=SHOWN) as session:
            for path in clip_paths(clip):
                async with session.get(again.base + path) as answer:
                    assert answer.status == 503
                    assert "still reads its clips" in (await answer.json())["error"]


async def test_a_clip_whose_description_cannot_be_read_is_not_called_missing(running: Running) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    description = running.clips.path(clip).with_suffix(".json")
    description.unlink()
    description.mkdir()  # reading it fails
    clips = ClipStore(running.folder)
    async with serve(running.folder.parent / "again", clips) as again:
        await clips.open()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fetch(again.stub, clip.sha256)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "cannot be read" in (caught.value.details() or "")


async def test_a_clip_is_stored_by_its_sha256_and_known_after_a_restart(running: Running) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    assert running.clips.path(clip).read_bytes() == data
    assert (await running.control.Held(clip)).whole
    again = ClipStore(running.folder)
    await again.open()
    reloaded = await again.find(clip.sha256[:8])
    assert reloaded is not None
    assert (reloaded.sha256, reloaded.until_ns, reloaded.bytes) == (clip.sha256, clip.until_ns, clip.bytes)
    assert again.size == len(data)
    await again.close()


async def test_an_interrupted_delivery_resumes_where_it_stopped(running: Running) -> None:
    data = content()
    clip = described(data)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.deliver(data, clip, upto=3000)
    assert caught.value.code() == grpc.StatusCode.ABORTED
    progress = await running.control.Held(clip)
    assert (progress.bytes, progress.whole) == (3000, False)
    await running.deliver(data, clip, offset=3000)
    assert running.clips.path(clip).read_bytes() == data


class Unidentified:
    """The context of a call without a client certificate."""

    def auth_context(self) -> dict[str, object]:
        return {}

    async def abort(self, code: grpc.StatusCode, why: str) -> None:
        raise grpc.aio.AbortError(f"{code}: {why}")


async def test_deliveries_of_the_same_clip_wait_for_each_other(running: Running) -> None:
    data = content()
    clip, half, service = described(data), len(data) // 2, ClipsService(running.hub, running.clips)
    disconnected, proceed, requested = asyncio.Event(), asyncio.Event(), [asyncio.Event() for _ in range(3)]

    async def interrupted() -> AsyncIterator[ClipChunk]:
        yield ClipChunk(clip=clip)
        requested[0].set()
        await disconnected.wait()

    async def complete(mine: asyncio.Event) -> AsyncIterator[ClipChunk]:
        yield ClipChunk(clip=clip)
        mine.set()
        yield ClipChunk(offset=0, data=data[:half])
        await proceed.wait()
        yield ClipChunk(offset=half, data=data[half:])

    def deliver(chunks: AsyncIterator[ClipChunk]) -> "asyncio.Task[HeldResponse]":
        return asyncio.ensure_future(service.Deliver(chunks, cast("Any", Unidentified())))

    first = deliver(interrupted())
    await requested[0].wait()
    second = deliver(complete(requested[1]))
    await asyncio.sleep(0)  # it waits for the first
    disconnected.set()
    await requested[1].wait()
    third = deliver(complete(requested[2]))
    proceed.set()
    assert (await second).whole
    assert (await third).whole
    assert first.exception()
    assert await running.clips.find(clip.sha256)


async def test_content_with_another_sha256_is_not_stored(running: Running) -> None:
    data = content()
    clip = described(data)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.deliver(data[:-1] + b"x", clip)
    assert "has the SHA-256" in (caught.value.details() or "")
    assert (await running.control.Held(clip)).bytes == 0
    await running.deliver(data, clip)
    assert len(running.clips) == 1


@pytest.mark.parametrize(
    ("clip", "sentence"),
    [
        (Clip(sha256="../../etc/passwd", media=Clip.MEDIA_CLIP, bytes=5), "is not 64 hexadecimal digits"),
        (Clip(sha256="a" * 64, bytes=5), "neither a clip nor a still"),
        (Clip(sha256="a" * 64, media=Clip.MEDIA_STILL), "bytes: 0 is not between"),
        (Clip(sha256="a" * 64, media=Clip.MEDIA_STILL, bytes=2**40), "is not between"),
    ],
)
async def test_an_invalid_clip_is_refused_permanently(running: Running, clip: Clip, sentence: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.control.Held(clip, timeout=10)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in (caught.value.details() or "")


async def test_old_clips_are_removed_and_the_oldest_if_there_are_too_many(running: Running) -> None:
    now = time.time_ns()
    old = content(seed=1)
    await running.deliver(old, described(old, until_ns=now + 3600 * SECOND, retention_ns=1))
    assert len(running.clips) == 0
    for number in range(2, 12):
        data = content(seed=number)
        await running.deliver(data, described(data, until_ns=now + number))
    assert running.clips.size <= 200_000
    left = await running.clips.newest(100)
    assert [clip.until_ns for clip in left] == [now + number for number in range(11, 11 - len(left), -1)]
    assert 1 < len(left) < 10
    assert len(list(running.folder.glob("??/*.mkv"))) == len(left)


async def test_sensors_recordings_expire_with_the_history(running: Running) -> None:
    data = content()
    await running.deliver(data, described(data))
    now = time.time_ns()
    later = ClipStore(running.folder, recordings_ns=10 * SECOND, clock=lambda: now)
    await later.open()
    await later.prune()
    assert len(later) == 1
    now += 11 * SECOND
    await later.prune()
    assert len(later) == 0
    await later.close()


async def test_a_temporary_read_error_loses_no_clip(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, data, others = Path.read_bytes, content(seed=1), content(seed=2)
    for contents in (data, others):
        await running.deliver(contents, described(contents))
    unreadable = running.clips.path(described(data)).with_suffix(".json")

    def fail(path: Path) -> bytes:
        if path == unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    for readable, known in ((False, 1), (True, 2)):
        if readable:
            monkeypatch.undo()
        store = ClipStore(running.folder)
        await store.open()
        assert len(store) == known
        await store.close()
    assert caplog.text.count("cannot be read, and its clip is not shown: Input/output error") == 1
    assert store.path(described(data)).read_bytes() == data


async def test_a_full_disk_refuses_clips_and_is_logged_once(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = content()
    monkeypatch.setattr(clips_module, "FREE_BYTES", 2**60)
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.control.Held(described(data), timeout=10)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caplog.text.count("no clip can be stored") == 1
    assert running.clips.failing
    assert await running.alarm(), "alarms continue"
    monkeypatch.undo()
    await running.deliver(data, described(data))
    assert not running.clips.failing


@pytest.mark.parametrize("removed", [".", "partial", "stored"])
async def test_a_removed_folder_is_created_again_for_the_next_clip(running: Running, removed: str) -> None:
    shutil.rmtree(running.folder / removed)
    data, still = content(seed=1), content(seed=2)
    await running.deliver(data, described(data))
    for _ in range(2):
        with contextlib.suppress(NoRoomError):
            await running.clips.store([(described(still), still)])
    assert running.clips.path(described(data)).read_bytes() == data
    assert running.clips.path(described(still)).read_bytes() == still
    assert not running.clips.failing


async def test_an_alarm_lists_its_clips_including_later_ones(running: Running) -> None:
    alarm = await running.alarm()
    mine, other = content(seed=1), content(seed=2)
    await running.deliver(mine, described(mine))
    await running.deliver(other, described(other, episode="another"))
    listed = (await running.stub.List(ListClipsRequest(alarm=alarm))).clips
    assert [clip.sha256 for clip in listed] == [described(mine).sha256]
    assert len((await running.stub.List(ListClipsRequest())).clips) == 2
    async with (
        aiohttp.ClientSession(headers=SHOWN) as session,
        session.get(f"{running.base}/v1/alarms/{alarm}/clips") as answer,
    ):
        (entry,) = (await answer.json())["clips"]
    assert entry["url"] == f"/v1/clips/{listed[0].sha256}.mkv"
    assert entry["view"] == f"/v1/clips/{listed[0].sha256}.mjpg"


async def test_people_download_a_whole_clip_or_a_range(running: Running) -> None:
    data = content()
    clip = described(data, device="gate/../7")
    await running.deliver(data, clip)
    url = f"{running.base}/v1/clips/{clip.sha256}.mkv"
    async with aiohttp.ClientSession(headers=SHOWN) as session:
        async with session.get(url) as answer:
            assert await answer.read() == data
            assert answer.headers["Content-Type"] == "video/matroska"
            assert 'filename="gate----7-' in answer.headers["Content-Disposition"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        async with session.get(url, headers={"Range": "bytes=100-199"}) as answer:
            assert answer.status == 206
            assert await answer.read() == data[100:200]
        for missing in (f"{'a' * 64}.mkv", f"{clip.sha256}.jpg"):
            async with session.get(f"{running.base}/v1/clips/{missing}") as answer:
                assert answer.status == 404
    chunks = [chunk async for chunk in running.stub.Fetch(FetchClipRequest(sha256=clip.sha256[:12], offset=50))]
    assert b"".join(chunk.data for chunk in chunks) == data[50:]
    assert chunks[0].clip.device == "gate/../7"


async def test_a_browser_gets_the_frames_in_sequence(running: Running) -> None:
    data = content(0.3)
    clip = described(data)
    await running.deliver(data, clip)
    url = f"{running.base}/v1/clips/{clip.sha256}.mjpg"
    async with aiohttp.ClientSession(headers=SHOWN) as session, session.get(url) as answer:
        assert answer.headers["Content-Type"].startswith("multipart/x-mixed-replace")
        shown = b""
        while shown.count(JPEG) < 3:
            shown += await answer.content.readany()


@pytest.mark.parametrize("form", [".mjpg", "/frame.jpg"])
async def test_a_clip_that_no_browser_can_show_is_refused_with_a_reason(running: Running, form: str) -> None:
    others = [b"RIFF of another program", content(0.3).replace(JPEG, b"H264 of another program"), content(0)]
    gone = content(seed=1)
    for data in (*others, gone):
        await running.deliver(data, described(data))
    running.clips.path(described(gone)).unlink()
    for data in (*others, gone):
        url = f"{running.base}/v1/clips/{described(data).sha256}{form}"
        async with aiohttp.ClientSession(headers=SHOWN) as session, session.get(url) as answer:
            assert answer.status == 404
            assert (await answer.json())["error"] == (
                "the clip's file is gone from the hub's disk"
                if data == gone
                else "the clip has no frame that browsers can show. Download it."
            )


async def test_a_download_of_a_missing_file_is_refused_with_a_reason(running: Running) -> None:
    data = content()
    await running.deliver(data, described(data))
    running.clips.path(described(data)).unlink()
    url = f"{running.base}/v1/clips/{described(data).sha256}.mkv"
    async with aiohttp.ClientSession(headers=SHOWN) as session, session.get(url) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (404, "no-store")
        assert await answer.json() == {"error": "the clip's file is gone from the hub's disk"}


async def test_a_head_request_gets_no_replay(running: Running) -> None:
    data = content()
    await running.deliver(data, described(data))
    url = f"{running.base}/v1/clips/{described(data).sha256}.mjpg"
    async with aiohttp.ClientSession(headers=SHOWN) as session, session.head(url) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_a_missing_or_truncated_clip_is_reported(running: Running) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    assert not [chunk async for chunk in running.stub.Fetch(FetchClipRequest(sha256=clip.sha256, offset=2**64 - 1))]
    running.clips.path(clip).unlink()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in running.stub.Fetch(FetchClipRequest(sha256=clip.sha256)):
            pass
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "is gone from the hub's disk" in str(caught.value.details())


def ask_from(address: str, base: str, path: str) -> socket.socket:
    """Send a request from `address` without reading its answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((address, 0))
    connection.connect(("127.0.0.1", int(base.rpartition(":")[2])))
    connection.settimeout(10)
    head = "".join(f"{name}: {value}\r\n" for name, value in SHOWN.items())
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    return connection


async def test_one_address_cannot_use_all_replays(running: Running) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    with contextlib.ExitStack() as stack:

        async def status(address: str) -> bytes:
            connection = stack.enter_context(ask_from(address, running.base, f"/v1/clips/{clip.sha256}.mjpg"))
            return (await asyncio.to_thread(connection.recv, 4096)).partition(b"\r\n")[0]

        greedy = [await status("127.0.0.1") for _ in range(6)]
        assert [b"200" in answer for answer in greedy] == [True] * 4 + [False] * 2
        others = [await status("127.0.0.2") for _ in range(5)]
        assert [b"200" in answer for answer in others] == [True] * 4 + [False]
        assert b"503" in await status("127.0.0.3")


async def test_a_stalled_replay_makes_room_for_others(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(replay_module, "_pauses", lambda stills: [0.0] * len(stills))
    monkeypatch.setattr(replay_module, "ROUNDS", 100_000)
    monkeypatch.setattr(replay_module, "REPLAYS_PER_ADDRESS", 1)
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    with ask_from("127.0.0.1", running.base, f"/v1/clips/{clip.sha256}.mjpg"):
        async with aiohttp.ClientSession(headers=SHOWN) as session, asyncio.timeout(20):
            refused = 0
            while True:
                async with session.get(f"{running.base}/v1/clips/{clip.sha256}.mjpg") as answer:
                    if answer.status == 200:
                        break
                    refused += 1
                await asyncio.sleep(0.05)
    assert refused


async def test_a_clip_too_large_for_memory_can_only_be_downloaded(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = content()
    clip = described(data)
    await running.deliver(data, clip)
    monkeypatch.setattr(replay_module, "ROOM", len(data) - 1)
    async with aiohttp.ClientSession(headers=SHOWN) as session:
        async with session.get(f"{running.base}/v1/clips/{clip.sha256}.mjpg") as answer:
            assert (answer.status, "Download it" in await answer.text()) == (413, True)
        async with session.get(f"{running.base}/v1/clips/{clip.sha256}.mkv") as answer:
            assert await answer.read() == data


async def test_a_shard_delivers_its_recordings_once_the_hub_is_available(tmp_path: Path, running: Running) -> None:
    killed = Recorder(tmp_path / "spool", lambda: None)
    await killed.start()
    now = time.time_ns()
    before = [ClipFrame(now + number * SECOND // 10, JPEG, 64, 48) for number in range(10)]
    report = EvidenceItem(
        id="e1-1", episode="e1", device="gate", zone="yard", kind=Kind.FLAME.wire, level=Level.ALARM.wire
    )  # fmt: skip
    killed.record_report(
        report, before, box=None, now_ns=now, about=Clip(fleet="default/cameras/yard"), after_ns=60 * SECOND
    )
    await killed.run(lambda _: None)
    killed.close()  # like a kill: the clip is unfinished

    alarm = await running.alarm()
    recorder = Recorder(tmp_path / "spool", lambda: None)
    await recorder.start()
    await recorder.complete_cut_off()
    for hub, delivers in (("127.0.0.1:1", False), (running.address, True)):
        delivery = Delivery(Links(hub), recorder)
        delivery.wake()
        working = asyncio.ensure_future(delivery.run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10 if delivers else 0.3):
                while delivery.waiting or (delivers and any((tmp_path / "spool").iterdir())):
                    await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (delivery.delivered == 2) == delivers
    recorder.close()
    listed = (await running.stub.List(ListClipsRequest(alarm=alarm))).clips
    assert {clip.media for clip in listed} == {Clip.MEDIA_CLIP, Clip.MEDIA_STILL}
    clip = next(clip for clip in listed if clip.media == Clip.MEDIA_CLIP)
    assert len(list(frames(running.clips.path(clip).read_bytes()))) == 10
    assert not list((tmp_path / "spool").iterdir())


def test_a_shard_forgets_clips_that_are_gone_from_its_disk(tmp_path: Path) -> None:
    delivery = Delivery(Links("127.0.0.1:1"), Recorder(tmp_path / "spool", lambda: None))
    damaged = grpc.aio.AioRpcError(grpc.StatusCode.ABORTED, grpc.aio.Metadata(), grpc.aio.Metadata())
    for number in range(100):
        clips = [Clip(sha256=f"{number}-{which}") for which in ("damaged", "stays")]
        assert delivery._undelivered(clips) == clips
        assert not delivery._is_hopeless(clips[0], damaged)
        delivery._done.add(clips[1].sha256)
        assert delivery._undelivered(clips) == clips[:1]
    assert (delivery._aborted, delivery._done) == ({"99-damaged": 1}, {"99-stays"})


class FaultyDisk:
    """Fails the first `times` uses of a function with OSError."""

    def __init__(self, function: Callable[..., Any], times: int) -> None:
        self.function, self.left = function, times

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(errno.EIO, "Input/output error")
        return self.function(*arguments, **named)


@pytest.mark.parametrize("faulty", ["Path.open", "ClipSpool.waiting", "ClipSpool.forget"])
async def test_a_temporary_disk_error_only_delays_the_clip(
    tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch, faulty: str
) -> None:
    recorder = Recorder(tmp_path / "spool", lambda: None)
    await recorder.start()
    now = time.time_ns()
    report = EvidenceItem(
        id="e1-1", episode="e1", device="gate", zone="yard", kind=Kind.FLAME.wire, level=Level.ALARM.wire
    )  # fmt: skip
    frame = ClipFrame(now, JPEG, 64, 48)
    recorder.record_report(report, [frame], box=None, now_ns=now, about=Clip(fleet="f"), after_ns=60 * SECOND)
    await recorder.flush()
    if faulty == "Path.open":
        read = delivery_module._read
        monkeypatch.setattr(delivery_module, "_read", FaultyDisk(read, 2))
    else:
        name = faulty.partition(".")[2]
        times = 2 if name == "waiting" else 10**9  # the disk stays unwritable
        monkeypatch.setattr(ClipSpool, name, FaultyDisk(getattr(ClipSpool, name), times))
    delivery = Delivery(Links(running.address), recorder)
    async with Tasks() as tasks:
        tasks.start(delivery.run(), name="deliver-clips")
        delivery.wake()
        async with asyncio.timeout(20):
            while len(running.clips) < 2:
                delivery.wake()
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert not tasks.failed.is_set()
        assert delivery.delivered == 2, "each once"
        assert delivery.refused == 0
    recorder.close()


async def test_a_disk_that_cannot_be_written_is_logged_once(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = content()
    monkeypatch.setattr(ClipStore, "_append", FaultyDisk(ClipStore._append, 3))
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            # One message: gRPC's client fails differently if the hub answers while it writes others.
            await running.deliver(data, described(data), upto=1000)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await running.control.Held(described(data), timeout=10)
        assert running.clips.failing.why == "clips cannot be written: Input/output error"
    monkeypatch.undo()
    await running.deliver(data, described(data))
    assert [message for message in caplog.messages if message.startswith("clips")] == [
        "clips cannot be written: Input/output error; shards send their clips again later, alarms are not affected",
        "clips can be written again",
    ]
