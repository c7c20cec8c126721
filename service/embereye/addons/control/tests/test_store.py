"""Clips/Store over associations and gRPC: acknowledged clips are complete after any fault."""

import asyncio
import errno
import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from embereye.addons.control.associations import Associations
from embereye.addons.control.link import Link, LinkError
from embereye.addons.control.store import CALL as STORE
from embereye.addons.control.store import store_call
from embereye.hub.clips import store as clip_store
from embereye.hub.clips.store import ClipStore
from embereye.hub.databases.store import StoreThreads
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.services.access import AccessCheck
from embereye.hub.services.clips import ClipsService
from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.tasks import Tasks
from embereye.v1.association_pb2 import Associate
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse
from embereye.v1.clips_pb2_grpc import ClipsStub, add_ClipsServicer_to_server
from embereye.wire.delimited import DelimitedReader, delimited

TOKEN = "an-admins-token-of-forty-characters-or-so"
ADMIN = Principal("admin", Role.ADMIN, "admin")
PART = 1 << 20


class Served:
    def __init__(self, hub: Hub, clips: ClipStore, folder: Path, address: str, grpc_address: str) -> None:
        self.hub, self.clips, self.folder = hub, clips, folder
        self.address, self.grpc_address = address, grpc_address

    def link(self, token: str = TOKEN) -> Link:
        return Link(self.address, STORE, token, timeout=20)

    async def reloaded(self) -> ClipStore:
        """The clips that a new hub on the same folder loads."""
        again = ClipStore(self.folder)
        await again.open()
        await again.close()
        return again


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    store, folder = StoreThreads(tmp_path), tmp_path / "clips"
    hub, clips = Hub(store, retention_ns=10**15), ClipStore(folder)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    await clips.open()
    service = ClipsService(hub, clips)
    listening = Associations(hub.access, {STORE: store_call(clips)})
    port = await listening.listen("127.0.0.1", 0, None)
    server = GrpcServer(
        [Service(add_ClipsServicer_to_server, service, "embereye.v1.Clips")], interceptors=[AccessCheck(hub.access)]
    )
    grpc_port = server.listen("127.0.0.1:0")
    await server.start()
    async with Tasks() as tasks:
        tasks.start(hub.run(), name="hub")
        tasks.start(listening.run(), name="associations")
        yield Served(hub, clips, folder, f"127.0.0.1:{port}", f"127.0.0.1:{grpc_port}")
        await listening.close("the hub stops")
    await server.stop(0)
    await clips.close()
    await store.close()


async def away(work: Callable[[], Any]) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(work), 60)


def still(data: bytes, **fields: Any) -> Clip:
    known: dict[str, Any] = {"media": Clip.MEDIA_STILL, "device": "gate", "episode": "e1", "bytes": len(data)}
    return Clip(sha256=hashlib.sha256(data).hexdigest(), **{**known, **fields})


async def test_a_delivery_waits_until_the_stored_clips_are_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "clips" / "00"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "0.json")  # reading it blocks
    clips, data, other = ClipStore(tmp_path / "clips"), b"a whole clip", b"a clip in parts"
    running = asyncio.ensure_future(clips.run())
    storing = asyncio.ensure_future(clips.store([(still(data), data)]))
    asking = asyncio.ensure_future(clips.upload_progress(still(other)))
    await asyncio.sleep(0.2)
    assert [path for path in (tmp_path / "clips").rglob("*") if path.is_file()] == []
    (folder / "0.json").write_bytes(b"")
    assert (await storing, await asking) == ([None], (0, False))
    assert len(clips) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await clips.close()


async def test_many_concurrent_clips_are_stored_and_known_after_a_restart(served: Served) -> None:
    contents = [os.urandom(8_000 + number) for number in range(150)]

    def store() -> list[StoreResponse]:
        with served.link() as link:
            for data in contents:
                link.send(StoreRequest(clip=still(data), data=data))
            return [link.receive(StoreResponse) for _ in contents]

    answers = await away(store)
    assert [(answer.sha256, answer.whole, answer.refused) for answer in answers] == [
        (hashlib.sha256(data).hexdigest(), True, "") for data in contents
    ]
    known = await served.reloaded()
    assert len(known) == 150
    for data in contents:
        clip = await known.find(hashlib.sha256(data).hexdigest())
        assert clip is not None
        assert (known.path(clip).read_bytes(), clip.stored_by, clip.device) == (data, "admin", "gate")


