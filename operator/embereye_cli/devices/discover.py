"""Find cameras on the network by WS-Discovery and ONVIF, and print a CameraFleet of them.

Standard output is a manifest for `kubectl apply --server-side --filename -`. It has no passwords: it names a Secret,
and a comment shows how to create it. Progress goes to standard error. Each device that answers the probe receives a
digest of the credentials, if there are any. Use them only in a network with devices of yours.
"""

import argparse
import asyncio
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from embereye.process import lifecycle
from embereye.process.lifecycle import UserError, value_errors
from embereye_cli.values import check_ranges
from embereye_operator.api.shared import OBJECT_NAME, ZONE

if TYPE_CHECKING:
    from embereye_operator.decide.discovered import Naming

USERNAME, PASSWORD = "EMBEREYE_CAMERA_USERNAME", "EMBEREYE_CAMERA_PASSWORD"
LONGEST = 120.0  # seconds of a search


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye discover`."""
    parser.add_argument("--interface", action="append", default=[], metavar="NAME|ADDRESS",
                        help="network interface to search; repeatable (default: all with an IPv4 address)")  # fmt: skip
    parser.add_argument("--host", action="append", default=[], metavar="HOST[:PORT]",
                        help="query this camera instead of searching; repeatable")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS",
                        help="time to wait for answers to the probe (%(default)s)")  # fmt: skip
    parser.add_argument("--credentials", metavar="FILE|NAME",
                        help="file with the cameras' user in the first line and the password in the second, or a name "
                        f"that `embereye credentials set` stored; default: ${USERNAME} and ${PASSWORD}")  # fmt: skip
    parser.add_argument("--name", default="cameras", help="name of the fleet (%(default)s)")
    parser.add_argument("--namespace", "-n", default="default", help="namespace of the fleet (%(default)s)")
    parser.add_argument("--zone", action="append", default=[], metavar="[PATTERN=]ZONE",
                        help="zone of all cameras (default: unassigned), or of those whose name or location matches, "
                        "as in 'Hall *=hall'; repeatable, the first match counts")  # fmt: skip
    parser.add_argument("--secret", default="", metavar="NAME",
                        help="Secret that will have the cameras' credentials (default: the NAME of --credentials, else "
                        "cameras)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Search, query and print; return 1 if no camera was found."""
    from embereye_operator.decide.discovered import Naming

    lifecycle.configure_logging()
    user, password, stored = named_credentials(arguments.credentials)
    arguments.secret = arguments.secret or stored or "cameras"
    for option in ("name", "namespace", "secret"):
        if not re.fullmatch(OBJECT_NAME, getattr(arguments, option)) or len(getattr(arguments, option)) > 40:
            raise UserError(f'--{option} "{getattr(arguments, option)}" is not the name of a Kubernetes object')
    zones = [_zone(text) for text in arguments.zone]
    check_ranges(arguments, timeout=(0.1, LONGEST))
    if arguments.host and arguments.interface:
        raise UserError("--interface has no effect with --host: leave one of them out")
    everywhere = [zone for pattern, zone in zones if not pattern]
    if len(everywhere) > 1:
        raise UserError("--zone: more than one without a pattern, as in 'Hall *=hall'")
    zone = everywhere[0] if everywhere else "unassigned"
    patterns = [entry for entry in zones if entry[0]]
    naming = Naming(arguments.name, arguments.namespace, zone, arguments.secret, patterns)
    return asyncio.run(_main(arguments, naming, user, password))


def _zone(text: str) -> tuple[str, str]:
    """Split [PATTERN=]ZONE; UserError if the zone is not a name of one."""
    pattern, _, zone = text.rpartition("=")
    if not re.fullmatch(ZONE, zone) or len(zone) > 63:
        raise UserError(f'--zone "{zone}" is not a zone name')
    return pattern, zone


def named_credentials(named: str | None) -> tuple[str, str, str]:
    """User, password, and the name under which they are stored, empty for a file; UserError if they cannot be read."""
    if named and re.fullmatch(OBJECT_NAME, named) and not Path(named).exists():
        from embereye.camera.sources.credentials import credentials_of
        from embereye.camera.sources.declared import DeclaredSource
        from embereye_cli.devices.credentials import FOLDER, default_folder

        os.environ.setdefault(FOLDER, str(default_folder()))
        with value_errors(f"--credentials {named}: "):
            user, password = credentials_of(DeclaredSource("rtsp", ""), named)()
        return user, password, named
    user, password = read_credentials(Path(named) if named else None)
    return user, password, ""


def read_credentials(file: Path | None) -> tuple[str, str]:
    """User and password from `file`, or else from the environment; empty if neither has them."""
    if file is None:
        return os.environ.get(USERNAME, ""), os.environ.get(PASSWORD, "")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"--credentials {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--credentials {file}: not UTF-8 text") from error
    if len(lines) < 2 or not lines[0]:
        raise UserError(f"--credentials {file}: write the user in the first line and the password in the second")
    return lines[0], lines[1]


def print_note(text: str) -> None:
    """Print a line to standard error, beside the answer."""
    print(text, file=sys.stderr, flush=True)


async def _main(arguments: argparse.Namespace, naming: "Naming", user: str, password: str) -> int:
    from embereye.camera.discovery import addresses, ask_all, search
    from embereye.camera.sources.declared import parse_source
    from embereye.camera.sources.onvif.found import FoundCamera
    from embereye_operator.decide.discovered import fleet_text

    if arguments.host:
        cameras = [FoundCamera(f"onvif://{host.removeprefix('onvif://')}") for host in dict.fromkeys(arguments.host)]
        with value_errors("--host: "):
            if any(parse_source(camera.source).user for camera in cameras):
                raise UserError("--host: leave user and password out, and use --credentials")
    else:
        interfaces = addresses(arguments.interface)
        by = ", ".join(f"{name} ({address})" for name, address in interfaces.items())
        print_note(f"searching for cameras on {by} for {arguments.timeout:g} s")
        cameras = await search(interfaces.values(), arguments.timeout, print_note)
    if not cameras:
        print_note(
            "no camera answered. Is this machine in their network, and is ONVIF enabled in them? --host queries one."
        )
        return 1
    answers = await ask_all(cameras, user, password, print_note)
    if arguments.host and all(camera.problem and not camera.refused for camera in answers):
        print_note("none of them answers as an ONVIF camera. Is it the port of its web page, and is ONVIF enabled?")
        return 1
    if any(camera.refused for camera in answers):
        remedy = (
            "they refuse those given" if user else f"name them with --credentials FILE, or {USERNAME} and {PASSWORD}"
        )
        print_note(f"some cameras need credentials: {remedy}")
    print(fleet_text(answers, naming), end="")
    return 0
