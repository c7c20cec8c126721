"""Look for cameras in the network by WS-Discovery and ONVIF, and print a CameraFleet of them.

Standard output is a manifest for `kubectl apply --filename -`, without passwords: it names a Secret, and says how that
is made. Progress goes to standard error. Whoever answers a probe is asked with the credentials, if there are any, as a
digest: do that in a network whose devices are yours.
"""

import argparse
import asyncio
import os
import re
import sys
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.lifecycle import UserError
from embereye_operator.api.shared import OBJECT_NAME, ZONE

USERNAME, PASSWORD = "EMBEREYE_CAMERA_USERNAME", "EMBEREYE_CAMERA_PASSWORD"
LONGEST = 120.0  # seconds of a search


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye discover`."""
    parser.add_argument("--interface", action="append", default=[], metavar="NAME|ADDRESS",
                        help="network interface to look by; may be repeated (all with an IPv4 address)")  # fmt: skip
    parser.add_argument("--host", action="append", default=[], metavar="HOST[:PORT]",
                        help="ask this camera instead of looking for some; may be repeated")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS",
                        help="to wait for answers to the probe (%(default)s)")  # fmt: skip
    parser.add_argument("--credentials", type=Path, metavar="FILE",
                        help="the cameras' user in its first line, the password in its second; else "
                        f"${USERNAME} and ${PASSWORD}")  # fmt: skip
    parser.add_argument("--name", default="cameras", help="of the fleet (%(default)s)")
    parser.add_argument("--namespace", "-n", default="default", help="of the fleet (%(default)s)")
    parser.add_argument("--zone", default="unassigned", help="of all cameras (%(default)s)")
    parser.add_argument("--secret", default="cameras", metavar="NAME",
                        help="that the cameras' credentials will be read from (%(default)s)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Look, ask, print; 1 where no camera was found."""
    lifecycle.configure_logging()
    for option in ("name", "namespace", "secret"):
        if not re.fullmatch(OBJECT_NAME, getattr(arguments, option)) or len(getattr(arguments, option)) > 40:
            raise UserError(f'--{option} "{getattr(arguments, option)}" is not the name of a Kubernetes object')
    if not re.fullmatch(ZONE, arguments.zone) or len(arguments.zone) > 63:
        raise UserError(f'--zone "{arguments.zone}" is not a zone name')
    if not 0.1 <= arguments.timeout <= LONGEST:
        raise UserError(f"--timeout {arguments.timeout:g} is not between 0.1 and {LONGEST:g} seconds")
    if arguments.host and arguments.interface:
        raise UserError("--host asks a camera directly: --interface has no meaning with it")
    user, password = read_credentials(arguments.credentials)
    return asyncio.run(_main(arguments, user, password))


def read_credentials(file: Path | None) -> tuple[str, str]:
    """User and password from `file`, else from the environment; empty where neither says them."""
    if file is None:
        return os.environ.get(USERNAME, ""), os.environ.get(PASSWORD, "")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"--credentials {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--credentials {file}: it is no UTF-8 text") from error
    if len(lines) < 2 or not lines[0]:
        raise UserError(f"--credentials {file}: write the user into its first line and the password into its second")
    return lines[0], lines[1]


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _main(arguments: argparse.Namespace, user: str, password: str) -> int:
    from embereye.camera.discovery import addresses, ask_all, search
    from embereye.camera.sources.declared import SourceError, parse_source
    from embereye.camera.sources.onvif.found import FoundCamera
    from embereye_operator.decide.discovered import Naming, fleet_text

    if arguments.host:
        found = [FoundCamera(f"onvif://{host.removeprefix('onvif://')}") for host in dict.fromkeys(arguments.host)]
        try:
            if any(parse_source(camera.source).user for camera in found):
                raise UserError("--host: leave user and password out, and use --credentials")
        except SourceError as error:
            raise UserError(f"--host: {error}") from error
    else:
        interfaces = addresses(arguments.interface)
        by = ", ".join(f"{name} ({address})" for name, address in interfaces.items())
        _print_note(f"looking for cameras by {by} for {arguments.timeout:g} s")
        found = await search(interfaces.values(), arguments.timeout, _print_note)
    if not found:
        _print_note(
            "no camera answered: is this machine in their network, and is ONVIF switched on in them? --host asks one"
        )
        return 1
    asked = await ask_all(found, user, password, _print_note)
    if arguments.host and all(camera.problem and not camera.refused for camera in asked):
        _print_note("none of them answers as an ONVIF camera: is the port its web page's, and is ONVIF switched on?")
        return 1
    if any(camera.refused for camera in asked):
        own = "those given are refused" if user else f"name them with --credentials FILE, or {USERNAME} and {PASSWORD}"
        _print_note(f"some cameras want credentials: {own}")
    print(fleet_text(asked, Naming(arguments.name, arguments.namespace, arguments.zone, arguments.secret)), end="")
    return 0