async def test_concurrent_clips_are_stored_even_if_one_client_disconnects(served: Served) -> None:
    contents = [os.urandom(5_000) for _ in range(16)]
    storing = [asyncio.ensure_future(served.clips.store([(still(data), data)])) for data in contents]
    await asyncio.sleep(0)
    storing[1].cancel()
    ended = await asyncio.wait_for(asyncio.gather(*storing, return_exceptions=True), 20)
    assert isinstance(ended[1], asyncio.CancelledError)
    assert [ended[0], *ended[2:]] == [[None]] * 15
    known = await served.reloaded()
    assert all([await known.find(still(data).sha256) for data in [contents[0], *contents[2:]]])


@pytest.mark.parametrize("size", [70_000, 300_000, PART])
async def test_long_clips_of_several_clients_are_stored_exactly(served: Served, size: int) -> None:
    contents = [[os.urandom(size - number) for number in range(12)] for _ in range(4)]

    def store(mine: list[bytes]) -> list[bool]:
        with served.link() as link:
            for data in mine:
                link.send_with(StoreRequest(clip=still(data)), StoreRequest.DATA_FIELD_NUMBER, bytearray(data))
            return [link.receive(StoreResponse).whole for _ in mine]

    answers = await asyncio.gather(*(away(lambda mine=mine: store(mine)) for mine in contents))
    assert answers == [[True] * 12] * 4
    known = await served.reloaded()
    for data in itertools.chain(*contents):
        assert known.path(still(data)).read_bytes() == data
    assert list((served.folder / "partial").iterdir()) == []


async def test_a_client_may_send_its_first_still_before_the_hub_answers(served: Served) -> None:
    data = os.urandom(2_000)
    host, _, port = served.address.rpartition(":")
    associate = Associate(version=1, token=TOKEN, call=STORE).SerializeToString()
    request = delimited(StoreRequest(clip=still(data), data=data).SerializeToString())
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(delimited(associate) + request + request[:1_000])
    messages, read = list[bytes](), DelimitedReader(1 << 16)
    while len(messages) < 2:
        messages += read.receive(await asyncio.wait_for(reader.read(1 << 16), 20))
    writer.write(request[1_000:])
    while len(messages) < 3:
        messages += read.receive(await asyncio.wait_for(reader.read(1 << 16), 20))
    writer.close()
    assert [StoreResponse.FromString(message).whole for message in messages[1:]] == [True, True]


async def test_the_same_content_from_several_clients_is_stored_once(served: Served) -> None:
    data = os.urandom(200_000)
    assert await asyncio.gather(*(served.clips.store([(still(data), data)] * 3) for _ in range(8))) == [[None] * 3] * 8
    assert (len(served.clips), served.clips.size) == (1, len(data))
    assert list((served.folder / "partial").iterdir()) == []
    assert (await served.reloaded()).path(still(data)).read_bytes() == data


