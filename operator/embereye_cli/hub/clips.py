"""`embereye alarms clips` and `embereye alarms clip`: list and download what was recorded of an alarm.

`alarms.py` runs it on its connection. A download is a stream of chunks that resumes at its offset after an
interruption, as long as each attempt brings some data. It is written to a `.part` file, checked against the clip's
digest, and then renamed, so the target file is always complete.
"""

import contextlib
import hashlib
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import grpc
from rich.console import Console

from embereye.hub.clips.store import SUFFIXES
from embereye.levels import Kind
from embereye.process.lifecycle import NotFoundError, UnreachableError, UserError
from embereye.units import SECOND
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.clips_pb2 import Clip, ClipChunk, FetchClipRequest, ListClipsRequest
from embereye.v1.clips_pb2_grpc import ClipsStub
from embereye_cli.hub.zones import TIMEOUT, find_alarm, has_alarm
from embereye_cli.terminal import local_time, print_answer, print_messages, whole_column

FETCH_SECONDS = 120.0  # for one call; a longer download continues with the next
SHOWN_DIGITS = 12  # of a clip's name
RESUMABLE = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
COLUMNS = ("Type", "Device", "Zone", "Sign", "From", "Seconds", "Size", "Note")
MEDIA_WORDS = {Clip.MEDIA_STILL: "still", Clip.MEDIA_LINES: "lines"}


@dataclass(frozen=True)
class ClipCommands:
    """The two commands, at the hub behind `link`."""

    link: grpc.aio.Channel
    arguments: Namespace
    console: Console

    async def run(self, action: str) -> None:
        """Run "clips" or "clip"."""
        await (self._list() if action == "clips" else self._fetch())

    async def _list(self) -> None:
        name, alarms = self.arguments.alarm, AlarmsStub(self.link)
        alarm = await find_alarm(alarms, name) if name else ""
        request = ListClipsRequest(alarm=alarm, limit=self.arguments.limit)
        clips = (await ClipsStub(self.link).List(request, timeout=TIMEOUT)).clips
        if not clips and alarm == name and name and not await has_alarm(alarms, alarm):
            raise NotFoundError(f"there is no alarm {alarm}. `embereye alarms --json history` has the ids.")
        empty = "No clips yet: a clip is listed once it is complete." if alarm else "No clips are stored."
        columns, as_json = (whole_column("Clip"), *COLUMNS), self.arguments.json
        print_messages(clips, columns, clip_row, empty=empty, as_json=as_json, console=self.console)

    async def _fetch(self) -> None:
        """Write the clip to a draft, verify it, then rename it: the target is always complete."""
        wanted, target = self.arguments.clip, self.arguments.output
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
                raise UnreachableError(f"clip {wanted} was damaged on its way. Try again.")
            draft.replace(target)
        except OSError as error:
            raise UserError(f"{target} cannot be written: {error.strerror}") from error
        finally:
            if draft is not None:
                draft.unlink(missing_ok=True)
        print_answer({"file": str(target)}, [str(target)], as_json=self.arguments.json)

    async def _chunks(self, name: str) -> AsyncIterator[ClipChunk]:
        """Yield a clip's content; resume after an interruption as long as each attempt brings some of it."""
        offset = before = 0
        while True:
            request = FetchClipRequest(sha256=name, offset=offset)
            try:
                async for chunk in ClipsStub(self.link).Fetch(request, timeout=FETCH_SECONDS):
                    name, offset = chunk.clip.sha256 or name, offset + len(chunk.data)
                    yield chunk
            except grpc.aio.AioRpcError as error:
                if offset == before or error.code() not in RESUMABLE:
                    raise
                before = offset
            else:
                return


def _file_name(clip: Clip) -> str:
    device = "".join(c if c.isascii() and c.isalnum() else "-" for c in clip.device)
    began = datetime.fromtimestamp(clip.from_ns / SECOND).astimezone().strftime("%Y%m%d-%H%M%S")
    return f"{device}-{began}.{SUFFIXES.get(clip.media, 'bin')}"


def clip_row(clip: Clip) -> tuple[str, ...]:
    """The cells of one clip: its name, then those of `COLUMNS`."""
    seconds = "" if clip.media == Clip.MEDIA_STILL else f"{(clip.until_ns - clip.from_ns) / SECOND:.1f}"
    return (
        clip.sha256[:SHOWN_DIGITS], MEDIA_WORDS.get(clip.media, "clip"), clip.device, clip.zone, Kind(clip.kind).word,
        local_time(clip.from_ns), seconds, f"{clip.bytes / 1e6:.2f} MB", clip.note,
    )  # fmt: skip
