"""A recording or a stream shown to one camera, frame by frame, as fast as it can be read.

`watch` plays a file or a stream and shows each frame to a `Replay`, which analyses it at once. The time is that of the
container or of the capture. A stream's video is converted to JPEG first (`_Pictures`), because a replay accepts only
pictures. An error while a frame is shown ends the stream, which would otherwise continue after it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.camera.decode.image import DecodeOrder, PictureDelayedError, UndecodableError
from embereye.camera.decode.video import VideoDecoder
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
from embereye.v1.types_pb2 import Mask
from embereye.wire.jpeg.header import MAX_SIDE
from embereye.wire.video.access_unit import AccessUnit

TARGET = 15.0  # frames/s, a fleet's default; while fire is suspected all frames are analysed
STREAM_SECONDS = 60.0  # length of a stream that is analysed

Seen = Callable[[bytes, float, Observation | None], None]


@dataclass(frozen=True)
class Settings:
    """The settings for analysing recordings."""

    camera: CameraSettings
    fps: float = 0.0  # frames/s, at most, as of a slower camera; 0: all
    seconds: float = STREAM_SECONDS  # of a stream
    most: float = 0.0  # seconds of a file, at most; 0: all
    masks: Sequence[Mask] = ()  # regions of the picture that are not analysed


def watch(source: str, settings: Settings, seen: Seen | None = None) -> Replay:
    """Show `source` to a camera; raise SourceError if it cannot be read. `seen` gets every frame that is used."""
    replay = Replay(settings.camera, fps_target=min(TARGET, settings.fps or TARGET), masks=settings.masks)
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

    path = source if Path(source).exists() else ""  # an existing file, even if its name looks like a URL
    if path or parse_source(source).kind == "file":
        _play(path or parse_source(source).address, show, settings.most)
    else:
        asyncio.run(_pull(source, settings.seconds, show))
    replay.end_margin()
    return replay


def _play(path: str, show: Callable[[bytes, float], None], most: float) -> None:
    if not Path(path).is_file():
        raise SourceError("not a file")
    shown = False
    for data, seconds in frames(path):
        if most and seconds > most:
            return
        show(data, seconds)
        shown = True
    if not shown:
        raise SourceError("not a readable video")


class _Pictures:
    """Converts a video's access units to JPEG, as if the camera had sent JPEG."""

    def __init__(self) -> None:
        self._decoder: VideoDecoder | None = None
        self._times: dict[int, int] = {}  # by access unit
        self._number = 0

    def decode(self, unit: AccessUnit, time_ns: int) -> tuple[bytes, int]:
        """Return the picture shown after `unit` and its capture time; (b"", 0) if there is none or it is damaged."""
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
        except PictureDelayedError:
            return b"", 0
        except UndecodableError:
            self._decoder = None
            return b"", 0
        taken_ns = self._times.pop(decoded.unit, time_ns)
        return (b"", 0) if unit.damaged else (decoded.picture, taken_ns)


async def _pull(source: str, seconds: float, show: Callable[[bytes, float, tuple[Box, ...]], None]) -> None:
    stream = open_source(source, DialLimiter(1), SocketPoller())
    if stream is None:
        raise SourceError("pushed frames cannot be analysed here. Name a file or a URL")
    began_ns, shown = 0, 0
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # set if a picture cannot be shown
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
        except Exception as error:  # a source would treat it as its failure and continue
            failed.set_exception(error)

    playing = stream.play(offer, lambda _: None)
    try:
        async with asyncio.timeout(seconds), beside(playing, name="stream") as played:
            await asyncio.wait((played, failed), return_when=asyncio.FIRST_COMPLETED)
            await (failed if failed.done() else played)
    except TimeoutError as error:
        if not shown:
            raise SourceError(f"no frame within {seconds:g} s") from error
