"""A recording or a stream shown to one camera, frame by frame, as fast as it can be read."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embereye.camera.decode.image import DecodeOrder, UndecodableError
from embereye.camera.decode.video import NoPictureError, VideoDecoder
from embereye.camera.replay import Replay
from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.open import open_source
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.video.player import frames
from embereye.detect.vision.observation import Observation
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.units import Box
from embereye.v1.shard_pb2 import CameraSettings
from embereye.wire.jpeg.header import MAX_SIDE
from embereye.wire.video.access_unit import AccessUnit

TARGET = 15.0  # frames/s: a fleet's default; under suspicion a camera takes all there are, and so do we
STREAM_SECONDS = 60.0  # of a stream that are looked at

Seen = Callable[[bytes, float, Observation | None], None]


@dataclass(frozen=True)
class Settings:
    """How recordings are looked at."""

    camera: CameraSettings
    fps: float = 0.0  # at most this many frames/s are taken at all, as of a slower camera; 0: all
    seconds: float = STREAM_SECONDS  # of a stream
    most: float = 0.0  # seconds of a file; 0: all of it


def watch(source: str, settings: Settings, seen: Seen | None = None) -> Replay:
    """Show `source` to a camera; SourceError where it cannot be read. `seen` gets every frame that is taken."""
    replay = Replay(settings.camera, fps_target=min(TARGET, settings.fps or TARGET))
    next_due = 0.0

    def show(data: bytes, seconds: float, lost: tuple[Box, ...] = ()) -> None:
        nonlocal next_due
        if settings.fps:
            if seconds < next_due - 1e-6:
                return
            next_due = max(next_due + 1 / settings.fps, seconds + 0.5 / settings.fps)
        observation = replay.show(data, seconds, lost)
        if seen:
            seen(data, seconds, observation)

    path = source if Path(source).exists() else ""  # whatever its name looks like
    if path or parse_source(source).kind == "file":
        _play(path or parse_source(source).address, show, settings.most)
    else:
        asyncio.run(_pull(source, settings.seconds, show))
    return replay


def _play(path: str, show: Callable[[bytes, float], None], most: float) -> None:
    if not Path(path).is_file():
        raise SourceError("it is not a file")
    shown = False
    for data, seconds in frames(path):
        if most and seconds > most:
            return
        show(data, seconds)
        shown = True
    if not shown:
        raise SourceError("it is not a video that can be read")


class _Pictures:
    """Makes JPEG of a video's access units, as they were recorded by a camera that sends JPEG."""

    def __init__(self) -> None:
        self._decoder: VideoDecoder | None = None
        self._times: dict[int, int] = {}  # by access unit
        self._number = 0

    def decode(self, unit: AccessUnit, time_ns: int) -> tuple[bytes, int]:
        """The picture that is to be shown after `unit`, and when it was taken; empty: none, or a damaged one."""
        self._number += 1
        self._times[self._number] = time_ns
        if unit.damages_following:
            self._decoder = None
        if unit.damaged and not unit.refreshing:
            return b"", 0
        if self._decoder is None:
            if not unit.key:
                return b"", 0
            self._decoder = VideoDecoder(unit.encoding)
        try:
            decoded = self._decoder.decode(DecodeOrder(1, picture_side=MAX_SIDE), [(unit.data, self._number)])
        except NoPictureError:
            return b"", 0
        except UndecodableError:
            self._decoder = None
            return b"", 0
        taken_ns = self._times.pop(decoded.unit, time_ns)
        return (b"", 0) if unit.damaged else (decoded.picture, taken_ns)


async def _pull(source: str, seconds: float, show: Callable[[bytes, float, tuple[Box, ...]], None]) -> None:
    stream = open_source(source, DialLimiter(1), SocketPoller())
    if stream is None:
        raise SourceError("frames that are pushed cannot be waited for: name a file or a URL")
    began_ns, shown = 0, 0
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # to show a picture
    pictures = _Pictures()

    def offer(data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        nonlocal began_ns, shown
        if failed.done():
            return
        time_ns = time_ns or now_ns()
        if isinstance(data, AccessUnit):
            data, time_ns = pictures.decode(data, time_ns)
            if not data:
                return
        shown += 1
        began_ns = began_ns or time_ns
        try:
            show(data, max(0.0, (time_ns - began_ns) / 1e9), lost)
        except Exception as error:  # a source would take it for one of its own, and go on
            failed.set_exception(error)

    playing = stream.play(offer, lambda _: None)
    try:
        async with asyncio.timeout(seconds), beside(playing, name="stream") as played:
            await asyncio.wait((played, failed), return_when=asyncio.FIRST_COMPLETED)
            await (failed if failed.done() else played)
    except TimeoutError as error:
        if not shown:
            raise SourceError(f"no frame within {seconds:g} s") from error
