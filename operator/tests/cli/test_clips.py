"""`embereye alarms clip`: where what is fetched is put."""

import hashlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from embereye.v1.clips_pb2 import Clip, ClipChunk
from embereye_cli.hub import clips

DATA = b"a still"
STILL = Clip(device="gate", media=Clip.MEDIA_STILL, sha256=hashlib.sha256(DATA).hexdigest(), from_ns=10**18)


class Stub:
    def __init__(self, _: object) -> None: ...

    async def Fetch(self, *_: object, **__: object) -> Any:
        yield ClipChunk(clip=STILL, data=DATA)


@pytest.mark.parametrize(("output", "named"), [(".", False), ("clips", False), ("mine.jpg", True), (None, False)])
async def test_a_clip_is_put_into_a_folder_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str | None, named: bool
) -> None:
    monkeypatch.setattr(clips, "ClipsStub", Stub)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clips").mkdir()
    arguments = Namespace(clip=STILL.sha256, output=Path(output) if output else None)
    await clips.ClipCommands(None, arguments, Console()).run("clip")  # type: ignore[arg-type]
    (found,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert found.read_bytes() == DATA
    assert found.name == "mine.jpg" if named else found.name.startswith("gate-20010909-")
    assert (found.parent.name == "clips") == (output == "clips")
