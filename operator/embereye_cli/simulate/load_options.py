"""Options of `embereye simulate` that make of it a load test, which ends with a report and is judged by thresholds."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from embereye.process.files import check_writable
from embereye.process.lifecycle import UserError
from embereye.sim.load.figures import ClientFigures, Thresholds
from embereye.sim.load.run import LoadTest, run_load_test, sentences, write_report
from embereye_cli.values import duration, duration_or_seconds

MOST_CLIENTS = 10_000
# Of options that mean nothing but in a load test.
_DEFAULTS = {"packets": 0, "max_errors": None, "min_rate": None, "max_p95": None, "max_p99": None,
             "include_frames": False}  # fmt: skip


def add_load_options(parser: argparse.ArgumentParser, packets: str) -> None:
    """Declare them; `packets` is what a client sends."""
    group = parser.add_argument_group(
        "load test",
        "with --clients or --report: a steady load, progress, a report; exit code 1 where a threshold fails",
    )
    group.add_argument("--packets", type=int, default=0, metavar="N", help=f"{packets} of each client")
    group.add_argument("--for", dest="seconds", type=duration_or_seconds, default=0.0, metavar="DURATION",
                       help="how long: 90s, 5m; without it and --packets until stopped")  # fmt: skip
    group.add_argument(
        "--report", type=Path, metavar="FILE.json", help="write everything that was counted to FILE.json"
    )
    group.add_argument("--max-errors", type=int, default=None, metavar="N", help="errors that are allowed (0)")
    group.add_argument("--min-rate", type=float, default=None, metavar="PERCENT",
                       help="of the rate that has to be reached (95)")  # fmt: skip
    for share in ("p95", "p99"):
        group.add_argument(f"--max-{share}", type=duration, default=None, metavar="DURATION",
                           help=f"latency that {share[1:]} %% may not exceed, such as 5ms")  # fmt: skip


def is_load_test(arguments: argparse.Namespace) -> bool:
    """Whether a load test was asked for."""
    return arguments.clients is not None or arguments.report is not None


def check_load_options(arguments: argparse.Namespace, rate: float) -> None:
    """UserError where an option has no meaning, or a value none. `arguments` have --duration as --for from then on."""
    if arguments.duration and arguments.seconds:
        raise UserError("--duration and --for say the same: give one of them")
    arguments.seconds = arguments.seconds or arguments.duration
    if not is_load_test(arguments):
        for name, default in _DEFAULTS.items():
            if getattr(arguments, name, default) != default:
                raise UserError(f"--{name.replace('_', '-')} means nothing without --clients or --report")
        return
    if arguments.clients is not None and not 1 <= arguments.clients <= MOST_CLIENTS:
        raise UserError(f"--clients {arguments.clients} is not between 1 and {MOST_CLIENTS}")
    if arguments.packets < 0 or (arguments.max_errors or 0) < 0:
        raise UserError("--packets and --max-errors cannot be less than 0")
    if arguments.min_rate is not None and not 0 <= arguments.min_rate <= 100:
        raise UserError(f"--min-rate {arguments.min_rate:g} is not between 0 and 100")
    if arguments.packets and arguments.seconds:
        raise UserError("--packets and --for, or --duration, both say when to end: give one of them")
    if not 0 < rate <= 100_000:
        raise UserError(f"--rate {rate:g} is not more than 0 and at most 100000 in a load test")
    if arguments.report:
        check_writable("--report", arguments.report)


def packets_of(arguments: argparse.Namespace, rate: float) -> int:
    """How many packets each client sends; 0: until stopped."""
    return int(arguments.packets or max(1, round(arguments.seconds * rate)) * (arguments.seconds > 0))


async def run_load(
    arguments: argparse.Namespace,
    test: LoadTest,
    figures: Sequence[ClientFigures],
    send: Callable[[], Coroutine[Any, Any, None]],
    stop: asyncio.Event,
) -> int:
    """Run it, print its report, write it where that was asked for; returns the exit code."""
    report = await run_load_test(test, figures, send, stop, lambda line: print(line, file=sys.stderr, flush=True))
    print("\n".join(sentences(report)))
    if arguments.report:
        try:
            write_report(arguments.report, report)
        except OSError as error:
            raise UserError(f"--report {arguments.report} cannot be written: {error.strerror}") from error
    return 0 if report["passed"] else 1


def thresholds_of(arguments: argparse.Namespace) -> Thresholds:
    """What was demanded."""
    least = 95.0 if arguments.min_rate is None else arguments.min_rate
    return Thresholds(arguments.max_errors or 0, least / 100, arguments.max_p95, arguments.max_p99)
