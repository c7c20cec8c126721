"""`embereye alarms clip` and `clips`: downloads, their files, and the alarm that is meant."""

import hashlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import grpc
import pytest
from rich.console import Console

from embereye.process.lifecycle import UserError
from embereye.v1.alarms_pb2 import AlarmEvent, HistoryResponse, Zone, ZonesResponse
from embereye.v1.clips_pb2 import Clip, ClipChunk, FetchClipRequest, ListClipsRequest, ListClipsResponse
from embereye_cli.hub import clips

DATA = b"a still"
STILL = Clip(device="gate", media=Clip.MEDIA_STILL, sha256=hashlib.sha256(DATA).hexdigest(), from_ns=10**18)


class Stub:
    def __init__(self, _: object) -> None: ...

    async def Fetch(self, *_: object, **__: object) -> Any:
        yield ClipChunk(clip=STILL, data=DATA)


@pytest.mark.parametrize(("output", "named"), [(".", False), ("clips", False), ("mine.jpg", True), (None, False)])
async def test_a_clip_is_written_to_a_folder_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str | None, named: bool
) -> None:
    monkeypatch.setattr(clips, "ClipsStub", Stub)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clips").mkdir()
    arguments = Namespace(clip=STILL.sha256, output=Path(output) if output else None, json=False)
    await clips.ClipCommands(None, arguments, Console()).run("clip")  # type: ignore[arg-type]
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.read_bytes() == DATA
    assert file.name == "mine.jpg" if named else file.name.startswith("gate-20010909-")
    assert (file.parent.name == "clips") == (output == "clips")


class SlowStub:
    """Clips of which each call returns one more byte, then times out; `most` bytes in all."""

    most = len(DATA)

    def __init__(self, _: object) -> None: ...

    async def Fetch(self, request: FetchClipRequest, **__: object) -> Any:
        assert request.sha256 == (STILL.sha256 if request.offset else "8 digits")
        if request.offset < self.most:
            yield ClipChunk(clip=STILL, offset=request.offset, data=DATA[request.offset : request.offset + 1])
        if request.offset + 1 < len(DATA):
            empty = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, empty, empty, "too slow")


async def test_a_slow_download_resumes_as_long_as_each_attempt_brings_some_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "ClipsStub", SlowStub)
    command = clips.ClipCommands(None, Namespace(clip="8 digits", output=tmp_path / "still.jpg", json=False), Console())  # type: ignore[arg-type]
    await command.run("clip")
    assert (tmp_path / "still.jpg").read_bytes() == DATA
    (tmp_path / "still.jpg").unlink()
    monkeypatch.setattr(SlowStub, "most", 3)
    with pytest.raises(grpc.aio.AioRpcError):
        await command.run("clip")
    assert not list(tmp_path.iterdir())


class Zones:
    def __init__(self, _: object) -> None: ...

    async def Zones(self, *_: object, **__: object) -> ZonesResponse:
        zones = [Zone(namespace=place, name="hall", alarm=f"of-{place}") for place in ("north", "south")]
        return ZonesResponse(zones=zones)

    async def History(self, *_: object, **__: object) -> HistoryResponse:
        return HistoryResponse(events=[AlarmEvent(alarm="0123456789abcdef")])


class Listed:
    alarm = ""

    def __init__(self, _: object) -> None: ...

    async def List(self, request: ListClipsRequest, **_: object) -> ListClipsResponse:
        Listed.alarm = request.alarm
        return ListClipsResponse()


async def test_two_zones_with_one_name_need_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clips, "AlarmsStub", Zones)
    monkeypatch.setattr(clips, "ClipsStub", Listed)
    for name, alarm in (("south/hall", "of-south"), ("0123456789abcdef", "0123456789abcdef")):
        arguments = Namespace(alarm=name, limit=1, json=True)
        await clips.ClipCommands(None, arguments, Console()).run("clips")  # type: ignore[arg-type]
        assert Listed.alarm == alarm
    arguments = Namespace(alarm="hall", limit=1, json=True)
    with pytest.raises(
        UserError, match=r"several namespaces have a zone of that name\. Name one of north/hall, south/hall"
    ):
        await clips.ClipCommands(None, arguments, Console()).run("clips")  # type: ignore[arg-type]


class Newer(Stub):
    """A hub of a newer version, with a kind of recording that is unknown here."""

    async def Fetch(self, *_: object, **__: object) -> Any:
        clip = Clip.FromString(STILL.SerializeToString())
        clip.media = 99  # type: ignore[assignment]
        yield ClipChunk(clip=clip, data=DATA)


async def test_a_recording_of_an_unknown_kind_is_downloaded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "ClipsStub", Newer)
    arguments = Namespace(clip=STILL.sha256, output=tmp_path, json=False)
    await clips.ClipCommands(None, arguments, Console()).run("clip")  # type: ignore[arg-type]
    assert [file.read_bytes() for file in tmp_path.glob("gate-*.bin")] == [DATA]
