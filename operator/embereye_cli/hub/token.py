"""The token that a command presents: --token, EMBEREYE_TOKEN, or the one that the hub on this machine made.

The option wins over the variable, and both over a file. The file that an `embereye up` wrote is used for a hub on this
machine only, so no other server receives its token. `connection.py` calls `token_for`.
"""

import ipaddress
from argparse import ArgumentParser
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye_cli.options import Option
from embereye_operator.up import site

OWN_FILE = site.token_file(site.DATA)  # of an `embereye up` in the working folder


def add_token_option(parser: ArgumentParser) -> None:
    """Declare --token."""
    Option("--token", "token for the hub, or @FILE to read it from a file; default: for a hub on this machine, the one "
           f"in {OWN_FILE}", metavar="TOKEN|@FILE").add_to(parser)  # fmt: skip


def token_for(given: str, host: str, own: Path | None = None) -> str:
    """The token to present to the hub at `host`; empty if there is none. UserError if it cannot be read.

    `own` is the token file of the `embereye up` that runs this hub. Without it, the file in the working folder is used
    for a hub on this machine only: no other hub must see it.
    """
    token, place = given, "--token"
    file = Path(given[1:]) if given.startswith("@") else None
    if not given:
        file = own or (OWN_FILE if is_this_machine(host) and OWN_FILE.exists() else None)
    try:
        if file:
            place = f"the token in {file}"
            token = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{place} cannot be read: {getattr(error, 'strerror', '') or error}") from error
    token = token.strip()
    if not token.isascii() or not token.isprintable():
        raise UserError(f"{place} has characters that are not allowed in a token. Copy it again.")
    return token


def add_device_token_option(parser: ArgumentParser, needed: str = "") -> None:
    """Declare --token for a shard; it has an effect only with the option `needed`."""
    needed = f"with {needed}: " if needed else ""
    Option("--token", f"{needed}device token, or @FILE, if the fleet's spec.access requires one",
           metavar="TOKEN|@FILE", variable="DEVICE_TOKEN").add_to(parser)  # fmt: skip


def device_token(given: str) -> str:
    """The token that devices present; UserError if its file cannot be read."""
    return token_for(given, "") if given else ""


def is_this_machine(host: str) -> bool:
    """True if `host` is localhost or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
