"""Measure the rows of the newest record of a similar machine again; fail if one got worse beyond noise."""

import argparse
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye_bench.results import record
from embereye_bench.results.compare import show
from embereye_bench.results.records import describe_machine, newest, read, write

MEASURED = record.ROOT / ".cache" / "bench" / "gate.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    record.add_measuring_arguments(parser)
    parser.add_argument("--against", type=Path, metavar="FILE",
                        help="a record; default: the newest in bench/results of a similar machine")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Measure and compare; return 1 if a row got worse by more than 5 % beyond noise."""
    path = arguments.against or newest(record.FOLDER, describe_machine())
    if path is None:
        raise UserError(
            "bench/results has no record of a machine like this one. Record the commit before the change with "
            "`embereye bench record`, then measure the change against it."
        )
    old = read(path)
    if not arguments.only:
        arguments.only = [row.name for row in old.rows if row.name in record.ROWS]
    new = record.measure(arguments)
    write(MEASURED, new)
    return show(old, new)
