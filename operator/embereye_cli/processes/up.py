"""Run fleets on this machine: the manifests and decisions of a cluster, with local processes instead of pods."""

import argparse
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.identity.authority import LIFE
from embereye.process.lifecycle import UserError
from embereye_cli.values import duration, duration_or_seconds
from embereye_operator.up.folder import load_fleets, locked
from embereye_operator.up.up import SIMULATE, Up, UpOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "manifests", nargs="+", type=Path, metavar="FLEET.yaml", help="SensorFleet and CameraFleet manifests"
    )
    parser.add_argument("--data", type=Path, default=Path(".embereye"), metavar="DIR",
                        help="where history, spools and logs are kept (default: .embereye)")  # fmt: skip
    parser.add_argument("--for", dest="seconds", type=duration_or_seconds, metavar="DURATION",
                        help="stop by itself after this long: 90s, 5m, 2h")  # fmt: skip
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object that says where everything listens, once all is ready")  # fmt: skip
    parser.add_argument("--no-sim", action="store_true",
                        help=f"do not start simulators for fleets annotated {SIMULATE}")  # fmt: skip
    parser.add_argument("--console-port", type=int, default=8080, help="port of the console (default: 8080)")
    parser.add_argument("--hub-port", type=int, default=50052, help="gRPC port of the hub (default: 50052)")
    parser.add_argument("--metrics-port", type=int, default=0,
                        help="port of /metrics about the fleets (default: a free one, which --json tells)")  # fmt: skip
    parser.add_argument("--certificate-life", type=duration, default=LIFE.total_seconds(), metavar="DURATION",
                        help="of the certificates by which its processes know each other; renewed after two thirds "
                        "of it, at least 20s (default: 7d)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C, SIGTERM or the end of --for."""
    lifecycle.configure_logging("WARNING")
    if not 20 <= arguments.certificate_life <= LIFE.total_seconds() * 50:
        raise UserError("--certificate-life is not between 20s and a year: processes need some seconds to read them")
    fleets = load_fleets(arguments.manifests)
    options = UpOptions(
        manifests=arguments.manifests,
        data=arguments.data,
        seconds=arguments.seconds,
        json=arguments.json,
        simulate=not arguments.no_sim,
        console_port=arguments.console_port,
        hub_port=arguments.hub_port,
        metrics_port=arguments.metrics_port,
        certificate_life=arguments.certificate_life,
    )
    with locked(options.data):
        return lifecycle.run(lambda stop: Up(options, fleets).run(stop))
