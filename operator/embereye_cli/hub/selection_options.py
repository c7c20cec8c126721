"""Options that select events: --zone, --level, --kind, --device and --type; times of the history."""

import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import datetime

from embereye.hub.tables.selection import EVERYTHING, KINDS, LEVELS, TYPES, Selection, read_selection
from embereye.process.lifecycle import value_errors
from embereye.units import SECOND
from embereye_cli.values import duration

FIRST, LAST = -(2**63), 2**63 - 1  # nanoseconds since the Unix epoch that fit in 64 bits: from 1677 to 2262
FIELDS = {"zone": "zones", "level": "levels", "kind": "kinds", "device": "devices", "type": "types"}


def add_selection_options(parser: ArgumentParser) -> None:
    """Declare the options; each can be repeated."""
    parser.add_argument("--zone", action="append", default=[], help="only this zone, ZONE or NAMESPACE/ZONE")
    parser.add_argument("--level", action="append", default=[], choices=LEVELS,
                        help="only if the zone is or was at this level; faults and tests are always "
                        "included")  # fmt: skip
    parser.add_argument("--kind", action="append", default=[], choices=KINDS,
                        help="only with this kind of sign; faults and tests are always included")  # fmt: skip
    parser.add_argument("--device", action="append", default=[], metavar="ID", help="only about this device")
    parser.add_argument("--type", action="append", default=[], choices=TYPES, help="only events of this type")


def selection_of(arguments: Namespace) -> Selection:
    """The selected events; all of them if the options were not declared. UserError."""
    if not hasattr(arguments, "level"):
        return EVERYTHING
    with value_errors("--"):
        return read_selection({field: getattr(arguments, option) for option, field in FIELDS.items()})


def moment(text: str) -> int:
    """A time as people write it, in nanoseconds since the Unix epoch; ArgumentTypeError if it is none."""
    try:
        if re.fullmatch(r"[0-9.]+(ms|s|m|h|d)", text):
            time_ns = time.time_ns() - int(duration(text) * SECOND)
        else:
            time_ns = int(datetime.fromisoformat(text).timestamp() * SECOND)
        if not FIRST <= time_ns <= LAST:
            raise ValueError(time_ns)
    except (ValueError, OverflowError) as error:
        if re.fullmatch(r"-[0-9.]+(ms|s|m|h|d)", text):
            raise ArgumentTypeError(f'"{text}" is negative: write {text[1:]} for {text[1:]} ago') from error
        example = "2026-11-22T17:50, or 90m or 2d for so long ago"
        raise ArgumentTypeError(f'"{text}" is not a time such as {example}') from error
    return time_ns
