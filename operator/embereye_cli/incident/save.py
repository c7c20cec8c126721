"""Save an alarm with its recordings and its decision, to be checked with later versions.

The folder has the alarm's events, the recorded lines of sensors, the clips of cameras, and what this version decides
from them. Put it into a repository: `embereye incident check` then fails when a version or a threshold decides
otherwise. Clips show people: think of who reads the repository.
"""

import hashlib
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from embereye.process.files import system_errors
from embereye.process.lifecycle import UserError
from embereye.units import counted
from embereye_cli.explain.alarm import LISTER, check_alarm_id
from embereye_cli.explain.masks import masks_at_hub
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.incident.folder import Incident, file_name

WITH_MASKS = frozenset({"MEDIA_CLIP", "MEDIA_VIDEO"})  # recordings to replay with their camera's masks


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("alarm", metavar="ID", help="the alarm's id, as `embereye alarms --json history` has it")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder of all incidents; this one becomes DIR/ID")
    add_console_options(parser)


def run(arguments: Namespace) -> int:
    """Save the incident."""
    check_alarm_id(arguments.alarm)
    target: Path = arguments.folder / arguments.alarm
    if target.exists():
        raise UserError(f"{target} exists already. Remove it to save the incident again.")
    hub = HttpHub(console_connection(arguments))
    path = f"/v1/alarms/{arguments.alarm}"
    alarm = hub.read(path, "events", lister=LISTER)
    listed = hub.read(f"{path}/clips", "clips")
    recordings: list[dict[str, Any]] = []
    contents: dict[str, bytes] = {}
    masks_of = masks_at_hub(hub)
    for number, recording in enumerate([*listed.get("lines", []), *listed["clips"]], 1):
        name, content = file_name(number, recording), hub.fetch(recording["url"])
        contents[name] = content
        recordings.append(recording | {"file": name, "sha256": hashlib.sha256(content).hexdigest()})
        if recording["media"] in WITH_MASKS and (masks := masks_of(recording)):
            recordings[-1]["masks"] = masks.to_json()
    with system_errors(f"{target} cannot be written"):
        target.mkdir(parents=True)
        for name, content in contents.items():
            (target / name).write_bytes(content)
        incident = Incident(target, alarm, recordings, [])
        decided = [{"of": verdict.subject, "same": verdict.same, "why": verdict.why} for verdict in incident.replay()]
        replace(incident, expected=decided).write()
    size = sum(map(len, contents.values()))
    print(f"saved {target}: {counted(len(contents), 'recording')}, {size / 1e6:.1f} MB")
    return 0
