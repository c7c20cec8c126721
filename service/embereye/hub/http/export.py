"""The route that exports a span of time as one ZIP file: its events, clips, and their SHA-256.

The file is made while it is sent: clips are read in pieces, so memory stays small however long the span is.
"""

import asyncio
import io
import time
import zipfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.clips.store import SUFFIXES, ClipStore
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.clips import is_clip_in
from embereye.hub.http.openapi.parts import file_of, query, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role
from embereye.units import DAY, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.clips_pb2 import Clip

ZIP = "application/zip"
PIECE = 256 * 1024  # bytes
MAX_BYTES = 8 * 1024**3  # of clips in one file
MAX_EVENTS = 100_000
TIME = "nanoseconds since the Unix epoch"


class ExportRoutes:
    """Serves exports, one at a time."""

    def __init__(self, hub: Hub, clips: ClipStore | None) -> None:
        self._hub = hub
        self._clips = clips
        self._turn = asyncio.Lock()

    @Route(
        "GET", "/v1/timeline/export.zip", Role.VIEWER,
        "The events and clips of a span of time, with SHA256SUMS, as one file",
        {200: file_of("the file", ZIP)},
        takes=[
            query("from", whole(), f"{TIME}; missing: a day before `until`, and at most that"),
            query("until", whole(), f"{TIME}; 0: now"),
        ],
        fails=(400, 409, 413, 503),
        head=False,
        scoped=True,
    )  # fmt: skip
    async def _export(self, request: web.Request) -> web.StreamResponse:
        until_ns = number_of(request, "until", 0) or time.time_ns()
        from_ns = min(max(number_of(request, "from", 0), until_ns - DAY), until_ns)
        scope = request[PRINCIPAL].scope
        if self._turn.locked():
            raise Refused(409, "another span is being exported: try again when it is done")
        async with self._turn:
            events = await self._hub.history.events_between(from_ns, until_ns, MAX_EVENTS)
            events = [event for event in events if scope.has_zone(event.namespace, event.zone)]
            clips = await self._clips.between(from_ns, until_ns) if self._clips is not None else []
            clips = [clip for clip in clips if is_clip_in(scope, clip)]
            if sum(clip.bytes for clip in clips) > MAX_BYTES:
                raise Refused(413, f"its clips have more than {MAX_BYTES // 1024**3} GB: choose a shorter span")
            response = web.StreamResponse(headers={"Content-Disposition": f'attachment; filename="{_name(from_ns)}"'})
            response.content_type = ZIP
            await response.prepare(request)
            async for piece in self._pieces(events, clips):
                await response.write(piece)
        return response

    async def _pieces(self, events: Sequence[AlarmEvent], clips: Sequence[Clip]) -> AsyncIterator[bytes]:
        """Yield the file piece by piece. Clips that were deleted meanwhile are left out."""
        sent, sums = _Sent(), list[str]()
        archive = zipfile.ZipFile(sent, "w")
        lines = await asyncio.to_thread(
            lambda: "".join(f"{json_format.MessageToJson(event, indent=None)}\n" for event in events)
        )
        archive.writestr("events.jsonl", lines, zipfile.ZIP_DEFLATED)
        for clip in clips:
            assert self._clips is not None
            name = f"clips/{_file(clip)}"
            try:
                file = await asyncio.to_thread(Path.open, self._clips.path(clip), "rb")
            except OSError:
                continue
            with file, archive.open(zipfile.ZipInfo(name, _date(clip.from_ns)), "w", force_zip64=True) as entry:
                while data := await asyncio.to_thread(file.read, PIECE):
                    entry.write(data)
                    yield sent.drain()
            sums.append(f"{clip.sha256}  {name}\n")
        archive.writestr("SHA256SUMS", "".join(sums))
        archive.close()
        yield sent.drain()


class _Sent(io.RawIOBase):
    """A file that collects what is written until it is drained."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._waiting += memoryview(data)  # type: ignore[arg-type]
        return len(memoryview(data))  # type: ignore[arg-type]

    def drain(self) -> bytes:
        """Return what was written since the last call."""
        taken, self._waiting = bytes(self._waiting), bytearray()
        return taken


def _date(time_ns: int) -> tuple[int, int, int, int, int, int]:
    then = time.gmtime(max(time_ns, 315_532_800 * SECOND) / SECOND)  # ZIP knows no time before 1980
    return then.tm_year, then.tm_mon, then.tm_mday, then.tm_hour, then.tm_min, then.tm_sec


def _name(from_ns: int) -> str:
    return time.strftime("embereye-%Y%m%dT%H%M%SZ.zip", time.gmtime(from_ns / SECOND))


def _file(clip: Clip) -> str:
    words = [time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clip.from_ns / SECOND)), clip.zone, clip.device]
    plain = ("".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in word) for word in words)
    return f"{'_'.join(plain)}_{clip.sha256[:8]}.{SUFFIXES[clip.media]}"
