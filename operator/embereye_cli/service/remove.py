"""Have systemd stop and forget `embereye up`; its data stays unless --purge says otherwise."""

import os
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye_cli.service.unit import NAME, Places, systemctl


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--purge", action="store_true",
                        help="delete its data and manifests, too: history, clips, identity, tokens")  # fmt: skip
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR",
                        help="delete below DIR instead of /; nothing is stopped")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Stop it and delete its unit; returns the exit code."""
    places = Places(arguments.root)
    installed = places.unit.exists()
    kept_before = os.path.lexists(places.manifests) or os.path.lexists(places.data)
    if not installed and not (arguments.purge and kept_before):
        print(f"{places.unit} is not there: nothing to remove")
        return 0
    data = places.data.resolve()
    if arguments.purge and not data.is_relative_to(places.root.resolve()):
        raise UserError(f"{places.data} leads to {data}, which is not below {places.root}: delete the link first")
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
    kept = "" if arguments.purge else f"; kept are {places.manifests} and {places.data}, which --purge deletes"
    print(f"removed{kept}")
    return 0
