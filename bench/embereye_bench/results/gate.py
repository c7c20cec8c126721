"""Measure this tree and an older commit in turns, in one run; fail if a row got worse.

Both are built on this machine, and rounds alternate between them. The figures of another day or machine play no part.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from embereye.process.lifecycle import UserError
from embereye_bench.report import add_only
from embereye_bench.results import record
from embereye_bench.results.compare import STYLES
from embereye_bench.results.machine_load import MachineLoad
from embereye_bench.results.paired import FEWEST_ROUNDS, PairedRow, PairedSample, pair_rows
from embereye_bench.results.records import read

BUILDS = record.ROOT / ".cache" / "bench"
MAX_BUILDS = 2  # of older commits, each with a separate environment
ROUNDS = 9
SAMPLES = 2  # of each row in a round
SAMPLE_LIMIT_SECONDS = 900.0
Measure = Callable[[str, int], Sequence[PairedSample]]  # row, round → its sample; none if it could not be measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_only(parser, list(record.ROWS), default=", ".join(record.GATE))
    parser.add_argument("--against", metavar="COMMIT",
                        help="default: the commit before, or HEAD if files are changed")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of samples (%(default)s)")
    parser.add_argument("--seconds", type=float, default=record.SECONDS, help="of each sample (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and compare; return 1 if a row got worse in a way that chance does not explain."""
    rows = list(record.choose(arguments.only))
    if not FEWEST_ROUNDS <= arguments.rounds <= 100:
        raise UserError(f"--rounds {arguments.rounds} is not between {FEWEST_ROUNDS} and 100: fewer prove nothing")
    record.check_seconds(arguments.seconds)
    commit = older_commit(arguments.against)
    say = Console(stderr=True, highlight=False).print
    older = build(commit, BUILDS, say)
    machine = MachineLoad.now()
    with tempfile.TemporaryDirectory(prefix="embereye-gate-") as folder:
        measured = measure_in_turns(
            rows, arguments.rounds,
            measurer(older, Path(folder), arguments.seconds, say),
            measurer(Path(sys.executable), Path(folder), arguments.seconds, say),
            say,
        )  # fmt: skip
    return show(commit, rows, measured, machine.since())


def older_commit(against: str | None) -> str:
    """The commit to compare with; UserError if there is none."""
    try:
        changed = bool(record.git("status", "--porcelain", "--untracked-files=no"))
        return record.git(
            "rev-parse", "--verify", "--quiet", f"{against or ('HEAD' if changed else 'HEAD~1')}^{{commit}}"
        )
    except FileNotFoundError as error:
        raise UserError("the gate builds an older commit, and git is missing") from error
    except subprocess.CalledProcessError as error:
        if against:
            raise UserError(f"--against {against}: this checkout has no such commit") from error
        raise UserError("this is no git checkout, or has no commit before: name one with --against") from error


def build(commit: str, folder: Path, say: Callable[[str], None]) -> Path:
    """Build `commit` in a separate environment below `folder`, once; return its Python.

    UserError if it cannot be built.
    """
    tree = folder / commit[:12]
    python = tree / ".venv" / "bin" / "python"
    if not (tree / ".venv" / ".installed").exists():
        say(f"building {commit[:8]} in {tree} (about a minute, once)")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(tree, ignore_errors=True)
        steps = (
            ["git", "clone", "--quiet", "--shared", "--no-checkout", str(record.ROOT), str(tree)],
            ["git", "-C", str(tree), "checkout", "--quiet", commit],
            ["make", "--silent", "--directory", str(tree), "install", f"PYTHON={sys.executable}"],
        )
        for step in steps:
            # The variables of an outer make would let this one see the options of the other.
            done = subprocess.run(step, capture_output=True, text=True, env=_without_make(os.environ), check=False)
            if done.returncode:
                shutil.rmtree(tree, ignore_errors=True)
                raise UserError(f"{commit[:8]} cannot be built: {' '.join(step[:2])}: {done.stderr.strip()[-500:]}")
    os.utime(tree)
    builds = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for old in builds[:-MAX_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)
    return python


def measurer(python: Path, folder: Path, seconds: float, say: Callable[[str], None]) -> Measure:
    """Return a function that measures one row by the program installed with `python`, in a separate process."""

    def measure(name: str, number: int) -> Sequence[PairedSample]:
        path = folder / "sample.json"
        path.unlink(missing_ok=True)
        command = [str(python), "-m", "embereye_cli", "bench", "record", "--only", name, "--repeats", str(SAMPLES),
                   "--seconds", f"{seconds:g}", "--to", str(path)]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SAMPLE_LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            say(f"{name}: not over after {SAMPLE_LIMIT_SECONDS:.0f} s")
            return ()
        row = read(path).row(name) if path.exists() else None
        if row is None:
            reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            say(f"{name}: not measured: {reason[:200]}")
            return ()
        return (PairedSample(name, number, row.value, row.unit, row.higher_is_better),)

    return measure


def measure_in_turns(
    names: Sequence[str], rounds: int, old: Measure, new: Measure, say: Callable[[str], None]
) -> list[PairedRow]:
    """Measure each row by both commits in each round; the one that begins changes from round to round."""
    samples: dict[bool, list[PairedSample]] = {True: [], False: []}
    for number in range(rounds):
        for name in names:
            for is_new in (False, True) if number % 2 == 0 else (True, False):
                samples[is_new] += (new if is_new else old)(name, number)
            values = [f"{part[-1].value:,.4g}" if part else "?" for part in (samples[False], samples[True])]
            say(f"{number + 1}/{rounds} {name} {' → '.join(values)}")
    return pair_rows(samples[False], samples[True])


def show(commit: str, names: Sequence[str], rows: Sequence[PairedRow], load: str) -> int:
    """Print the rows with their verdicts; return 1 if one is worse. UserError if nothing could be compared."""
    if not rows:
        raise UserError("no row was measured in every round by both commits")
    console = Console()
    table = Table(box=None)
    for heading in ("", "old", "new", "unit", "change", "95 % interval", "better", ""):
        table.add_column(heading, justify="left" if heading in {"", "unit"} else "right")
    for row in rows:
        low, high = row.interval
        table.add_row(
            row.name, f"{statistics.median(row.old):,.4g}", f"{statistics.median(row.new):,.4g}",
            row.unit.partition(",")[0].partition(";")[0],
            f"{100 * row.change:+.1f} %", f"{100 * low:+.1f} to {100 * high:+.1f} %",
            f"{row.rounds_better} of {len(row.old)}", row.verdict, style=STYLES[row.verdict],
        )  # fmt: skip
    console.print(table)
    console.print(f"against {commit[:8]}; {load}", highlight=False)
    measured = {row.name for row in rows}
    if missing := [name for name in names if name not in measured]:
        console.print(f"not measured by both in every round: {', '.join(missing)}", style="yellow", highlight=False)
    if noisy := [row.name for row in rows if row.verdict == "noisy"]:
        console.print(f"too noisy: {', '.join(noisy)}. Measure again on an idle machine, or with more --rounds.",
                      style=STYLES["noisy"], highlight=False)  # fmt: skip
    return 1 if any(row.verdict == "worse" for row in rows) else 0


def _without_make(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
