"""The token that a command shows the hub: --token, EMBEREYE_TOKEN, or the one that the hub here made for itself."""

import ipaddress
import os
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls
from embereye.units import split_address

OWN_FILE = Path(".embereye/hub/admin-token")  # of `embereye up` in this folder
REMEDY = (
    "show a token with --token or EMBEREYE_TOKEN; `embereye access create` makes them, and `embereye up` keeps an "
    f"admin's in hub/admin-token of its --data: --token @FILE; where there is one, {OWN_FILE} is used by itself"
)


def add_token_option(parser: ArgumentParser) -> None:
    """Declare --token."""
    parser.add_argument("--token", default=os.environ.get("EMBEREYE_TOKEN", ""), metavar="TOKEN|@FILE",
                        help="that the hub asks for, or @FILE with it; default: for a hub on this machine the one "
                        f"in {OWN_FILE} [EMBEREYE_TOKEN]")  # fmt: skip


def add_hub_tls_options(parser: ArgumentParser) -> None:
    """Declare how the hub is spoken to over TLS."""
    parser.add_argument("--ca", default=os.environ.get("EMBEREYE_HUB_CA", ""), metavar="FILE|system",
                        help="speak TLS to the hub, and trust the authorities in FILE (PEM), or the system's "
                        "[EMBEREYE_HUB_CA]")  # fmt: skip
    parser.add_argument("--server-name", default=os.environ.get("EMBEREYE_HUB_NAME", ""), metavar="NAME",
                        help="a name in the hub's certificate; default: --hub's host [EMBEREYE_HUB_NAME]")  # fmt: skip


def add_hub_options(parser: ArgumentParser, *, json: bool = True) -> None:
    """Declare --hub, --json where there is such output, and how the hub is asked."""
    hub = os.environ.get("EMBEREYE_HUB", "127.0.0.1:50052")
    parser.add_argument(
        "--hub", type=_address, default=hub, help="host:port of the hub's gRPC port (%(default)s) [EMBEREYE_HUB]"
    )
    if json:
        parser.add_argument("--json", action="store_true", help="one JSON object per line")
    add_token_option(parser)
    add_hub_tls_options(parser)


def add_hub_options_behind(actions: Iterable[ArgumentParser]) -> None:
    """Let the options of `add_hub_options` stand behind an action's name as well, where people write them too."""
    for action in actions:
        for option in ("--hub", "--token", "--ca", "--server-name"):
            kind = _address if option == "--hub" else str
            action.add_argument(option, type=kind, default=SUPPRESS, help=SUPPRESS)
        action.add_argument("--json", action="store_true", default=SUPPRESS, help=SUPPRESS)
        command = action.prog.rpartition(" ")[0]
        action.epilog = (
            f"--hub, --json, --token, --ca and --server-name, of `{command} --help`, may stand here as well."
        )


def hub_tls(arguments: Namespace) -> ClientTls | None:
    """How the hub is spoken to; None: without TLS. UserError where the file of --ca cannot be used."""
    if not arguments.ca:
        return None
    tls = ClientTls(None if arguments.ca == "system" else Path(arguments.ca), server_name=arguments.server_name)
    try:
        tls.check()
    except UserError as error:
        remedy = "name a file with the certificates of who signed the hub's, in PEM"
        raise UserError(f"--ca {arguments.ca} cannot be used: {error}: {remedy}") from error
    return tls


def token_for(given: str, host: str) -> str:
    """The token to show the hub at `host`; '' where there is none. UserError where it is none, or cannot be read.

    A file that nobody named is for a hub on this machine alone: no other gets to see it.
    """
    token, place = given, "--token"
    try:
        if given.startswith("@") or (not given and _is_here(host) and OWN_FILE.exists()):
            path = Path(given[1:]) if given else OWN_FILE
            place = f"the token in {path}"
            token = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{place} cannot be read: {getattr(error, 'strerror', '') or error}") from error
    token = token.strip()
    if not token.isascii() or not token.isprintable():
        raise UserError(f"{place} holds characters that no token has: copy it once more")
    return token


def add_device_token_option(parser: ArgumentParser, needed: str = "") -> None:
    """Declare --token, which a shard is shown; it means something with the option `needed`."""
    needed = f"with {needed}: " if needed else ""
    parser.add_argument("--token", default=os.environ.get("EMBEREYE_DEVICE_TOKEN", ""), metavar="TOKEN|@FILE",
                        help=f"{needed}what spec.access asks for [EMBEREYE_DEVICE_TOKEN]")  # fmt: skip


def device_token(given: str) -> str:
    """The token that devices show; UserError where its file cannot be read."""
    return token_for(given, "") if given else ""


def _address(text: str) -> str:
    """HOST:PORT, or what gRPC has for a socket's path."""
    if not text.startswith("unix:"):
        try:
            split_address(text)
        except ValueError as error:
            _, _, remedy = str(error).partition("; ")
            sentence = f'"{text}" is not HOST:PORT, such as 127.0.0.1:50052'
            raise ArgumentTypeError(f"{sentence}; {remedy}" if remedy else sentence) from error
    return text


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
