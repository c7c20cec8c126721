"""Which events a command asks for: --zone, --level, --kind, --device, --type, and from when until when."""

import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import datetime

from embereye.hub.feeds.selection import EVERYTHING, KINDS, LEVELS, TYPES, Selection, read_selection
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_cli.values import duration

FIRST, LAST = -(2**63), 2**63 - 1  # nanoseconds since the Unix epoch that the wire has: from 1677 to 2262
FIELDS = {"zone": "zones", "level": "levels", "kind": "kinds", "device": "devices", "type": "types"}


def add_selection_options(parser: ArgumentParser) -> None:
    """Declare them; each may be given again."""
    parser.add_argument("--zone", action="append", default=[], help="only this zone, ZONE or NAMESPACE/ZONE")
    parser.add_argument("--level", action="append", default=[], choices=LEVELS,
                        help="only where the zone is or was at this level; faults and tests all the same")  # fmt: skip
    parser.add_argument("--kind", action="append", default=[], choices=KINDS,
                        help="only with such a sign; faults and tests all the same")  # fmt: skip
    parser.add_argument("--device", action="append", default=[], metavar="ID", help="only about this device")
    parser.add_argument("--type", action="append", default=[], choices=TYPES, help="only events of this type")


def selection_of(arguments: Namespace) -> Selection:
    """What was asked for; all where the options were not declared. UserError."""
    if not hasattr(arguments, "level"):
        return EVERYTHING
    try:
        return read_selection({field: getattr(arguments, option) for option, field in FIELDS.items()})
    except ValueError as error:
        raise UserError(f"--{error}") from error


def moment(text: str) -> int:
    """A time as people write it, in nanoseconds since the Unix epoch; ArgumentTypeError where it is none."""
    try:
        if re.fullmatch(r"[0-9.]+(ms|s|m|h|d)", text):
            found = time.time_ns() - int(duration(text) * SECOND)
        else:
            found = int(datetime.fromisoformat(text).timestamp() * SECOND)
        if not FIRST <= found <= LAST:
            raise ValueError(found)
    except (ValueError, OverflowError) as error:
        example = "2026-11-22T17:50, or of the form 90m or 2d, so long ago"
        raise ArgumentTypeError(f'"{text}" is not a time such as {example}') from error
    return found
