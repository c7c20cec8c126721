"""Measure rows several times, with a reference load in between, and store them with machine and commit."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from embereye.process.files import check_writable
from embereye.process.lifecycle import UserError, raise_descriptor_limit
from embereye_bench.cameras import command as cameras
from embereye_bench.hub import command as hub
from embereye_bench.report import Benchmark, Result, Scale, add_only, chosen_names
from embereye_bench.results.records import Record, Row, Sample, describe_machine, write
from embereye_bench.results.reference import measure_reference
from embereye_bench.sensors import command as sensors

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "bench" / "results"
ROWS: Mapping[str, Benchmark] = {
    **sensors.BENCHMARKS, **cameras.BENCHMARKS, **hub.BENCHMARKS,
}  # fmt: skip
# Every path once, in rows that take some seconds: a change in any path shows in one of them.
GATE = (
    "scrape-1000", "text-1000x10hz", "text-flood", "thermal-flood", "grpc-packed", "fleet-push", "h264-fleet",
    "h264-fleet-calm", "alarm-path",
)  # fmt: skip
REPEATS = 5
SECONDS = 1.0  # of a sample


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_measuring_arguments(parser)
    parser.add_argument("--to", type=Path, default=None, metavar="FILE", help="default: bench/results/TIME-COMMIT.json")


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for rows and samples."""
    add_only(parser, list(ROWS), default=", ".join(GATE))
    parser.add_argument("--repeats", type=int, default=REPEATS, help="samples of each row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each sample (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write; return the exit code."""
    if arguments.to:
        check_writable("--to", arguments.to)
    record = measure(arguments)
    path = arguments.to or FOLDER / f"{record.at[:16].replace(':', '-')}-{record.commit[:8]}.json"
    write(path, record)
    for row in record.rows:
        print(f"{row.name:20} {row.value:,.4g} {row.unit}")
    print(f"reference load {record.reference:.3g} ms; written to {path}")
    return 0


def measure(arguments: argparse.Namespace) -> Record:
    """Measure the chosen rows in turn, repeatedly, so that all share a slow minute."""
    chosen = choose(arguments.only)
    if not 2 <= arguments.repeats <= 100:
        raise UserError(f"--repeats {arguments.repeats} is not between 2 and 100: one sample proves nothing")
    check_seconds(arguments.seconds)
    raise_descriptor_limit()
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    say = Console(stderr=True).print
    rows = sample_rows(chosen, Scale(1, arguments.seconds), arguments.repeats, measure_reference, say)
    commit, changed = _commit()
    return Record(at, commit, changed, describe_machine(), rows)


def check_seconds(seconds: float) -> None:
    """Check the length of a sample; UserError."""
    if not 0.1 <= seconds <= 600:
        raise UserError(f"--seconds {seconds:g} is not between 0.1 and 600")


def choose(names: Sequence[str]) -> dict[str, Benchmark]:
    """The benchmarks with these names, or the gate's if none are given; UserError for an unknown name."""
    return {name: ROWS[name] for name in chosen_names(names, list(ROWS)) or GATE}


def sample_rows(
    benchmarks: Mapping[str, Benchmark], scale: Scale, repeats: int, reference: Callable[[], float],
    say: Callable[[str], None],
) -> tuple[Row, ...]:  # fmt: skip
    """Take `repeats` samples of each benchmark, with the reference load before and after each."""
    results: dict[str, list[tuple[Result, float]]] = {name: [] for name in benchmarks}
    before = reference()
    for number in range(repeats):
        for name, benchmark in benchmarks.items():
            result = benchmark(scale)
            after = reference()
            results[name].append((result, (before + after) / 2))
            before = after
            say(f"{number + 1}/{repeats} {name} {result.value:.4g} (reference {after:.3g} ms)")
    return tuple(
        Row(
            name,
            samples[-1][0].unit,
            samples[-1][0].reach,
            tuple(Sample(result.value, result.baseline, load) for result, load in samples),
        )
        for name, samples in results.items()
    )


def _commit() -> tuple[str, bool]:
    """The measured commit, and True if files were changed since."""
    try:
        commit = git("rev-parse", "HEAD")
        return commit, bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        print("embereye: the commit is unknown: git is missing, or this is no git checkout", file=sys.stderr)
        return "unknown", True


def git(*arguments: str) -> str:
    """Run git in this checkout; return what it prints. OSError, CalledProcessError."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()  # fmt: skip
