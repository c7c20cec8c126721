"""Replay the decisions of a recorded scaling trace, with reasons."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from embereye.process.lifecycle import NotFoundError
from embereye_cli.terminal import local_time
from embereye_operator.decide.scaling.law import Decision, Scaler
from embereye_operator.decide.scaling.trace import Entry, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("trace", type=Path, help="file written by --scaling-trace or `embereye up`")
    parser.add_argument("--all", action="store_true", help="show every entry, not only changes")
    parser.add_argument("--json", action="store_true", help="print one JSON object per entry")


def run(arguments: argparse.Namespace) -> int:
    """Replay; return the exit code."""
    return show_replay(arguments.trace, every=arguments.all, as_json=arguments.json)


def replayed(entries: Sequence[Entry]) -> list[tuple[Entry, Decision]]:
    """Each entry with the decision of this version's law."""
    scaler = Scaler()
    return [(entry, scaler.decide(entry.limits, entry.observed, entry.deadline)) for entry in entries]


def show_replay(path: Path, *, every: bool, as_json: bool) -> int:
    """Print the decisions on the trace at `path`; return the exit code. NotFoundError."""
    if not path.exists():
        raise NotFoundError(f"{path} does not exist. `embereye up` writes traces to the folder scaling of its --data.")
    before = None
    for entry, decision in replayed(list(read(path))):
        observed = entry.observed
        if as_json:
            line = {
                "timeNs": observed.time,
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
            when = local_time(observed.time)
            arrow = f"{observed.shards:>3} → {decision.shards:<3}" if decision.shards != observed.shards else ""
            print(
                f"{when}  {arrow or f'{observed.shards:>3}      '}  required {decision.required:<3} {decision.reason}"
            )
        before = shape
    if before is None and not as_json:
        print(f"{path} is empty", file=sys.stderr)
    return 0
