"""Prepare the films of simulated cameras: rooms with scripted fires, temperatures, or video files.

A `Film` maps the time since the start to a frame. A room's film consists of loops, and shows the one that fits: quiet,
a walk now and then, a growing fire, a blaze. `Cameras.moments` is the clock of every sender: it yields a camera's due
times, shifted so that the cameras' frames do not coincide. A room's frames are drawn when they are first shown.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2

from embereye.process.lifecycle import UserError
from embereye.sim.cameras.thermal_camera import HEIGHT as THERMAL_HEIGHT
from embereye.sim.cameras.thermal_camera import RATE as THERMAL_RATE
from embereye.sim.cameras.thermal_camera import WIDTH as THERMAL_WIDTH
from embereye.sim.cameras.thermal_camera import ThermalRoom
from embereye.sim.scenes.fire import Fire
from embereye.sim.scenes.scene import Loops, render
from embereye.v1.frames_pb2 import RawWords

ROOMS = 4  # different rooms; more cameras share them, each with a time offset
WALK_EVERY = 30.0  # seconds between two walks through a room
CLIP_FRAMES = 900  # read from a video file at most: one minute at 15 frames/s


@dataclass(frozen=True)
class CameraSpec:
    """One simulated camera."""

    id: str
    zone: str = ""
    clip: Path | None = None  # a video to show instead of a room
    thermal: bool = False  # sends temperatures, not pictures


@dataclass(frozen=True)
class Film:
    """The film of one camera: a frame for each time after the start, in seconds."""

    rate: float  # frames/s
    frame: Callable[[float], bytes]
    place: Callable[[float], tuple[Sequence[bytes], int]]  # the frame's loop, and its index in the loop
    raw: RawWords | None = None  # size of frames that are raw words; None: they are JPEG


@dataclass
class Cameras:
    """The films of a set of cameras, and their common clock.

    Their frames are due one after another, because independent cameras do not all take pictures at the same moment.
    """

    specs: Sequence[CameraSpec]
    films: dict[str, Film] = field(default_factory=dict)
    started: float = 0.0  # monotonic seconds
    sent: int = 0  # frames
    unsent: int = 0  # of those, sent by RTP with packets lost on this machine

    async def frames(self, camera: str) -> AsyncIterator[bytes]:
        """Yield the frames of `camera` when they are due; a slow consumer misses frames. Ends when closed."""
        async for seconds in self.moments(camera):
            yield self.films[camera].frame(seconds)

    async def moments(self, camera: str) -> AsyncGenerator[float]:
        """Yield the due times of `camera`'s frames, in seconds after the start, as they come."""
        film = self.films[camera]
        late = self._share(camera) / film.rate
        number = 0
        while True:
            now = time.monotonic() - self.started - late
            number = max(number, int(now * film.rate)) + 1  # a sleep may end a little early
            await asyncio.sleep(number / film.rate - now)
            self.sent += 1
            yield number / film.rate + late

    def _share(self, camera: str) -> float:
        """The delay of `camera`'s frames behind the first camera's, as a share 0..1 of the time between two frames."""
        place = next((number for number, spec in enumerate(self.specs) if spec.id == camera), 0)
        return place / max(1, len(self.specs))


def room_film(loops: Loops, spec: CameraSpec, fires: Sequence[Fire], rate: float, phase: float) -> Film:
    """A film of a room: mostly quiet, sometimes with a person, and on fire while one of `fires` burns."""
    visible_fires = [fire for fire in fires if fire.is_visible_to(spec.id, spec.zone)]

    def place(seconds: float) -> tuple[Sequence[bytes], int]:
        for fire in visible_fires:
            burning = fire.seconds_burning(seconds)
            if burning >= 0:
                number = int(burning * rate)
                if number < len(loops.growth):
                    return loops.growth, number
                return loops.blaze, (number - len(loops.growth)) % len(loops.blaze)
        number = int((seconds + phase) * rate)
        since_walk = number % max(len(loops.walk) + 1, int(WALK_EVERY * rate))
        if since_walk < len(loops.walk) and number >= len(loops.walk):
            return loops.walk, since_walk
        return loops.quiet, number % len(loops.quiet)

    return looped_film(rate, place)


def looped_film(rate: float, place: Callable[[float], tuple[Sequence[bytes], int]]) -> Film:
    """A film of `rate` frames/s made of loops; `place` maps a time in seconds to a loop and an index in it."""

    def frame(seconds: float) -> bytes:
        loop, number = place(seconds)
        return loop[number]

    return Film(rate, frame, place)


def thermal_film(spec: CameraSpec, fires: Sequence[Fire], seed: int) -> Film:
    """A film of a room's temperatures."""
    room = ThermalRoom(seed, [fire for fire in fires if fire.is_visible_to(spec.id, spec.zone)])
    raw = RawWords(width=THERMAL_WIDTH, height=THERMAL_HEIGHT)
    return Film(THERMAL_RATE, room.frame, lambda seconds: ([room.frame(seconds)], 0), raw)


def clip_film(path: Path, quality: int = 85) -> Film:
    """A film that repeats the video at `path`."""
    video = cv2.VideoCapture(str(path))
    rate = video.get(cv2.CAP_PROP_FPS) or 15.0
    frames: list[bytes] = []
    while len(frames) < CLIP_FRAMES:
        whole, picture = video.read()
        if not whole:
            break
        frames.append(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())
    video.release()
    if not frames:
        raise UserError(f"{path}: not a readable video")
    return looped_film(min(60.0, rate), lambda seconds: (frames, int(seconds * rate) % len(frames)))


async def prepare(
    specs: Sequence[CameraSpec],
    *,
    fps: float = 15.0,
    size: tuple[int, int] = (640, 480),
    seed: int = 1,
    fires: Sequence[Fire] = (),
) -> Cameras:
    """Set up the films of `specs`, of `size` (width, height) in pixels at `fps` frames/s.

    Each frame is drawn once, when it is first due.
    """
    cameras = Cameras(specs)
    rooms = [spec for spec in specs if spec.clip is None and not spec.thermal]
    loops: dict[int, Loops] = {}
    for index, spec in enumerate(rooms):
        room = index % ROOMS
        if room not in loops:
            loops[room] = await asyncio.to_thread(render, *size, seed * 1000 + room, fps)
        cameras.films[spec.id] = room_film(loops[room], spec, fires, fps, phase=index * 7.3)
    for number, spec in enumerate(specs):
        if spec.thermal:
            cameras.films[spec.id] = thermal_film(spec, fires, seed * 1000 + number)
        if spec.clip is not None:
            cameras.films[spec.id] = await asyncio.to_thread(clip_film, spec.clip)
    cameras.started = time.monotonic()
    return cameras
