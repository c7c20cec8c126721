"""Simulate a pan-tilt head with a thermal sensor, which a controller steers through the hub.

The head is a `PanTiltHead`, which `run_actuator` connects to the hub and steps at the given rate until a signal stops
it. The demonstration starts this command as a separate process, and shares the options of the motion.
"""

import argparse
import math
import sys
import threading

from embereye.addons.control.client import CALL, run_actuator
from embereye.addons.control.link import Link
from embereye.addons.control.pan_tilt import PAN, PanTiltHead, Wanderer
from embereye.process import lifecycle
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_cli.hub.connection import add_hub_tls_options, hub_address, hub_tls
from embereye_cli.hub.token import add_token_option, token_for
from embereye_cli.options import Option

RATES = 1, 1000  # per second
REACH = math.floor(math.degrees(PAN))


def add_association_options(parser: argparse.ArgumentParser, missing: str = "") -> None:
    """Declare the hub's association address; `missing` explains in help what happens without it."""
    Option("--hub", f"association address of the hub (its --association-port or --association-socket){missing}",
           type=hub_address, metavar="HOST:PORT|unix:PATH", variable="ASSOCIATION").add_to(parser)  # fmt: skip
    add_token_option(parser)
    add_hub_tls_options(parser)


def add_motion_options(parser: argparse.ArgumentParser) -> None:
    """Declare the rate and the range of the motion."""
    parser.add_argument("--rate", type=float, default=248.0, metavar="HZ",
                        help="states and commands per second (%(default)g)")  # fmt: skip
    parser.add_argument("--range", type=float, default=40.0, metavar="DEGREES", dest="reach",
                        help="how far the hot spot moves to each side (%(default)g)")  # fmt: skip


def check_motion(arguments: argparse.Namespace) -> None:
    """Raise UserError if rate or range are impossible."""
    if not RATES[0] <= arguments.rate <= RATES[1]:
        raise UserError(f"--rate {arguments.rate:g} is not between {RATES[0]} and {RATES[1]}")
    if not 0 <= arguments.reach <= REACH:
        raise UserError(f"--range {arguments.reach:g} is not between 0 and {REACH}, the range of the head")


def dialler(arguments: argparse.Namespace) -> Link:
    """The association for control that the options name. LinkError."""
    host = arguments.hub.rpartition(":")[0] if not arguments.hub.startswith("unix:") else "localhost"
    return Link(arguments.hub, CALL, token_for(arguments.token, host), tls=hub_tls(arguments))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_association_options(parser)
    parser.add_argument("--name", default="head", help="name of the actuator (%(default)s)")
    add_motion_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Simulate a head until stopped; it is in its safe state while it is not connected."""
    if not arguments.hub:
        raise UserError("--hub is missing. Give the association address of the hub.")
    check_motion(arguments)
    head = PanTiltHead(int(SECOND / arguments.rate), Wanderer(reach=math.radians(arguments.reach)))
    stop = threading.Event()
    lifecycle.stop_thread_on_signals(stop)

    def report_safe_state(reason: str) -> None:
        print(f"embereye: {arguments.name} is in its safe state: {reason}", file=sys.stderr, flush=True)

    run_actuator(lambda: dialler(arguments), arguments.name, head, stop, report_safe_state)
    return 0
