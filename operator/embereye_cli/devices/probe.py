"""Try out a camera: find its streams, measure them, save a still, and print a CameraFleet.

ADDRESS is a host, HOST:PORT, or the URL of a stream. ONVIF is asked first, then the addresses that are known for each
maker by RTSP (over TLS, if the camera has that), then MJPEG over HTTP. Standard output is a manifest without passwords;
what was found goes to standard error. No password is guessed, and a refused one is not sent again.
"""

import argparse
import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embereye.process import lifecycle
from embereye.process.files import system_errors
from embereye.process.lifecycle import CheckFailedError, RefusedError, UnreachableError, UserError
from embereye_cli.devices.discover import named_credentials, print_note
from embereye_cli.terminal import print_json
from embereye_cli.values import check_ranges
from embereye_operator.api.shared import ZONE

if TYPE_CHECKING:
    from embereye.camera.probe.search import Camera, Found

LONGEST = 60.0  # seconds to measure a stream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye camera probe`."""
    from embereye.camera.probe.makers import makers

    parser.add_argument("address", metavar="ADDRESS", help="HOST, HOST:PORT, or a URL such as rtsp://HOST/PATH")
    parser.add_argument("--credentials", metavar="FILE|NAME",
                        help="file with the user in the first line and the password in the second, or a name that "
                        "`embereye credentials set` stored; default: $EMBEREYE_CAMERA_USERNAME and "
                        "$EMBEREYE_CAMERA_PASSWORD")  # fmt: skip
    parser.add_argument("--maker", choices=makers(), metavar="MAKER",
                        help=f"try this maker's addresses first: {', '.join(makers())}")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=4.0, metavar="SECONDS",
                        help="time to measure each stream (%(default)s)")  # fmt: skip
    parser.add_argument("--still", type=Path, metavar="FILE.jpg",
                        help="file for a picture of the camera (default: HOST.jpg)")  # fmt: skip
    parser.add_argument("--id", default="", help="id of the camera in the manifest (default: its host)")
    parser.add_argument("--zone", default="unassigned", help="its zone (%(default)s)")
    parser.add_argument("--name", default="cameras", help="name of the fleet (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON instead of a manifest")


def run(arguments: argparse.Namespace) -> int:
    """Probe and print. Exit code 1: nothing plays, 3: unreachable, 4: the camera refuses the credentials."""
    from embereye.camera.probe.search import NoAnswerError, Probe, WrongPasswordError
    from embereye.camera.sources.declared import SourceError

    lifecycle.configure_logging("WARNING")
    if not re.fullmatch(ZONE, arguments.zone) or len(arguments.zone) > 63:
        raise UserError(f'--zone "{arguments.zone}" is not a zone name')
    check_ranges(arguments, seconds=(0.5, LONGEST))
    user, password, secret = named_credentials(arguments.credentials)
    secret = secret or "cameras"
    probe = Probe(arguments.address, user, password, print_note, arguments.maker or "", arguments.seconds)
    try:
        camera = asyncio.run(probe.run())
    except NoAnswerError as error:
        raise UnreachableError(str(error)) from error
    except WrongPasswordError as error:
        raise RefusedError(str(error)) from error
    except SourceError as error:
        raise CheckFailedError(str(error)) from error
    except ValueError as error:
        raise UserError(f'ADDRESS "{arguments.address[:80]}": {error}') from error
    still = _save_still(camera, arguments.still)
    for stream in camera.streams:
        for line in _described(stream):
            print_note(line)
    if arguments.json:
        print_json(_as_json(camera, still), line=False)
    else:
        print(_fleet(camera, arguments, secret), end="")
    return 0


def _save_still(camera: "Camera", wanted: Path | None) -> Path | None:
    """Write the sharpest picture to a file, and say where; None if no picture could be decoded."""
    still = max((stream.measured.still for stream in camera.streams), key=len, default=b"")
    if not still:
        print_note("no still: no key frame could be decoded in time. Measure longer with --seconds 20")
        return None
    path = wanted or Path(f"{re.sub(r'[^A-Za-z0-9.-]', '-', camera.host)}.jpg")
    with system_errors(f"--still {path}"):
        path.write_bytes(still)
    print_note(f"still: {path}")
    return path


def _described(stream: "Found") -> list[str]:
    """Describe a stream in a line, and give advice about what to set in the camera."""
    from embereye.camera.sources.declared import redact

    seen = stream.measured
    lines = [
        f"{redact(stream.source)}: {seen.codec} {seen.size[0]}x{seen.size[1]}, {seen.rate:.1f} frames/s, "
        f"{seen.kilobits:.0f} kbit/s, first picture after {seen.first_seconds:.1f} s"
        + (f", a key frame every {seen.key_seconds:.1f} s" if seen.key_seconds else "")
        + (f", by {' and '.join(stream.ways)}" if stream.ways else "")
    ]
    if seen.codec != "JPEG" and not seen.key_seconds:
        lines.append("  fewer than two key frames came meanwhile: set the key-frame interval to one second")
    elif seen.key_seconds > 2.5:
        lines.append("  set the key-frame interval to one second, so that pictures appear soon after a break")
    if seen.reordered:
        lines.append("  it has B-frames, which delay pictures: switch them off, or choose the baseline profile")
    if seen.damaged:
        lines.append(f"  {seen.damaged} pictures came incomplete: look at the network")
    return lines


def _as_json(camera: "Camera", still: Path | None) -> dict[str, Any]:
    return {
        "host": camera.host,
        "maker": camera.maker,
        "guarded": camera.guarded,
        "still": str(still) if still else None,
        "streams": [
            {
                "source": stream.source, "codec": stream.measured.codec,
                "width": stream.measured.size[0], "height": stream.measured.size[1],
                "framesPerSecond": round(stream.measured.rate, 2), "kilobitsPerSecond": round(stream.measured.kilobits),
                "keyFrameSeconds": round(stream.measured.key_seconds, 2) or None,
                "firstPictureSeconds": round(stream.measured.first_seconds, 2),
                "reordered": stream.measured.reordered, "transports": list(stream.ways),
            }
            for stream in camera.streams
        ],
    }  # fmt: skip


def _fleet(camera: "Camera", arguments: argparse.Namespace, secret: str) -> str:
    from embereye_operator.decide.discovered import Naming, fleet_text, probed_text

    naming = Naming(arguments.name, "default", arguments.zone, secret)
    if camera.onvif is not None:
        return fleet_text([camera.onvif], naming)
    sources = [stream.source for stream in camera.streams]
    return probed_text(arguments.id or camera.host, camera.maker, sources, naming, guarded=camera.guarded)
