"""Simulate cameras that serve, push or send drawn rooms, fires and clips."""

import argparse
import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.addresses import address_option
from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls
from embereye.sim.cameras.mjpeg import serve_mjpeg
from embereye.sim.cameras.onvif import OnvifCameras, serve_onvif
from embereye.sim.cameras.push import push_cameras
from embereye.sim.cameras.rtp import PORT_STEP, check_carried, send_rtp
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.load.cameras import push_load
from embereye.sim.load.clients import Load
from embereye.sim.load.figures import ClientFigures
from embereye.sim.load.run import LoadTest
from embereye.sim.scenes.films import CLIP_FRAMES, Cameras, CameraSpec, prepare
from embereye.sim.scenes.fire import parse_fire
from embereye.units import counted
from embereye.wire.onvif.media import Profile
from embereye_cli.hub.token import add_device_token_option, device_token
from embereye_cli.simulate.load_options import (
    add_load_options,
    check_load_options,
    is_load_test,
    packets_of,
    run_load,
    thresholds_of,
)
from embereye_cli.simulate.tls_options import add_tls_options, tls_options
from embereye_cli.values import check_ranges, seconds, seed

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye simulate cameras`."""
    parser.add_argument("--listen", default="127.0.0.1:8090", help="HOST:PORT of the MJPEG server (%(default)s)")
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--count", type=int, default=None,
                       help="number of cameras: camera-1, … (4; 0 with --clip or --thermal)")  # fmt: skip
    selection.add_argument("--cameras", default="", help="id=zone,… instead of --count")
    selection.add_argument("--clients", type=int, default=None, metavar="N",
                       help="with --push: load test with camera-1 to camera-N; with --cameras, use "
                       "--report")  # fmt: skip
    parser.add_argument("--fps", "--rate", type=float, default=15.0, help="frames per second (%(default)s)")
    parser.add_argument("--size", default="640x480", help="WIDTHxHEIGHT in pixels (%(default)s)")
    parser.add_argument("--seed", type=seed, default=1, help="seed of the drawn rooms (%(default)s)")
    parser.add_argument("--fire", action="append", default=[], metavar="at=S,for=S,device=ID|zone=Z",
                        help="a fire: start and duration in seconds, and its place; repeatable")  # fmt: skip
    parser.add_argument("--clip", action="append", default=[], metavar="PATH=ID",
                        help=f"show the first {CLIP_FRAMES} pictures of a video file, over and over, as camera ID; "
                        "repeatable")  # fmt: skip
    parser.add_argument("--thermal", action="append", default=[], metavar="ID[=ZONE]",
                        help="a radiometric camera, 160x120, 9 frames/s, raw 16-bit centikelvin; needs --push; "
                        "repeatable")  # fmt: skip
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--push", default="", metavar="HOST:PORT", help="push frames over gRPC instead of serving them")
    add_device_token_option(parser, "--push")
    add_tls_options(parser)
    how.add_argument("--rtp", default="", metavar="HOST:PORT",
                     help="send RTP/JPEG instead: the first camera to PORT, the next one to PORT+2, …")  # fmt: skip
    how.add_argument("--rtsp", default="", metavar="HOST:PORT", help="serve rtsp://HOST:PORT/ID instead")
    parser.add_argument("--codec", default="jpeg", choices=["jpeg", "h264", "h265"],
                        help="what --rtsp serves; ?codec=h264 in a URL asks for another (%(default)s)")  # fmt: skip
    parser.add_argument("--onvif", default="", metavar="HOST:PORT",
                        help="with --rtsp: also answer ONVIF and `embereye discover`, with a profile of --size and "
                        "one of "
                        "half that size")  # fmt: skip
    parser.add_argument("--loss", type=float, default=0.0, metavar="PERCENT",
                        help="packets that --rtsp loses over UDP (%(default)s)")  # fmt: skip
    parser.add_argument("--duration", type=seconds, default=0.0, help="seconds to run, as --for; 0: until stopped")
    add_load_options(parser, "frames")


def parse_specs(arguments: argparse.Namespace) -> list[CameraSpec]:
    """The cameras that the arguments name; UserError if they are malformed."""
    clips = _parse_clips(arguments.clip)
    specs = {}
    if arguments.cameras:
        for part in arguments.cameras.split(","):
            camera, _, zone = part.strip().partition("=")
            if not camera or "/" in camera or camera in specs:
                raise UserError(f'--cameras "{arguments.cameras}": "{part}" is not id=zone, or is repeated')
            specs[camera] = CameraSpec(camera, zone, clips.get(camera))
    else:
        count = next(
            (given for given in (arguments.count, arguments.clients) if given is not None),
            0 if clips or arguments.thermal else 4,
        )
        if not 0 <= count <= 10_000:
            raise UserError(f"--count {count} is not between 0 and 10000")
        for number in range(1, count + 1):
            specs[f"camera-{number}"] = CameraSpec(f"camera-{number}", "", clips.get(f"camera-{number}"))
    for text in arguments.thermal:
        camera, _, zone = text.partition("=")
        if not arguments.push:
            raise UserError(f"--thermal {text}: temperatures cannot be served as MJPEG, name a shard with --push")
        if not camera or camera in specs or camera in clips:
            raise UserError(f'--thermal "{text}" is not ID or ID=ZONE, or that camera is repeated')
        specs[camera] = CameraSpec(camera, zone, thermal=True)
    for camera, path in clips.items():
        specs.setdefault(camera, CameraSpec(camera, "", path))
    return list(specs.values())


def _parse_clips(texts: Sequence[str]) -> dict[str, Path]:
    """Video files by the camera that shows them."""
    clips: dict[str, Path] = {}
    for text in texts:
        path, equals, camera = text.rpartition("=")
        if not equals or not camera or not Path(path).is_file():
            raise UserError(f'--clip "{text}": write PATH=ID with the path of a video file')
        if "/" in camera or camera in clips:
            raise UserError(f'--clip "{text}": "{camera}" has another clip, or a slash in it')
        clips[camera] = Path(path)
    return clips


def run(arguments: argparse.Namespace) -> int:
    """Run the simulated cameras; return the exit code."""
    lifecycle.configure_logging()
    return lifecycle.run(lambda stop: _main(arguments, stop))


async def _main(arguments: argparse.Namespace, stop: asyncio.Event) -> int:
    check_load_options(arguments, arguments.fps)
    if is_load_test(arguments) and (not arguments.push or arguments.thermal):
        raise UserError("a load test needs --push and no --thermal: a shard reads other cameras at its own pace")
    _check_rtsp_options(arguments)
    specs = parse_specs(arguments)
    if is_load_test(arguments) and not specs:
        raise UserError("a load test needs at least one camera")
    size = _size(arguments.size)
    check_ranges(arguments, fps=(0.1, 60))
    fires = [parse_fire(text) for text in arguments.fire]
    for fire in fires:
        if not any(fire.is_visible_to(spec.id, spec.zone) for spec in specs):
            raise UserError(f'--fire: there is no camera "{fire.device}" and none in zone "{fire.zone}"')
    host, port = address_option("--listen", arguments.listen, any_port=True)
    if not is_load_test(arguments) and arguments.seconds:
        asyncio.get_running_loop().call_later(arguments.seconds, stop.set)
    options = {"fps": arguments.fps, "size": size, "seed": arguments.seed, "fires": fires}
    if arguments.push:
        address_option("--push", arguments.push)
    tls = tls_options(arguments, usable=bool(arguments.push), needed="--push")
    cameras = await prepare(specs, **options)
    if is_load_test(arguments):
        return await _load(arguments, cameras, tls, stop)
    if arguments.push:
        logger.info("pushing %s to %s", counted(len(specs), "camera"), arguments.push)
        await push_cameras(cameras, arguments.push, stop, device_token(arguments.token), tls)
        return 0

    if arguments.rtp or arguments.rtsp:
        return await _main_rtp(cameras, arguments, stop)

    def ready(bound: int) -> None:
        logger.info("%s on http://%s:%d/", counted(len(specs), "camera"), host, bound)

    await serve_mjpeg(cameras, host, port, stop, ready)
    return 0


def _size(text: str) -> tuple[int, int]:
    """Width and height of "640x480", in pixels; UserError if it is malformed."""
    width, times, height = text.partition("x")
    if not (
        times and width.isdecimal() and height.isdecimal() and 64 <= int(width) <= 4096 and 64 <= int(height) <= 4096
    ):
        raise UserError(f'--size "{text}" is not WIDTHxHEIGHT with 64 to 4096 pixels a side')
    return int(width), int(height)


async def _load(arguments: argparse.Namespace, cameras: Cameras, tls: ClientTls | None, stop: asyncio.Event) -> int:
    rate, packets = arguments.fps, packets_of(arguments, arguments.fps)
    load = Load(arguments.push, rate, packets, device_token(arguments.token), tls, arguments.seed)
    figures = [ClientFigures(spec.id) for spec in cameras.specs]
    settings = {"protocol": "push", "size": arguments.size, "latency": "due until the shard's window has taken it"}
    test = LoadTest(load.target, rate, packets, thresholds_of(arguments), settings)
    return await run_load(arguments, test, figures, lambda: push_load(cameras, figures, load), stop)


def _check_rtsp_options(arguments: argparse.Namespace) -> None:
    if not 0 <= arguments.loss < 100:
        raise UserError(f"--loss {arguments.loss:g} is not between 0 and 100")
    if arguments.loss and not arguments.rtsp:
        raise UserError(f"--loss {arguments.loss:g}: only --rtsp loses packets")
    if arguments.codec != "jpeg" and not arguments.rtsp:
        raise UserError(f"--codec {arguments.codec}: only --rtsp serves it")
    if arguments.onvif and (not arguments.rtsp or arguments.codec == "jpeg"):
        raise UserError("--onvif needs --rtsp HOST:PORT and --codec h264 or h265")


async def _main_rtp(cameras: Cameras, arguments: argparse.Namespace, stop: asyncio.Event) -> int:
    if arguments.rtp or arguments.codec == "jpeg":
        await asyncio.to_thread(check_carried, cameras)
    count = len(cameras.specs)
    if arguments.rtp:
        host, port = address_option("--rtp", arguments.rtp, any_port=True)
        last = port + PORT_STEP * (count - 1)
        if not 0 < port <= last + 1 <= 65_535:
            needed = f"{counted(count, 'camera needs', 'cameras need')} the ports {port} to {last + 1}"
            raise UserError(f'--rtp "{arguments.rtp}": {needed}')
        logger.info("sending %s to %s, ports %d to %d", counted(count, "camera"), host, port, last)
        await send_rtp(cameras, host, port, stop)
        return 0
    # ONVIF cameras announce the given address, so its port must be fixed.
    host, port = address_option("--rtsp", arguments.rtsp, any_port=not arguments.onvif)

    def ready(bound: int) -> None:
        logger.info("%s on rtsp://%s:%d/ID", counted(count, "camera"), host, bound)

    if arguments.onvif:
        await _add_smaller(cameras, arguments)
    async with asyncio.TaskGroup() as group:
        if arguments.onvif:
            group.create_task(_answer_onvif(cameras, arguments, stop), name="onvif")
        await serve_rtsp(cameras, host, port, stop, ready, arguments.codec.upper(), arguments.loss / 100)
        stop.set()
    return 0


async def _add_smaller(cameras: Cameras, arguments: argparse.Namespace) -> None:
    """Add a stream of half the size to each camera."""
    width, height = (int(side) // 2 for side in arguments.size.split("x"))
    fires = [parse_fire(text) for text in arguments.fire]
    small = await prepare(cameras.specs, fps=arguments.fps, size=(width, height), seed=arguments.seed, fires=fires)
    cameras.films.update({sub(camera): film for camera, film in small.films.items()})


async def _answer_onvif(cameras: Cameras, arguments: argparse.Namespace, stop: asyncio.Event) -> None:
    host, port = address_option("--onvif", arguments.onvif, any_port=True)
    width, height = map(int, arguments.size.split("x"))
    encoding = arguments.codec.upper()
    served: dict[str, list[tuple[Profile, str]]] = {}
    for spec in cameras.specs:
        whole = Profile("main", "main", encoding, width, height, arguments.fps, 4096, "video")
        half = Profile("sub", "sub", encoding, width // 2, height // 2, arguments.fps, 512, "video")
        address = f"rtsp://{arguments.rtsp}"
        served[spec.id] = [(whole, f"{address}/{spec.id}"), (half, f"{address}/{sub(spec.id)}")]

    def ready(bound: int) -> None:
        logger.info("ONVIF on http://%s:%d/ID", host, bound)

    await serve_onvif(OnvifCameras(served), host, port, stop, ready)


def sub(camera: str) -> str:
    """The name of the smaller stream of `camera`."""
    return f"{camera}-sub"
