"""Stop and delete the systemd service of `embereye up`. Its data remains, unless --purge deletes it."""

import os
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye_cli.service.unit import NAME, Places, systemctl


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--purge", action="store_true",
                        help="also delete its data and manifests: history, clips, identity, tokens")  # fmt: skip
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR",
                        help="delete below DIR instead of /; nothing is stopped")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Stop the service and delete its unit; return the exit code."""
    places = Places(arguments.root)
    installed = places.unit.exists()
    has_data = os.path.lexists(places.manifests) or os.path.lexists(places.data)
    if not installed and not (arguments.purge and has_data):
        print(f"{places.unit} does not exist: nothing to remove")
        return 0
    data = places.data.resolve()
    if arguments.purge and not data.is_relative_to(places.root.resolve()):
        raise UserError(f"{places.data} is a link to {data}, which is not below {places.root}. Delete the link first.")
    if installed and places.is_this_machine:
        systemctl("disable", "--now", NAME)
    try:
        places.unit.unlink(missing_ok=True)
        if arguments.purge:
            for folder in (places.manifests, data):
                if folder.exists():
                    shutil.rmtree(folder)
            places.data.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be deleted: {error.strerror}; run this as root") from error
    if installed and places.is_this_machine:
        systemctl("daemon-reload")
    remaining = "" if arguments.purge else f"; {places.manifests} and {places.data} remain, --purge deletes them"
    print(f"removed{remaining}")
    return 0
