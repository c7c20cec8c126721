"""Decide once more on a recorded scaling trace, and say why."""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from embereye.units import SECOND
from embereye_operator.decide.scaling.law import Decision, Scaler
from embereye_operator.decide.scaling.trace import Entry, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("trace", type=Path, help="a file that --scaling-trace or `embereye up` wrote")
    parser.add_argument("--all", action="store_true", help="show every entry, not only where something changes")
    parser.add_argument("--json", action="store_true", help="a line of JSON per entry")


def run(arguments: argparse.Namespace) -> int:
    """Replay; returns the exit code."""
    return show_replay(arguments.trace, every=arguments.all, as_json=arguments.json)


def replayed(entries: Sequence[Entry]) -> list[tuple[Entry, Decision]]:
    """What the law of this version decides on each entry."""
    scaler = Scaler()
    return [(entry, scaler.decide(entry.limits, entry.observed, entry.deadline)) for entry in entries]


def show_replay(path: Path, *, every: bool, as_json: bool) -> int:
    """`explain replay TRACE`."""
    before = None
    for entry, decision in replayed(list(read(path))):
        observed = entry.observed
        if as_json:
            line = {
                "time": observed.time,
                "shards": observed.shards,
                "decided": decision.shards,
                "required": decision.required,
                "known": decision.known,
                "reason": decision.reason,
            }
            print(json.dumps(line))
            continue
        shape = (observed.shards, decision.shards, decision.required, decision.known)
        if every or shape != before:
            when = datetime.fromtimestamp(observed.time / SECOND, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
            arrow = f"{observed.shards:>3} → {decision.shards:<3}" if decision.shards != observed.shards else ""
            print(
                f"{when}  {arrow or f'{observed.shards:>3}      '}  required {decision.required:<3} {decision.reason}"
            )
        before = shape
    if before is None and not as_json:
        print(f"{path} is empty", file=sys.stderr)
    return 0
