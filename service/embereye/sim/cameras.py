"""Simulated cameras: MJPEG over HTTP, RTP, RTSP, or pushed over gRPC, of rooms in which fires break out as scripted."""

import argparse
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

from embereye.process import lifecycle
from embereye.process.addresses import address_option
from embereye.process.backoff import Backoff
from embereye.process.grpc_server import channel
from embereye.process.http_server import bound_port, serve_http
from embereye.process.lifecycle import Tasks, UserError, first_of
from embereye.sim.fire import Fire, parse_fire
from embereye.sim.scene import Loops, render
from embereye.sim.thermal_camera import HEIGHT as THERMAL_HEIGHT
from embereye.sim.thermal_camera import RATE as THERMAL_RATE
from embereye.sim.thermal_camera import WIDTH as THERMAL_WIDTH
from embereye.sim.thermal_camera import ThermalRoom
from embereye.v1.frames_pb2 import PushRequest, RawWords
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


async def run_cameras(
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
    call = FramesStub(link).Push()

    async def send() -> None:
        sequence, raw = 0, cameras.films[camera].raw
        async for frame in cameras.frames(camera):
            sequence += 1
            request = PushRequest(camera=camera, sequence=sequence, time_ns=time.time_ns(), image=frame, raw=raw)
            await call.write(request)

    sender = asyncio.get_running_loop().create_task(send(), name=f"push-send-{camera}")
    try:
        async for response in call:
            if response.HasField("drain"):
                return response.drain.target
            if response.HasField("rejected"):
                logger.warning("camera %s: rejected: %s", camera, response.rejected.reason)
            else:
                backoff.reset()
        return ""
    finally:
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await sender
        call.cancel()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye simulate cameras`."""
    parser.add_argument("--listen", default="127.0.0.1:8090", help="HOST:PORT of the MJPEG server (%(default)s)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--count", type=int, default=None,
                       help="how many cameras: camera-1, … (4; 0 where --clip or --thermal is given)")  # fmt: skip
    which.add_argument("--cameras", default="", help="id=zone,… instead of --count")
    parser.add_argument("--fps", type=float, default=15.0, help="frames per second (%(default)s)")
    parser.add_argument("--size", default="640x480", help="WIDTHxHEIGHT in pixels (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="other rooms for other seeds")
    parser.add_argument("--fire", action="append", default=[], metavar="at=S,for=S,device=ID|zone=Z",
                        help="a fire: when, how long, where; may be repeated")  # fmt: skip
    parser.add_argument("--clip", action="append", default=[], metavar="PATH=ID",
                        help="show a video file, over and over, as camera ID; may be repeated")  # fmt: skip
    parser.add_argument("--thermal", action="append", default=[], metavar="ID[=ZONE]",
                        help="a radiometric camera, 160x120, 9 frames/s, raw 16-bit centikelvin; needs --push; "
                        "may be repeated")  # fmt: skip
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--push", default="", metavar="HOST:PORT", help="push frames over gRPC instead of serving them")
    how.add_argument("--rtp", default="", metavar="HOST:PORT",
                     help="send RTP/JPEG instead: the first camera to PORT, the next one to PORT+2, …")  # fmt: skip
    how.add_argument("--rtsp", default="", metavar="HOST:PORT", help="serve rtsp://HOST:PORT/ID instead, JPEG over RTP")
    parser.add_argument("--duration", type=float, default=0.0, help="seconds to run; 0: until stopped")


def parse_specs(arguments: argparse.Namespace) -> list[CameraSpec]:
    """The cameras that the arguments name; UserError where they are not understood."""
    clips = {}
    for text in arguments.clip:
        path, equals, camera = text.rpartition("=")
        if not equals or not camera or not Path(path).is_file():
            raise UserError(f'--clip "{text}": write PATH=ID with the path of a video file')
        clips[camera] = Path(path)
    specs = {}
    if arguments.cameras:
        for part in arguments.cameras.split(","):
            camera, _, zone = part.strip().partition("=")
            if not camera or "/" in camera or camera in specs:
                raise UserError(f'--cameras "{arguments.cameras}": "{part}" is not id=zone, or is there twice')
            specs[camera] = CameraSpec(camera, zone, clips.get(camera))
    else:
        count = arguments.count if arguments.count is not None else 0 if clips or arguments.thermal else 4
        if not 0 <= count <= 10_000:
            raise UserError(f"--count {count} is not between 0 and 10000")
        for number in range(1, count + 1):
            specs[f"camera-{number}"] = CameraSpec(f"camera-{number}", "", clips.get(f"camera-{number}"))
    for text in arguments.thermal:
        camera, _, zone = text.partition("=")
        if not arguments.push:
            raise UserError(f"--thermal {text}: temperatures cannot be served as MJPEG, name a shard with --push")
        if not camera or camera in specs or camera in clips:
            raise UserError(f'--thermal "{text}" is not ID or ID=ZONE, or that camera is there twice')
        specs[camera] = CameraSpec(camera, zone, thermal=True)
    for camera, path in clips.items():
        specs.setdefault(camera, CameraSpec(camera, "", path))
    return list(specs.values())


def run(arguments: argparse.Namespace) -> int:
    """Run the simulated cameras; returns the exit code."""
    lifecycle.configure_logging()
    return lifecycle.run(lambda stop: _main(arguments, stop))


async def _main(arguments: argparse.Namespace, stop: asyncio.Event) -> int:
    specs = parse_specs(arguments)
    width, times, height = arguments.size.partition("x")
    if not (times and width.isdigit() and height.isdigit() and 64 <= int(width) <= 4096 and 64 <= int(height) <= 4096):
        raise UserError(f'--size "{arguments.size}" is not WIDTHxHEIGHT with 64 to 4096 pixels a side')
    if not 0.1 <= arguments.fps <= 60:
        raise UserError(f"--fps {arguments.fps:g} is not between 0.1 and 60")
    fires = [parse_fire(text) for text in arguments.fire]
    for fire in fires:
        if not any(fire.reaches(spec.id, spec.zone) for spec in specs):
            raise UserError(f'--fire: there is no camera "{fire.device}" and none in zone "{fire.zone}"')
    host, port = address_option("--listen", arguments.listen, any_port=True)
    if arguments.duration > 0:
        asyncio.get_running_loop().call_later(arguments.duration, stop.set)
    options = {"fps": arguments.fps, "size": (int(width), int(height)), "seed": arguments.seed, "fires": fires}
    if arguments.push:
        address_option("--push", arguments.push, any_port=True)
        cameras = await prepare(specs, **options)
        logger.info("pushing %d cameras to %s", len(specs), arguments.push)
        await push_cameras(cameras, arguments.push, stop)
        return 0

    if arguments.rtp or arguments.rtsp:
        return await _main_rtp(await prepare(specs, **options), arguments, stop)

    def ready(bound: int) -> None:
        logger.info("%d cameras on http://%s:%d/", len(specs), host, bound)

    await run_cameras(specs, host, port, **options, stop=stop, ready=ready)
    return 0


async def _main_rtp(cameras: Cameras, arguments: argparse.Namespace, stop: asyncio.Event) -> int:
    from embereye.sim.rtp import PORT_STEP, check_carried, send_rtp, serve_rtsp

    await asyncio.to_thread(check_carried, cameras)
    count = len(cameras.specs)
    if arguments.rtp:
        host, port = address_option("--rtp", arguments.rtp, any_port=True)
        last = port + PORT_STEP * (count - 1)
        if not 0 < port <= last + 1 <= 65_535:
            raise UserError(f'--rtp "{arguments.rtp}": {count} cameras need the ports {port} to {last + 1}')
        logger.info("sending %d cameras to %s, ports %d to %d", count, host, port, last)
        await send_rtp(cameras, host, port, stop)
        return 0
    host, port = address_option("--rtsp", arguments.rtsp, any_port=True)

    def ready(bound: int) -> None:
        logger.info("%d cameras on rtsp://%s:%d/ID", count, host, bound)

    await serve_rtsp(cameras, host, port, stop, ready)
    return 0
