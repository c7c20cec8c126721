"""List what only a fleet's candidate, or only its detection in force, found.

A candidate, spec.detection.candidate of a fleet, has other settings of detection. It judges the same data silently.
Each pre-alarm and alarm that only one of both raised is a difference. Its clip, or its recording of a sensor, is stored
as for an alarm.
"""

import tempfile
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from rich.table import Column

from embereye.units import SECOND
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.terminal import local_time, print_json, print_table, whole_column
from embereye_cli.values import duration

SIDES = {"inForce": "in force", "candidate": "candidate"}
SHOWN = (".mp4", ".mkv", ".jpg")  # files that players and browsers show


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--last", type=duration, default=duration("30d"), metavar="DURATION",
                        help="the time before now that is listed (30d)")  # fmt: skip
    parser.add_argument("--fleet", default="", metavar="FLEET", help="only of this fleet, such as default/sensors/hall")
    parser.add_argument("--save", type=Path, default=None, metavar="DIR", help="save the clips and recordings in DIR")
    parser.add_argument("--play", action="store_true", help="play the clips, in the program that opens such files")
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    """List the differences; return 1 if there is any, as `diff` does."""
    hub = HttpHub(console_connection(arguments))
    from_ns = max(0, time.time_ns() - int(arguments.last * SECOND))
    answer = hub.read(f"/v1/detection/differences?from={from_ns}", "candidates", "differences")
    for name in ("candidates", "differences"):
        answer[name] = [row for row in answer[name] if arguments.fleet in {"", row["fleet"]}]
    rows = answer["differences"]
    if arguments.json:
        print_json(answer)
    else:
        for candidate in answer["candidates"]:
            print(_compared(candidate))
        print_table(
            [whole_column("TIME"), "FLEET", "DEVICE", "KIND", "LEVEL", "ONLY", "CANDIDATE", "BECAUSE",
             Column("CLIPS", justify="right")],
            [_cells(row) for row in rows],
            empty="No differences.",
        )  # fmt: skip
    if arguments.save or arguments.play:
        folder = arguments.save or Path(tempfile.mkdtemp(prefix="embereye-"))
        folder.mkdir(parents=True, exist_ok=True)
        for path in _saved(hub, rows, folder):
            print(path)
            if arguments.play and path.suffix in SHOWN:
                webbrowser.open(path.as_uri())
    return 1 if rows else 0


def _compared(candidate: dict[str, Any]) -> str:
    unseen = f", {candidate['unseen']} not judged, because a shard was busy" if candidate["unseen"] else ""
    problem = f". It cannot judge everything: {candidate['problem']}" if candidate["problem"] else ""
    return (
        f"{candidate['fleet']}: {candidate['candidate']} is compared since {local_time(int(candidate['sinceNs']))}: "
        f"{candidate['seen']} readings or frames{unseen}, {candidate['cpuSeconds']:.1f} CPU seconds{problem}"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    because = ", ".join(f"{term['name']} {term['value']:g} {term['unit']}" for term in row["terms"][:2])
    return [
        local_time(int(row["atNs"])), row["fleet"], row["device"], row["kind"], row["level"], SIDES[row["which"]],
        row["candidate"], because, str(len(row["clips"])),
    ]  # fmt: skip


def _saved(hub: HttpHub, rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Save the clips of `rows` in `folder`; return their files."""
    paths = []
    for row in rows:
        for clip in row["clips"]:
            path = folder / f"{row['id'][:8]}-{row['which']}-{Path(clip['url']).name[:8]}{Path(clip['url']).suffix}"
            path.write_bytes(hub.fetch(clip["url"]))
            paths.append(path)
    return paths