@pytest.mark.parametrize("faulty", ["a content", "its description", "their names"])
async def test_a_disk_error_leaves_no_acknowledgement_and_no_files(
    served: Served, monkeypatch: pytest.MonkeyPatch, faulty: str
) -> None:
    items = [(still(data), data) for data in (os.urandom(1_000) for _ in range(20))]
    fsync, suffix = os.fsync, {"a content": f"-{13:x}.jpg", "its description": clip_store.DESCRIBED, "their names": ""}
    failed = list[str]()

    def failing(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name == clip_store.STORED if faulty == "their names" else path.name.endswith(suffix[faulty]):
            failed.append(path.name)
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(clip_store.NoRoomError, match="clips cannot be written: Input/output error"):
        await served.clips.store(items)
    assert len(failed) == 1
    assert "Input/output error" in served.clips.failing.why
    assert (len(served.clips), served.clips.size) == (0, 0)
    assert [path for path in served.folder.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    assert await served.clips.store(items) == [None] * 20
    assert (served.clips.failing.why, len(await served.reloaded())) == ("", 20)


async def test_content_is_durable_before_it_is_described_and_acknowledged(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [(still(data), data) for data in (os.urandom(1_000) for _ in range(5))]
    fsync, synced = os.fsync, list[str]()

    def noting(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(path.suffix or path.name)
        assert path.suffix != ".jpg" or not list(path.parent.glob(f"*{clip_store.DESCRIBED}"))
        assert len(served.clips) == 0
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    assert await served.clips.store(items) == [None] * 5
    # The folder of all clips is synced once for each start of the hub.
    assert synced == [".jpg"] * 5 + [clip_store.DESCRIBED, clip_store.STORED, served.folder.name]


async def test_unfinished_files_of_a_crash_are_neither_shown_nor_retained(served: Served) -> None:
    contents = [os.urandom(2_000) for _ in range(6)]
    assert await served.clips.store([(still(data), data) for data in contents]) == [None] * 6
    folder = served.folder / clip_store.STORED
    (described,) = folder.glob(f"*{clip_store.DESCRIBED}")
    lines = described.read_bytes().splitlines()
    torn, gone, undescribed, half, misnamed, whole = (line.split(b" ")[0].decode() for line in lines)
    (folder / torn).write_bytes(contents[0][:1_999])
    (folder / gone).unlink()
    strange = lines[4].replace(misnamed.encode(), b"../../" + misnamed.encode())
    described.write_bytes(b"\n".join([*lines[:2], strange, lines[5], lines[3][:-20]]))
    known = await served.reloaded()
    assert [known.path(clip).name for clip in await known.newest(10)] == [whole]
    assert known.size == 2_000
    assert {path.name for path in folder.iterdir()} == {described.name, whole}
    assert {undescribed, half}.isdisjoint(path.name for path in folder.iterdir())


async def test_a_still_stored_again_is_not_confused_with_the_removed_one(served: Served) -> None:
    """Its old line remains beside others' lines; a torn file with the same content must not match it."""
    data, other = os.urandom(3_000), os.urandom(3_000)
    assert await served.clips.store([(still(data, retention_ns=1), data), (still(other), other)]) == [None] * 2
    await served.clips.prune()
    assert (len(served.clips), served.clips.size, served.clips.removed) == (1, 3_000, 1)
    assert await served.clips.store([(still(data, device="yard"), data)]) == [None]
    path = served.clips.path(still(data))
    assert path.read_bytes() == data
    known = await served.reloaded()
    again = await known.find(still(data).sha256)
    assert again is not None
    assert (again.device, known.path(again), len(known)) == ("yard", path, 2)
    path.write_bytes(b"\0" * 3_000)
    path.with_name(f"{still(data).sha256}-0-0.jpg").write_bytes(data[:100])  # a draft
    for described in path.parent.glob(f"*{clip_store.DESCRIBED}"):
        if b"yard" in described.read_bytes():
            described.unlink()
    assert await (await served.reloaded()).find(still(data).sha256) is None


async def test_a_description_file_is_removed_with_its_last_clip(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [os.urandom(1_000) for _ in range(3)]
    folder = served.folder / clip_store.STORED
    clips = [still(data, retention_ns=number and 10**18) for number, data in enumerate(contents)]
    clips[0].retention_ns = 1
    assert await served.clips.store(list(zip(clips, contents, strict=True))) == [None] * 3
    await served.clips.prune()
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr(served.clips, "_clock", lambda: time.time_ns() + 2 * 10**18)
    await served.clips.prune()
    assert list(folder.iterdir()) == []


async def test_an_unreadable_description_file_loses_no_content(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    contents = [os.urandom(1_000) for _ in range(2)]
    for data in contents:
        assert await served.clips.store([(still(data), data)]) == [None]
    faulty = next(path for path in (served.folder / clip_store.STORED).iterdir() if path.suffix == clip_store.DESCRIBED)
    read = Path.read_bytes

    def reading(path: Path) -> bytes:
        if path == faulty:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    assert len(await served.reloaded()) == 1
    assert "cannot be read, and its clips are not shown: Input/output error" in caplog.text
    monkeypatch.undo()
    assert len(await served.reloaded()) == 2


async def test_clips_of_an_earlier_version_are_served_and_not_stored_again(served: Served) -> None:
    """Earlier versions stored every clip as two files of the same name, content and description."""
    contents = [os.urandom(4_000) for _ in range(3)]
    for number, data in enumerate(contents):
        clip = still(data, until_ns=number + 1, kept_ns=number + 1, stored_by="program")
        path = served.folder / clip.sha256[:2] / f"{clip.sha256}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        path.with_suffix(".json").write_text(json_format.MessageToJson(clip, indent=None))
    lone = served.folder / "ab" / f"{'ab' * 32}.jpg"
    lone.parent.mkdir(exist_ok=True)
    lone.write_bytes(b"a content whose description was never written")
    known = ClipStore(served.folder, capacity=9_000)
    await known.open()
    assert [(clip.sha256, clip.stored_by) for clip in await known.newest(9)] == [
        (still(data).sha256, "program") for data in reversed(contents)
    ]
    assert [known.path(still(data)).read_bytes() for data in contents] == contents
    assert not lone.exists()
    assert await known.store([(still(contents[2]), contents[2])]) == [None]
    assert (len(known), list((served.folder / clip_store.STORED).iterdir())) == (3, [])
    await known.prune()
    assert [clip.sha256 for clip in await known.newest(9)] == [still(data).sha256 for data in reversed(contents[1:])]
    assert len(list(served.folder.glob("??/*"))) == 4
    new = os.urandom(4_000)
    assert await known.store([(still(new), new)]) == [None]
    assert {clip.sha256 for clip in await known.newest(9)} == {still(data).sha256 for data in (contents[2], new)}
    assert {path.stem for path in served.folder.glob("??/*")} == {still(contents[2]).sha256}
    await known.close()


async def test_contents_that_wait_for_a_stalled_disk_are_limited(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clip_store, "STORING_BYTES", 5_000)
    moving, fsync = threading.Event(), os.fsync

    def stalled_fsync(descriptor: int) -> None:
        moving.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", stalled_fsync)
    contents = [os.urandom(1_000) for _ in range(6)]
    callers = [asyncio.ensure_future(served.clips.store([(still(data), data)])) for data in contents[:5]]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    with pytest.raises(clip_store.NoRoomError, match="wait for the hub's disk"):
        await served.clips.store([(still(contents[5]), contents[5])])
    assert "wait for the hub's disk" in served.clips.failing.why
    moving.set()
    while len(served.clips) < 5:  # they are stored although their callers have gone
        await asyncio.sleep(0.01)
    assert await served.clips.store([(still(contents[5]), contents[5])]) == [None]
    assert not served.clips.failing


async def test_clips_can_be_queried_while_others_are_stored(served: Served) -> None:
    wanted = os.urandom(10)
    await served.clips.store([(still(wanted, episode="fire", until_ns=5), wanted)])
    for number in range(20_000):
        served.clips._clips.add(Clip(sha256=f"{number:064x}", episode="other"))
    ending = threading.Event()

    def add_clips() -> None:
        for number in range(20_000, 200_000):
            if ending.is_set():
                return
            served.clips._clips.add(Clip(sha256=f"{number:064x}"))

    adding = threading.Thread(target=add_clips)
    adding.start()
    try:
        for _ in range(10):
            assert len(await served.clips.of_episodes(["fire"])) == 1
            assert await served.clips.between(5, 6)
            assert await served.clips.find(hashlib.sha256(wanted).hexdigest()[:12]) is not None
    finally:
        ending.set()
        adding.join()


async def test_a_removed_folder_is_created_again(served: Served) -> None:
    data, other = os.urandom(1_000), os.urandom(1_000)
    assert await served.clips.store([(still(data), data)]) == [None]
    shutil.rmtree(served.clips.path(still(data)).parent)
    with pytest.raises(clip_store.NoRoomError):
        await served.clips.store([(still(other), other)])
    assert await served.clips.store([(still(other), other)]) == [None]
    assert (await served.reloaded()).path(still(other)).read_bytes() == other


async def test_a_part_of_a_clip_that_another_client_completed_is_accepted(served: Served) -> None:
    data = os.urandom(1_000)
    await served.clips.write(still(data), 0, data[:300])
    assert await served.clips.store([(still(data), data)]) == [None]
    await served.clips.write(still(data), 300, data[300:])
    await served.clips.complete(still(data))
    assert list((served.folder / "partial").iterdir()) == []
    assert len(served.clips) == 1


@given(
    st.builds(
        Clip,
        sha256=st.text("0123456789abcdef", max_size=64),
        media=st.sampled_from(sorted(Clip.Media.values())),
        note=st.text(max_size=30),
        from_ns=st.integers(-(2**63), 2**63 - 1),
        bytes=st.integers(0, 2**64 - 1),
        frames=st.integers(0, 2**32 - 1),
        kind=st.sampled_from((0, 1, 2, 77)),  # 77: a kind that only a newer program knows
    )
)
def test_a_description_equals_protobufs_json(clip: Clip) -> None:
    assert json.loads(clip_store.describe(clip)) == json.loads(json_format.MessageToJson(clip))


async def test_a_draft_of_a_crashed_hub_is_removed_at_the_next_start(served: Served) -> None:
    (served.folder / "partial" / f"{'0' * 64}-7").write_bytes(b"half")
    (served.folder / "partial" / f"{'0' * 64}-7.json").write_bytes(b"{}")
    (served.folder / "partial" / ("1" * 64)).write_bytes(b"an unfinished upload")
    await served.reloaded()
    assert [path.name for path in (served.folder / "partial").iterdir()] == ["1" * 64]


async def store_both_ways(served: Served) -> list[Path]:
    """Store one whole clip and one in parts; returns the files of their descriptions."""
    whole, parts = os.urandom(2_000), os.urandom(3_000)
    assert await served.clips.store([(still(whole), whole)]) == [None]
    await served.clips.write(still(parts), 0, parts)
    await served.clips.complete(still(parts))
    (described,) = (served.folder / clip_store.STORED).glob(f"*{clip_store.DESCRIBED}")
    return [described, served.clips.path(still(parts)).with_suffix(".json")]


async def test_a_file_that_cannot_be_removed_hides_no_clip(served: Served) -> None:
    described = await store_both_ways(served)
    # Some file servers create a folder in each folder; on a read-only disk, drafts cannot be removed either.
    for folder in (*(path.parent for path in described), served.folder / "partial"):
        (folder / "@eaDir").mkdir()
    (served.folder / "partial" / ("1" * 64)).write_bytes(b"an unfinished upload")
    known = await served.reloaded()
    assert (len(known), known.size, known.failing.why) == (2, 5_000, "")
    assert list(known._partials) == ["1" * 64]


async def test_clips_of_an_unknown_kind_stay_but_are_not_shown(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    described = await store_both_ways(served)
    for path in described:
        path.write_bytes(path.read_bytes().replace(b"MEDIA_STILL", b"MEDIA_SMELL"))
    files = {path for path in served.folder.rglob("*") if path.is_file()}
    assert len(await served.reloaded()) == 0
    assert caplog.text.count("a kind of clip that this version does not know") == 2
    assert {path for path in served.folder.rglob("*") if path.is_file()} == files
    for path in described:
        path.write_bytes(path.read_bytes().replace(b"MEDIA_SMELL", b"MEDIA_STILL"))
    assert len(await served.reloaded()) == 2, "after the newer hub is back"


async def test_an_interrupted_upload_is_continued(served: Served) -> None:
    data = os.urandom(5 * PART + 77)
    clip = still(data, media=Clip.MEDIA_VIDEO)

    def begin() -> None:
        with served.link() as link:
            for start in range(0, 3 * PART, PART):
                part = data[start : start + PART]
                link.send(StoreRequest(clip=clip if not start else None, offset=start, data=part))
            link.send(StoreRequest(clip=clip))
            assert link.receive(StoreResponse).bytes == 3 * PART

    def resume() -> StoreResponse:
        with served.link() as link:
            link.send(StoreRequest(clip=clip))
            progress = link.receive(StoreResponse)
            assert (progress.bytes, progress.whole) == (3 * PART, False)
            for start in range(progress.bytes, len(data), PART):
                begins = clip if start == progress.bytes else None
                link.send(StoreRequest(clip=begins, offset=start, data=data[start : start + PART]))
            return link.receive(StoreResponse)

    await away(begin)
    answer = await away(resume)
    assert (answer.whole, answer.bytes) == (True, len(data))
    known = await served.reloaded()
    assert known.path(clip).read_bytes() == data


async def test_a_known_clip_is_answered_at_once_and_stored_once(served: Served) -> None:
    data, large = os.urandom(9_000), os.urandom(2 * PART)

    def store() -> list[StoreResponse]:
        with served.link() as link:
            for _ in range(3):
                link.send(StoreRequest(clip=still(data), data=data))
                link.send(StoreRequest(clip=still(large), data=large[:PART]))
                link.send(StoreRequest(offset=PART, data=large[PART:]))
            return [link.receive(StoreResponse) for _ in range(6)]

    assert [answer.whole for answer in await away(store)] == [True] * 6
    assert (len(served.clips), served.clips.size) == (2, len(data) + len(large))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"sha256": "0" * 64}, "another SHA-256"),
        ({"sha256": "../../etc/passwd"}, "is not 64 hexadecimal digits"),
        ({"media": 0}, "neither a clip nor a still"),
        ({"bytes": (16 << 20) + 1}, "is more than 16777216"),
        ({"bytes": 0}, "is not between 1 and"),
    ],
)
async def test_an_invalid_clip_is_refused_without_affecting_the_next(
    served: Served, fields: dict[str, Any], sentence: str
) -> None:
    good, bad = os.urandom(500), os.urandom(500)

    def store() -> list[StoreResponse]:
        clip = still(bad)
        for name, value in fields.items():
            setattr(clip, name, value)
        with served.link() as link:
            for described, data in ((clip, bad), (still(good), good)):
                link.send(StoreRequest(clip=described, data=data))
            return [link.receive(StoreResponse) for _ in range(2)]

    refused, accepted = await away(store)
    assert (sentence in refused.refused, refused.whole, refused.retry, accepted.whole) == (True, False, False, True)
    assert len(served.clips) == 1


async def test_an_upload_with_another_sha256_is_refused_and_can_be_repeated(served: Served) -> None:
    data = os.urandom(PART + 10)

    def store(content: bytes) -> StoreResponse:
        with served.link() as link:
            link.send(StoreRequest(clip=still(data), data=content[:PART]))
            link.send(StoreRequest(offset=PART, data=content[PART:]))
            return link.receive(StoreResponse)

    answer = await away(lambda: store(bytes(len(data))))
    assert "the received content has the SHA-256" in answer.refused
    assert (await away(lambda: store(data))).whole


async def test_without_room_a_clip_is_refused_temporarily(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip_store, "FREE_BYTES", 1 << 60)
    data = os.urandom(100)

    def store() -> StoreResponse:
        with served.link() as link:
            link.send(StoreRequest(clip=still(data), data=data))
            return link.receive(StoreResponse)

    answer = await away(store)
    assert (answer.retry, "are free on the hub's disk" in answer.refused) == (True, True)
    assert "are free on the hub's disk" in served.clips.failing.why, "EmberEyeClipsFailing fires on it"
    monkeypatch.undo()
    assert (await away(store)).whole
    assert not served.clips.failing


async def test_a_viewer_cannot_store_clips_on_either_port(served: Served) -> None:
    token = await served.hub.access.create_token(ADMIN, "guest", Role.VIEWER)
    with pytest.raises(LinkError, match="this takes the role operator"):
        await away(lambda: served.link(token))
    async with channel(served.grpc_address, token=token) as link:
        call = ClipsStub(link).Store(timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_clips_are_stored_over_grpc(served: Served) -> None:
    contents = [os.urandom(20_000) for _ in range(20)]
    async with channel(served.grpc_address, token=TOKEN) as link:
        call = ClipsStub(link).Store(timeout=20)
        for data in contents:
            await call.write(StoreRequest(clip=still(data), data=data))
        await call.done_writing()
        answers = [answer async for answer in call]
    assert [answer.whole for answer in answers] == [True] * 20
