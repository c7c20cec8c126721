"""Print the devices of fleets as a CSV table, which `embereye fleet import` reads."""

import argparse
import csv
import json
import sys
from pathlib import Path

from embereye.process.lifecycle import NotFoundError
from embereye_cli.devices.fleet_import import COLUMNS, exported
from embereye_operator.api.schema import to_manifest
from embereye_operator.up.folder import load_fleets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye fleet export`."""
    parser.add_argument("manifests", nargs="+", type=Path, metavar="FLEET.yaml", help="fleets, and their ConfigMaps")
    parser.add_argument("--kind", choices=("cameras", "sensors"), default="cameras", help="devices (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Print the table of all fleets of the kind; NotFoundError if there are none."""
    fleets = [fleet for fleet in load_fleets(arguments.manifests).values() if fleet.kind == arguments.kind]
    if not fleets:
        raise NotFoundError(f"{', '.join(map(str, arguments.manifests))}: no fleet of {arguments.kind}")
    devices = [to_manifest(device) for fleet in fleets for device in fleet.devices]
    table = csv.DictWriter(sys.stdout, COLUMNS[arguments.kind], lineterminator="\n")
    table.writeheader()
    table.writerows(exported(arguments.kind, json.dumps(devices)))
    return 0
