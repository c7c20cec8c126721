"""Show how often the hub raises false alarms, and how certain that is.

The rate is false alarms per device and day. An alarm is false if a person marked it so, in the console or with
`embereye alarms false`. Only time in which a device was watched counts. "At most" is the upper exact 95 % limit: after
30 days of one device without a false alarm, it is 0.1 a day.
"""

import time
from argparse import ArgumentParser, Namespace
from typing import Any

from rich.table import Column

from embereye.units import SECOND
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.terminal import local_time, print_json, print_table, whole_column
from embereye_cli.values import duration

SCOPES = ("site", "kind", "zone", "device")
NAMES = ("kind", "namespace", "zone", "fleet", "device")  # fields that name a row's subject


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--last", type=duration, default=duration("30d"), metavar="DURATION",
                        help="the time before now that is counted (30d)")  # fmt: skip
    parser.add_argument("--by", choices=SCOPES, default=None, metavar="SCOPE",
                        help="only rows of this scope: site, kind, zone or device; default: site and kind")  # fmt: skip
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    """Print the rates."""
    until_ns = time.time_ns()
    from_ns = max(0, until_ns - int(arguments.last * SECOND))
    answer = HttpHub(console_connection(arguments)).read(f"/v1/quality?from={from_ns}&until={until_ns}", "rows")
    scopes = (arguments.by,) if arguments.by else ("site", "kind")
    rows = [row for row in answer["rows"] if row["scope"] in scopes]
    if arguments.json:
        print_json(answer | {"rows": rows})
        return 0
    print_table(
        [whole_column("SUBJECT"), "VERSION", *(Column(name, justify="right") for name in (
            "DEVICE-DAYS", "ALARMS", "FALSE", "FALSE A DAY", "AT MOST"))],
        [_cells(row) for row in rows],
        empty="No device was heard yet, so nothing can be said.",
    )  # fmt: skip
    if answer.get("truncated"):
        print(f"There were too many events since {local_time(from_ns)}: choose a shorter --last.")
    return 0


def _cells(row: dict[str, Any]) -> list[str]:
    subject = "/".join(row[name] for name in NAMES if name in row) or "all devices"
    rate = ["", ""] if "perDay" not in row else [_rate(row["perDay"]), _rate(row["high"])]
    return [subject, row["version"], f"{row['deviceDays']:.2f}", f"{row['alarms']}", f"{row['falseAlarms']}", *rate]


def _rate(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"
