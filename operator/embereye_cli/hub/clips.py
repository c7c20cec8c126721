"""`embereye alarms clips` and `embereye alarms clip`: what was recorded of an alarm, at the command line."""

import contextlib
import hashlib
from argparse import Namespace
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import grpc
from google.protobuf import json_format
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from embereye.hub.storage.clip_store import SUFFIXES
from embereye.levels import Kind
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.units import SECOND
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.clips_pb2 import Clip, ClipChunk, FetchClipRequest, ListClipsRequest
from embereye.v1.clips_pb2_grpc import ClipsStub
from embereye_cli.hub.zones import TIMEOUT, find_alarm

FETCH_SECONDS = 120.0  # for as much of a clip as comes meanwhile
SHOWN_DIGITS = 12  # of a clip's name
_GONE_ON_WITH = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}


class ClipCommands:
    """Talks to the hub behind `link`."""

    def __init__(self, link: grpc.aio.Channel, arguments: Namespace, console: Console) -> None:
        self._link = link
        self._arguments = arguments
        self._console = console

    async def run(self, action: str) -> None:
        """Run "clips" or "clip"."""
        await (self._list() if action == "clips" else self._fetch())

    async def _list(self) -> None:
        name = self._arguments.alarm
        alarm = await find_alarm(AlarmsStub(self._link), name) if name else ""
        request = ListClipsRequest(alarm=alarm, limit=self._arguments.limit)
        answer = await ClipsStub(self._link).List(request, timeout=TIMEOUT)
        if self._arguments.json:
            for clip in answer.clips:
                print(json_format.MessageToJson(clip, indent=None, ensure_ascii=False), flush=True)
            return
        self._console.print(_table(list(answer.clips), bool(alarm)))

    async def _fetch(self) -> None:
        """Write the clip beside its place, verify it, then put it there: what is there is whole."""
        wanted, target = self._arguments.clip, self._arguments.output
        clip, digest, draft = Clip(), hashlib.sha256(), None
        try:
            with contextlib.ExitStack() as stack:
                file = None
                async for chunk in self._chunks(wanted):
                    if file is None:
                        clip = chunk.clip
                        target = target or Path()
                        target = target / _file_name(clip) if target.is_dir() else target
                        draft = target.with_name(target.name + ".part")
                        file = stack.enter_context(draft.open("wb"))
                    file.write(chunk.data)
                    digest.update(chunk.data)
            if draft is None or digest.hexdigest() != clip.sha256:
                raise UserError(f"clip {wanted} did not arrive as the hub has it: try again")
            draft.replace(target)
        except OSError as error:
            raise UserError(f"{target} cannot be written: {error.strerror}") from error
        finally:
            if draft is not None:
                draft.unlink(missing_ok=True)
        print(target)

    async def _chunks(self, name: str) -> AsyncIterator[ClipChunk]:
        """A clip's content, gone on with where it broke off for as long as some of it comes."""
        offset = before = 0
        while True:
            request = FetchClipRequest(sha256=name, offset=offset)
            try:
                async for chunk in ClipsStub(self._link).Fetch(request, timeout=FETCH_SECONDS):
                    name, offset = chunk.clip.sha256 or name, offset + len(chunk.data)
                    yield chunk
            except grpc.aio.AioRpcError as error:
                if offset == before or error.code() not in _GONE_ON_WITH:
                    raise
                before = offset
            else:
                return


def _file_name(clip: Clip) -> str:
    device = "".join(c if c.isascii() and c.isalnum() else "-" for c in clip.device)
    return f"{device}-{_time(clip.from_ns, '%Y%m%d-%H%M%S')}.{SUFFIXES.get(clip.media, 'bin')}"


def _time(time_ns: int, form: str) -> str:
    return datetime.fromtimestamp(time_ns / SECOND).astimezone().strftime(form)


def _table(clips: list[Clip], of_alarm: bool) -> Table:
    name = Column("Clip", no_wrap=True)  # to be copied whole
    table = Table(name, "What", "Device", "Zone", "Sign", "From", "Seconds", "Size", "", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for clip in clips:
        still = clip.media == Clip.MEDIA_STILL
        table.add_row(
            clip.sha256[:SHOWN_DIGITS], {Clip.MEDIA_STILL: "still", Clip.MEDIA_LINES: "lines"}.get(clip.media, "clip"),
            Text(visible(clip.device)), Text(visible(clip.zone)), Kind(clip.kind).word,
            _time(clip.from_ns, "%Y-%m-%d %H:%M:%S"), "" if still else f"{(clip.until_ns - clip.from_ns) / SECOND:.1f}",
            f"{clip.bytes / 1e6:.2f} MB", Text(visible(clip.note)),
        )  # fmt: skip
    if not clips:
        table.add_row("none yet: a clip comes once it is finished" if of_alarm else "none is kept")
    return table
