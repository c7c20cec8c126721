"""Decide saved alarms again with this version, and fail if one is decided otherwise.

DIR is one saved incident, or a folder of them. The signs are given to the zone, the recorded lines to the sensors'
thresholds, and the clips to the cameras' detectors. For each difference, it prints what was decided then and now, with
the terms and their limits. With --fleet, the thresholds and masks in a manifest decide instead of the saved ones: so a
change of thresholds shows what it would have done to all saved incidents.
"""

from argparse import ArgumentParser, Namespace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from embereye.process.telemetry.logs import visible
from embereye.units import counted
from embereye_cli.explain.alarm import Verdict
from embereye_cli.explain.masks import masks_in_manifest
from embereye_cli.incident.folder import Incident, find
from embereye_cli.terminal import print_json
from embereye_operator.decide.placement.assignments import build_device, build_settings
from embereye_operator.up.folder import load_fleets


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="a saved incident, or a folder of them")
    parser.add_argument("--fleet", type=Path, action="append", default=[], metavar="FLEET.yaml",
                        help="decide with the thresholds and masks of the fleets in this file; repeatable")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object per incident")


def run(arguments: Namespace) -> int:
    """Check all; return 1 if any differs."""
    differing = 0
    folders = find(arguments.folder)
    fleets = load_fleets(arguments.fleet) if arguments.fleet else {}
    settings = {key: build_settings(fleet.spec) for key, fleet in fleets.items()}
    masks_of = masks_in_manifest(
        {(key, device.id): build_device(device, fleet) for key, fleet in fleets.items() for device in fleet.devices}
    )
    for folder in folders:
        incident = Incident.read(folder)
        differences = list(_differences(incident.expected, list(incident.replay(settings, masks_of))))
        differing += bool(differences)
        if arguments.json:
            print_json({"incident": folder.name, "same": not differences, "differences": differences})
            continue
        print(visible(f"{folder.name}: {'OTHER decision than when it was saved' if differences else 'same decision'}"))
        for difference in differences:
            print(visible(f"  {difference['of']}"))
            print(visible(f"    then: {difference['then']}"))
            print(visible(f"    now:  {difference['now']}"))
    if not arguments.json:
        print(f"{counted(len(folders), 'incident')}, {differing} decided otherwise")
    return 1 if differing else 0


def _differences(expected: list[dict[str, Any]], verdicts: list[Verdict]) -> list[dict[str, str]]:
    return [
        {
            "of": now.subject if now else str(then["of"]),
            "then": str(then["why"]) if then else "not decided",
            "now": now.why if now else "not decided",
        }
        for then, now in zip_longest(expected, verdicts)
        if then is None or now is None or bool(then["same"]) != now.same
    ]
