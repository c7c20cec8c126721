"""Replay the decisions of a recorded scaling trace, with reasons."""

import argparse
import json
import sys
from pathlib import Path

from embereye.process.lifecycle import NotFoundError
from embereye_cli.terminal import local_time
from embereye_operator.decide.scaling.law import Scaler
from embereye_operator.decide.scaling.trace import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("trace", type=Path, help="file written by --scaling-trace or `embereye up`")
    parser.add_argument("--all", action="store_true", help="show every entry, not only changes")
    parser.add_argument("--json", action="store_true", help="print one JSON object per entry")


def run(arguments: argparse.Namespace) -> int:
    """Replay by this version's law; return the exit code. NotFoundError."""
    path: Path = arguments.trace
    if not path.exists():
        raise NotFoundError(f"{path} does not exist. `embereye up` writes traces to the folder scaling of its --data.")
    scaler = Scaler()
    before = None
    for entry in list(read(path)):
        observed, decision = entry.observed, scaler.decide(entry.limits, entry.observed, entry.deadline)
        if arguments.json:
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
        if arguments.all or shape != before:
            when = local_time(observed.time)
            arrow = f"{observed.shards:>3} → {decision.shards:<3}" if decision.shards != observed.shards else ""
            print(
                f"{when}  {arrow or f'{observed.shards:>3}      '}  required {decision.required:<3} {decision.reason}"
            )
        before = shape
    if before is None and not arguments.json:
        print(f"{path} is empty", file=sys.stderr)
    return 0
