"""Show an older record beside a newer one: what got better, what worse, and what is noise."""

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
    parser.add_argument("old", type=Path, metavar="OLD.json", help="a record, as `embereye bench record` writes it")
    parser.add_argument("new", type=Path, metavar="NEW.json")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; 1 where a row got worse."""
    return show(read(arguments.old), read(arguments.new))


def show(old: Record, new: Record) -> int:
    """Print two records side by side; 1 where a row got worse by more than 5 % beyond noise.

    UserError where they have no row in common: nothing got worse then, and nothing was compared.
    """
    console, rows = Console(), compare(old, new)
    if not rows:
        raise UserError("the two records have no row in common: there is nothing to compare")
    console.print(comparison_table(rows))
    drift = new.reference / old.reference - 1

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, soft_wrap=True)

    say(f"{old.commit[:8]} of {old.at} → {new.commit[:8]} of {new.at}")
    say(f"the reference load took {100 * drift:+.0f} %, which is taken out of every change")
    if not is_alike(old.machine, new.machine):
        machines = (f"{machine['cores']} cores of {machine['cpu']}" for machine in (old.machine, new.machine))
        say(f"two machines, {' and '.join(machines)}: changes say little", "yellow")
    if noisy := [row.name for row in rows if row.verdict == "noisy"]:
        say(f"too noisy to tell: {', '.join(noisy)}; leave the machine alone and measure again", STYLES["noisy"])
    if gone := [row.name for row in old.rows if new.row(row.name) is None]:
        say(f"in the older record alone: {', '.join(gone)}", "yellow")
    worse = [row.name for row in rows if row.verdict == "worse"]
    if worse:
        say(f"worse: {', '.join(worse)}", STYLES["worse"])
    return 1 if worse else 0


def comparison_table(rows: Sequence[Comparison]) -> Table:
    """Rows as people read them."""
    table = Table(box=None)
    for heading in ("", "old", "new", "unit", "change", "noise", ""):
        table.add_column(heading, justify="left" if heading in {"", "unit"} else "right")
    for row in rows:
        style = STYLES[row.verdict]
        change = f"{100 * row.change:+.1f} %"
        table.add_row(row.name, f"{row.old:,.4g}", f"{row.new:,.4g}", row.unit.partition(",")[0].partition(";")[0],
                      change, f"± {100 * row.noise:.1f} %", row.verdict, style=style)  # fmt: skip
    return table
