"""Simulated cameras: MJPEG over HTTP, RTP, RTSP, or pushed over gRPC, of rooms in which fires break out as scripted."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import grpc
from aiohttp import web

from embereye.process.backoff import Backoff
from embereye.process.grpc_server import channel, converse
from embereye.process.http_server import bound_port, serve_http
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks, first_of
from embereye.sim.fire import Fire
from embereye.sim.scene import Loops, render
from embereye.sim.thermal_camera import HEIGHT as THERMAL_HEIGHT
from embereye.sim.thermal_camera import RATE as THERMAL_RATE
from embereye.sim.thermal_camera import WIDTH as THERMAL_WIDTH
from embereye.sim.thermal_camera import ThermalRoom
from embereye.v1.frames_pb2 import PushRequest, PushResponse, RawWords
from embereye.v1.frames_pb2_grpc import FramesStub

logger = logging.getLogger(__name__)

ROOMS = 4  # different rooms; more cameras share them, each at its own moment
WALK_EVERY = 30.0  # seconds between two walks through a room
CLIP_FRAMES = 900  # kept of a clip
SEND_SECONDS = 5.0  # for one frame to a slow client
BOUNDARY = "frame"


@dataclass(frozen=True)
class CameraSpec:
    """One simulated camera."""

    id: str
    zone: str = ""
    clip: Path | None = None  # a video to show instead of a room
    thermal: bool = False  # sends temperatures, not pictures


@dataclass(frozen=True)
class Film:
    """What one camera shows: which frame at which second after the start."""

    rate: float  # frames/s
    frame: Callable[[float], bytes]
    raw: RawWords | None = None  # the size of frames that are bare words; None: they are JPEG


@dataclass
class Cameras:
    """The films of a set of cameras, and the clock they share."""

    specs: Sequence[CameraSpec]
    films: dict[str, Film] = field(default_factory=dict)
    started: float = 0.0  # monotonic seconds
    sent: int = 0  # frames

    async def frames(self, camera: str) -> AsyncIterator[bytes]:
        """The frames of `camera`, each when it is due; whoever is slow misses frames."""
        film = self.films[camera]
        while True:
            now = time.monotonic() - self.started
            number = int(now * film.rate) + 1
            await asyncio.sleep(number / film.rate - now)
            self.sent += 1
            yield film.frame(number / film.rate)


def room_film(loops: Loops, spec: CameraSpec, fires: Sequence[Fire], rate: float, phase: float) -> Film:
    """A room: quiet, now and then with somebody in it, burning while one of `fires` does."""
    concerned = [fire for fire in fires if fire.reaches(spec.id, spec.zone)]

    def frame(seconds: float) -> bytes:
        for fire in concerned:
            burning = fire.burning(seconds)
            if burning >= 0:
                number = int(burning * rate)
                if number < len(loops.growth):
                    return loops.growth[number]
                return loops.blaze[(number - len(loops.growth)) % len(loops.blaze)]
        number = int((seconds + phase) * rate)
        since_walk = number % max(len(loops.walk) + 1, int(WALK_EVERY * rate))
        if since_walk < len(loops.walk) and number >= len(loops.walk):
            return loops.walk[since_walk]
        return loops.quiet[number % len(loops.quiet)]

    return Film(rate, frame)


def thermal_film(spec: CameraSpec, fires: Sequence[Fire], seed: int) -> Film:
    """A room as temperatures."""
    room = ThermalRoom(seed, [fire for fire in fires if fire.reaches(spec.id, spec.zone)])
    return Film(THERMAL_RATE, room.frame, RawWords(width=THERMAL_WIDTH, height=THERMAL_HEIGHT))


def clip_film(path: Path, quality: int = 85) -> Film:
    """The video at `path`, over and over."""
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
        raise UserError(f"{path} is not a video that can be read")
    return Film(min(60.0, rate), lambda seconds: frames[int(seconds * rate) % len(frames)])


async def prepare(
    specs: Sequence[CameraSpec],
    *,
    fps: float = 15.0,
    size: tuple[int, int] = (640, 480),
    seed: int = 1,
    fires: Sequence[Fire] = (),
) -> Cameras:
    """Set up what `specs` will show. Each frame is drawn once, when it is first due; from then on it is only sent."""
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


def mjpeg_app(cameras: Cameras) -> web.Application:
    """Serves /ID.mjpg for every camera, and a list of them at /."""

    async def index(_: web.Request) -> web.Response:
        rows = "".join(f'<li><a href="/{spec.id}.mjpg">{spec.id}</a> {spec.zone}</li>' for spec in cameras.specs)
        return web.Response(text=f"<!doctype html><title>cameras</title><ul>{rows}</ul>", content_type="text/html")

    async def stream(request: web.Request) -> web.StreamResponse:
        camera = request.match_info["camera"]
        if camera not in cameras.films:
            raise web.HTTPNotFound(text=f"there is no camera {camera}\n")
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "multipart/x-mixed-replace"
        response.headers["Content-Type"] = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async for frame in cameras.frames(camera):
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(frame)}\r\n\r\n".encode()
                async with asyncio.timeout(SEND_SECONDS):
                    await response.write(head + frame + b"\r\n")
        return response

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/{camera}.mjpg", stream)
    return app


async def run_cameras(  # noqa: PLR0913 -- a scenario, all by name
    specs: Sequence[CameraSpec],
    host: str,
    port: int,
    *,
    fps: float = 15.0,
    size: tuple[int, int] = (640, 480),
    seed: int = 1,
    fires: Sequence[Fire] = (),
    stop: asyncio.Event,
    ready: Callable[[int], None] | None = None,
) -> None:
    """Serve `specs` as MJPEG on `host`:`port` (0: any) until `stop`; `ready` is told the port once it answers."""
    cameras = await prepare(specs, fps=fps, size=size, seed=seed, fires=fires)
    runner = await serve_http(mjpeg_app(cameras), host, port)
    try:
        if ready:
            ready(bound_port(runner))
        await stop.wait()
    finally:
        await runner.cleanup()


async def push_cameras(cameras: Cameras, target: str, stop: asyncio.Event) -> None:
    """Push every camera's frames to `target` (host:port), and wherever a shard sends them, until `stop`."""
    async with Tasks() as tasks:
        for spec in cameras.specs:
            tasks.start(_push(cameras, spec.id, target), name=f"push-{spec.id}")
        await first_of(stop.wait(), tasks.failed.wait())


