"""The report of every benchmark, and the command that runs a set of them.

A benchmark is a function from a `Scale`, the number and length of its rounds, to a `Result`: a value, the baseline that
it measured in the same rounds, and its goal. `run` calls the chosen ones, one after the other. A benchmark that fails
is a row of the report and does not stop the others. The exit code is 1 if any row misses its goal.
"""

import argparse
import json
import logging
import resource
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """One line of the report."""

    name: str
    value: float
    unit: str
    baseline: float
    ratio: float  # value over baseline; 0 if the baseline could not be measured
    reach: str
    ok: bool


@dataclass(frozen=True)
class Scale:
    """The duration of a measurement."""

    rounds: int
    seconds: float  # of each round


Benchmark = Callable[[Scale], Result]


def median(values: Sequence[float]) -> float:
    """The median; 0 without values."""
    return statistics.median(values) if values else 0.0


def add_only(parser: argparse.ArgumentParser, names: Sequence[str], default: str = "all") -> None:
    """Declare `--only`, which takes a list of `names` and may be repeated."""
    parser.add_argument("--only", action="append", default=[], metavar="NAME,…",
                        help=f"only these, may be repeated; default: {default}; of {', '.join(names)}")  # fmt: skip


def chosen_names(only: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that `--only` lists, in its order; empty if it is not given. Raises UserError for an unknown name."""
    chosen = [name.strip() for part in only for name in part.split(",") if name.strip()]
    if unknown := next((name for name in chosen if name not in names), None):
        raise UserError(f'--only "{unknown}" is not one of {", ".join(names)}')
    return list(dict.fromkeys(chosen))


def add_arguments(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Declare the options of a command that runs the benchmarks `names`."""
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    add_only(parser, names)
    parser.add_argument("--quick", action="store_true", help="shorter rounds: at most a minute in total")


def run(
    arguments: argparse.Namespace, title: str, benchmarks: Mapping[str, Benchmark], *, full: Scale, quick: Scale
) -> int:
    """Run the benchmarks; return 1 if one misses its goal."""
    only = chosen_names(arguments.only, list(benchmarks))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    chosen = {name: benchmark for name, benchmark in benchmarks.items() if not only or name in only}
    results = _measure(chosen, quick if arguments.quick else full, quiet=arguments.json)
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], ensure_ascii=False))
    else:
        Console().print(results_table(title, results))
    return 0 if all(result.ok for result in results) else 1


@dataclass(frozen=True)
class Suite:
    """Benchmarks that one command runs, with its `add_arguments` and `run`."""

    title: str
    benchmarks: Mapping[str, Benchmark]
    full: Scale
    quick: Scale

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""
        add_arguments(parser, list(self.benchmarks))

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the benchmarks; return 1 if one misses its goal."""
        return run(arguments, self.title, self.benchmarks, full=self.full, quick=self.quick)


def _measure(benchmarks: Mapping[str, Benchmark], scale: Scale, *, quiet: bool) -> list[Result]:
    columns = (TextColumn("{task.description:20}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        task = progress.add_task("", total=len(benchmarks))
        results = []
        for name, benchmark in benchmarks.items():
            progress.update(task, description=name)
            results.append(_attempt(name, benchmark, scale))
            progress.advance(task)
    return results


def _attempt(name: str, benchmark: Benchmark, scale: Scale) -> Result:
    """Run a benchmark; its failure is a row of the report and does not stop the others."""
    try:
        return benchmark(scale)
    except Exception as error:
        logger.exception("benchmark %s failed", name)
        return Result(name, 0.0, "", 0.0, 0.0, f"failed: {type(error).__name__}: {error}"[:200], ok=False)


def results_table(title: str, results: Sequence[Result]) -> Table:
    """The results as a table, for people."""
    table = Table(title=title, box=None)
    for heading, justify in (("", "left"), ("value", "right"), ("unit", "left"), ("baseline", "right"),
                             ("ratio", "right"), ("reach", "left"), ("", "left")):  # fmt: skip
        table.add_column(heading, justify=justify, no_wrap=heading not in {"unit", "reach"})  # type: ignore[arg-type]
    for result in results:
        row = (f"{result.value:,.4g}" if result.value < 1000 else f"{result.value:,.0f}", result.unit)
        baseline = f"{result.baseline:,.4g}" if result.baseline < 1000 else f"{result.baseline:,.0f}"
        table.add_row(result.name, *row, baseline, f"{result.ratio:.2f}", result.reach, "ok" if result.ok else "SHORT")
    return table
