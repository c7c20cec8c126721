"""Decide once more on what the scaler saw: a recorded trace through the law as it is now."""

import argparse
from pathlib import Path

from embereye_operator.explain import show_replay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye explain replay`."""
    parser.add_argument("trace", type=Path, help="a file that --scaling-trace or `embereye up` wrote")
    parser.add_argument("--all", action="store_true", help="show every entry, not only where something changes")
    parser.add_argument("--json", action="store_true", help="a line of JSON per entry")


def run(arguments: argparse.Namespace) -> int:
    """Replay; returns the exit code."""
    return show_replay(arguments.trace, every=arguments.all, as_json=arguments.json)