async def _push(cameras: Cameras, camera: str, home: str) -> None:
    backoff, target, told = Backoff(floor=0.1, cap=5.0), home, ""
    while True:
        link = channel(target)
        try:
            drained = await _push_once(cameras, camera, link, backoff)
            reason = f"sent to {drained or 'the fleet'}"
            target = drained or home
        except grpc.aio.AioRpcError as error:
            reason, target = f"{error.code().name}: {error.details()}", home
        finally:
            await link.close(None)
        if reason != told:
            logger.info("camera %s: %s", camera, reason)
            told = reason
        await asyncio.sleep(backoff.next())


async def _push_once(cameras: Cameras, camera: str, link: grpc.aio.Channel, backoff: Backoff) -> str:
    """Push until the shard drains; returns the address it names."""

    async def send(call: "grpc.aio.StreamStreamCall[PushRequest, PushResponse]") -> None:
        sequence, raw = 0, cameras.films[camera].raw
        async for frame in cameras.frames(camera):
            sequence += 1
            request = PushRequest(camera=camera, sequence=sequence, time_ns=time.time_ns(), image=frame, raw=raw)
            await call.write(request)

    async with contextlib.aclosing(converse(FramesStub(link).Push(), send)) as responses:
        async for response in responses:
            if response.HasField("drain"):
                return response.drain.target
            if response.HasField("rejected"):
                logger.warning("camera %s: rejected: %s", camera, response.rejected.reason)
            else:
                backoff.reset()
    return ""
