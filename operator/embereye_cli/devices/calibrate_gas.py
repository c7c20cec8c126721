"""Measure an MQ-135's R0 in clean air, and print the lines for its fleet.

Put the sensor in clean air. Leave it powered for a day if it is new, for an hour otherwise. Then run the command.
"""

import json
import statistics
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from embereye.detect.sensing.mq135 import OUTDOOR_PPM, r0_kohm
from embereye.process.lifecycle import CheckFailedError
from embereye_cli.explain.device import entries_of, known_devices
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.values import check_ranges
from embereye_operator.api.schema import problems
from embereye_operator.api.sensors import GasCurve, SensorCalibration

CURVE = GasCurve()  # of a fleet that declares none
SECONDS = 60.0
PERIOD = 1.0  # seconds between two measurements
FEWEST = 10  # measurements
# Largest drift of the resistance from the first to the last third, and largest spread. Above, the sensor is not warm
# yet or the air is not clean. A tenth of R0 is a quarter of the ppm.
MOST_DRIFT = 0.03
MOST_SPREAD = 0.10


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("device", metavar="DEVICE", help="the device's id, as its fleet declares it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds to measure (%(default)g)")
    parser.add_argument(
        "--ppm", type=float, default=OUTDOOR_PPM, help="concentration of the gas in the air now (%(default)g)"
    )
    parser.add_argument("--curve-scale", type=float, default=CURVE.scale,
                        help="spec.gas.curve.scale, if the fleet sets it (%(default)g)")  # fmt: skip
    parser.add_argument("--curve-exponent", type=float, default=CURVE.exponent,
                        help="spec.gas.curve.exponent, if the fleet sets it (%(default)g)")  # fmt: skip
    add_console_options(parser)


def run(arguments: Namespace) -> int:
    """Measure, then print YAML. CheckFailedError if this cannot be clean air, UserError for a wrong option."""
    check_ranges(arguments, seconds=(FEWEST * PERIOD, 86_400), ppm=(1, 1e6))
    check_ranges(arguments, curve_scale=(1e-3, 1e6), curve_exponent=(-10, -0.1))
    hub = HttpHub(console_connection(arguments))
    resistances: list[float] = []
    until = time.monotonic() + arguments.seconds
    try:
        while time.monotonic() < until or len(resistances) < FEWEST:  # a slow hub makes it take longer
            resistances.append(_resistance(hub, arguments.device))
            _progress(f"{resistances[-1]:.3g} kΩ, {max(until - time.monotonic(), 0):.0f} s to go")
            time.sleep(PERIOD)
    finally:
        _progress("")
    resistance = r0_kohm(
        stable_resistance(resistances, arguments.device),
        arguments.ppm,
        curve_scale=arguments.curve_scale,
        curve_exponent=arguments.curve_exponent,
    )
    if problems(SensorCalibration, {"cleanAirKilohm": resistance}):
        raise CheckFailedError(
            f"{arguments.device}: its R0 would be {resistance:.4g} kΩ, which no MQ-135 has. Check it for a short "
            "circuit or a broken wire."
        )
    print(f"# {arguments.device} at {arguments.ppm:g} ppm; add this to its fleet's spec.sensors and apply it")
    print(f"- id: {json.dumps(arguments.device, ensure_ascii=False)}")  # quotes, because an id can be 1235 or no
    print(f"  calibration: {{cleanAirKilohm: {resistance:.4g}}}")
    return 0


def stable_resistance(resistances: Sequence[float], device: str) -> float:
    """The resistance in kΩ of a warm sensor in unchanging air; CheckFailedError if it is not stable."""
    middle = statistics.median(resistances)
    third = len(resistances) // 3
    drift = statistics.median(resistances[-third:]) / statistics.median(resistances[:third]) - 1
    if abs(drift) > MOST_DRIFT:
        raise CheckFailedError(
            f"{device}: its resistance drifted by {100 * drift:+.1f} %, more than {100 * MOST_DRIFT:g} %. "
            "Let the sensor warm up, in air that does not change."
        )
    tenths = statistics.quantiles(resistances, n=10)
    spread = (tenths[-1] - tenths[0]) / middle
    if spread > MOST_SPREAD:
        raise CheckFailedError(
            f"{device}: its resistance varies by {100 * spread:.0f} %. Check it for a loose wire or a draught."
        )
    return middle


def _resistance(hub: HttpHub, device: str) -> float:
    entry = entries_of(known_devices(hub), device)[0]
    if not entry["covered"]:
        raise CheckFailedError(f"{device} is not covered: {entry['reason']}")
    for term in entry.get("latest", ()):
        if term["name"] == "gas.resistance":
            return float(term.get("value", 0))
    raise CheckFailedError(f"{device} reports no gas. Is there an MQ-135 on its ADC3?")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
