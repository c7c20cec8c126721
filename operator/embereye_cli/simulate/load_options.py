"""Load test options of `embereye simulate`: a steady load, a report, and thresholds for its exit code.

`embereye simulate sensors` and `cameras` declare these options, check them, and call `run_load` if --clients or
--report asks for a load test. It runs the test, prints the report's sentences, writes its JSON, and returns 1 if a
threshold fails. An option without effect is an error, because a wrong test would look passed.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from embereye.process.files import check_writable, system_errors
from embereye.process.lifecycle import UserError
from embereye.sim.load.figures import ClientFigures, Thresholds
from embereye.sim.load.run import LoadTest, run_load_test, sentences, write_report
from embereye_cli.values import check_ranges, duration, duration_or_seconds

MOST_CLIENTS = 10_000
# Defaults of options that have an effect only in a load test.
_DEFAULTS = {"packets": 0, "max_errors": None, "min_rate": None, "max_p95": None, "max_p99": None,
             "include_frames": False}  # fmt: skip


def add_load_options(parser: argparse.ArgumentParser, packets: str) -> None:
    """Declare the options; `packets` is the word for a client's packets."""
    group = parser.add_argument_group(
        "load test",
        "with --clients or --report: a steady load, progress, a report; exit code 1 if a threshold fails",
    )
    group.add_argument("--packets", type=int, default=0, metavar="N", help=f"number of {packets} per client")
    group.add_argument("--for", dest="seconds", type=duration_or_seconds, default=0.0, metavar="DURATION",
                       help="duration: 90s, 5m; default: until stopped")  # fmt: skip
    group.add_argument("--report", type=Path, metavar="FILE.json", help="write all counts to FILE.json")
    group.add_argument("--max-errors", type=int, default=None, metavar="N", help="largest number of errors (0)")
    group.add_argument("--min-rate", type=float, default=None, metavar="PERCENT",
                       help="smallest share of the rate (95)")  # fmt: skip
    for share in ("p95", "p99"):
        group.add_argument(f"--max-{share}", type=duration, default=None, metavar="DURATION",
                           help=f"largest latency of {share[1:]} %% of the packets, such as 5ms")  # fmt: skip


def is_load_test(arguments: argparse.Namespace) -> bool:
    """True if a load test was requested."""
    return arguments.clients is not None or arguments.report is not None


def check_load_options(arguments: argparse.Namespace, rate: float) -> None:
    """Raise UserError for an option without effect, or an impossible value; copy --duration to --for."""
    if arguments.duration and arguments.seconds:
        raise UserError("--duration and --for mean the same: give only one")
    arguments.seconds = arguments.seconds or arguments.duration
    if not is_load_test(arguments):
        for name, default in _DEFAULTS.items():
            if getattr(arguments, name, default) != default:
                raise UserError(f"--{name.replace('_', '-')} has no effect without --clients or --report")
        return
    check_ranges(arguments, clients=(1, MOST_CLIENTS), min_rate=(0, 100))
    if arguments.packets < 0 or (arguments.max_errors or 0) < 0:
        raise UserError("--packets and --max-errors cannot be less than 0")
    if arguments.packets and arguments.seconds:
        raise UserError("--packets and --for (or --duration) both set the end: give only one")
    if not 0 < rate <= 100_000:
        raise UserError(f"--rate {rate:g} is not more than 0 and at most 100000 in a load test")
    if arguments.report:
        check_writable("--report", arguments.report)


def packets_of(arguments: argparse.Namespace, rate: float) -> int:
    """The number of packets per client; 0: until stopped."""
    return int(arguments.packets or max(1, round(arguments.seconds * rate)) * (arguments.seconds > 0))


async def run_load(
    arguments: argparse.Namespace,
    test: LoadTest,
    figures: Sequence[ClientFigures],
    send: Callable[[], Coroutine[Any, Any, None]],
    stop: asyncio.Event,
) -> int:
    """Run the test, print its report, write it to --report; return the exit code."""
    report = await run_load_test(test, figures, send, stop, lambda line: print(line, file=sys.stderr, flush=True))
    print("\n".join(sentences(report)))
    if arguments.report:
        with system_errors(f"--report {arguments.report} cannot be written"):
            write_report(arguments.report, report)
    return 0 if report["passed"] else 1


def thresholds_of(arguments: argparse.Namespace) -> Thresholds:
    """The thresholds that the options set."""
    least = 95.0 if arguments.min_rate is None else arguments.min_rate
    return Thresholds(arguments.max_errors or 0, least / 100, arguments.max_p95, arguments.max_p99)
