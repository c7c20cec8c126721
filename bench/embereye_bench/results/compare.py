"""Compare an older record with a newer one: which rows got better, worse, or are noise."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from embereye.process.lifecycle import UserError
from embereye_bench.results.records import Comparison, Record, compare, is_alike, read

STYLES = {"worse": "bold red", "better": "green", "noisy": "yellow", "same": ""}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("old", type=Path, metavar="OLD.json", help="a record written by `embereye bench record`")
    parser.add_argument("new", type=Path, metavar="NEW.json")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; return 1 if a row got worse."""
    return show(read(arguments.old), read(arguments.new))


def show(old: Record, new: Record) -> int:
    """Print two records side by side; return 1 if a row got worse by more than 5 % beyond noise.

    UserError if they have no row in common: a comparison of nothing must not pass.
    """
    console, rows = Console(), compare(old, new)
    if not rows:
        raise UserError("the two records have no row in common. Compare records of the same rows.")
    console.print(comparison_table(rows))
    drift = new.reference / old.reference - 1

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, soft_wrap=True)

    say(f"{old.commit[:8]} of {old.at} → {new.commit[:8]} of {new.at}")
    say(f"the reference load took {100 * drift:+.0f} %; every change is corrected for that")
    if not is_alike(old.machine, new.machine):
        machines = (f"{machine['cores']} cores of {machine['cpu']}" for machine in (old.machine, new.machine))
        say(f"two machines, {' and '.join(machines)}: changes mean little", "yellow")
    if noisy := [row.name for row in rows if row.verdict == "noisy"]:
        say(f"too noisy: {', '.join(noisy)}. Measure again on an idle machine.", STYLES["noisy"])
    if gone := [row.name for row in old.rows if new.row(row.name) is None]:
        say(f"only in the older record: {', '.join(gone)}", "yellow")
    worse = [row.name for row in rows if row.verdict == "worse"]
    if worse:
        say(f"worse: {', '.join(worse)}", STYLES["worse"])
    return 1 if worse else 0


def comparison_table(rows: Sequence[Comparison]) -> Table:
    """The rows as a table, for people."""
    table = Table(box=None)
    for heading in ("", "old", "new", "unit", "change", "noise", ""):
        table.add_column(heading, justify="left" if heading in {"", "unit"} else "right")
    for row in rows:
        style = STYLES[row.verdict]
        change = f"{100 * row.change:+.1f} %"
        table.add_row(row.name, f"{row.old:,.4g}", f"{row.new:,.4g}", row.unit.partition(",")[0].partition(";")[0],
                      change, f"± {100 * row.noise:.1f} %", row.verdict, style=style)  # fmt: skip
    return table
