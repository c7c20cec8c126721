"""`embereye calibrate gas DEVICE`: measure an MQ-135's R0 in clean air, and print what belongs into its fleet.

Put the sensor in clean air, leave it powered for a day when it is new and for an hour otherwise, then run the command.
"""

import json
import statistics
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from embereye.detect.sensing.mq135 import OUTDOOR_PPM, r0_kohm
from embereye.process.lifecycle import UserError
from embereye.units import counted
from embereye_cli.explain.device import known_devices
from embereye_cli.hub.http import add_console_options
from embereye_operator.api.schema import problems
from embereye_operator.api.sensors import GasCurve, SensorCalibration

CURVE = GasCurve()  # of a fleet that declares none
SECONDS = 60.0
PERIOD = 1.0  # seconds between two looks
FEWEST = 10  # measurements
# How far the resistance may drift from the first to the last third, and how widely it may spread: more than that is a
# sensor that is not warm yet, or air that is not clean. A tenth of R0 is a quarter of the ppm.
MOST_DRIFT = 0.03
MOST_SPREAD = 0.10


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("device", metavar="DEVICE", help="the device's id, as its fleet declares it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="to measure (default %(default)g)")
    parser.add_argument(
        "--ppm", type=float, default=OUTDOOR_PPM, help="of the gas in the air now (default %(default)g)"
    )
    parser.add_argument("--curve-scale", type=float, default=CURVE.scale,
                        help="spec.gas.curve.scale, where the fleet has its own (default %(default)g)")  # fmt: skip
    parser.add_argument("--curve-exponent", type=float, default=CURVE.exponent,
                        help="spec.gas.curve.exponent likewise (default %(default)g)")  # fmt: skip
    add_console_options(parser)


def run(arguments: Namespace) -> int:
    """Measure, then print a line of YAML; UserError where what is measured cannot be that of clean air."""
    for name, least, most in (("seconds", FEWEST * PERIOD, 86_400), ("ppm", 1, 1e6), ("curve_scale", 1e-3, 1e6)):
        if not least <= getattr(arguments, name) <= most:
            option = name.replace("_", "-")
            raise UserError(f"--{option} {getattr(arguments, name):g} is not between {least:g} and {most:g}")
    if not -10 <= arguments.curve_exponent <= -0.1:
        raise UserError(f"--curve-exponent {arguments.curve_exponent:g} is not between -10 and -0.1")
    resistances: list[float] = []
    until = time.monotonic() + arguments.seconds
    try:
        while time.monotonic() < until:
            resistances.append(_resistance(arguments.console, arguments.token, arguments.device))
            _progress(f"{resistances[-1]:.3g} kΩ, {max(until - time.monotonic(), 0):.0f} s to go")
            time.sleep(PERIOD)
    finally:
        _progress("")
    found = r0_kohm(
        settled(resistances, arguments.device),
        arguments.ppm,
        curve_scale=arguments.curve_scale,
        curve_exponent=arguments.curve_exponent,
    )
    if problems(SensorCalibration, {"cleanAirKilohm": found}):
        raise UserError(
            f"{arguments.device}: its R0 would be {found:.4g} kΩ, which no MQ-135 has: look for a short circuit or a "
            "broken wire"
        )
    print(f"# {arguments.device} at {arguments.ppm:g} ppm; put this into its fleet's spec.sensors and apply it")
    print(f"- id: {json.dumps(arguments.device, ensure_ascii=False)}")  # in quotes: 1235 and no are texts
    print(f"  calibration: {{cleanAirKilohm: {found:.4g}}}")
    return 0


def settled(resistances: Sequence[float], device: str) -> float:
    """The resistance in kΩ of a sensor that is warm and in air that does not change; UserError where it is not."""
    if len(resistances) < FEWEST:
        raise UserError(
            f"{device}: {counted(len(resistances), 'measurement is', 'measurements are')} not enough, {FEWEST} are: "
            "give it more --seconds"
        )
    middle = statistics.median(resistances)
    third = len(resistances) // 3
    drift = statistics.median(resistances[-third:]) / statistics.median(resistances[:third]) - 1
    if abs(drift) > MOST_DRIFT:
        raise UserError(
            f"{device}: its resistance drifted by {100 * drift:+.1f} %, more than {100 * MOST_DRIFT:g} %: "
            "let the sensor warm up, in air that does not change"
        )
    tenths = statistics.quantiles(resistances, n=10)
    spread = (tenths[-1] - tenths[0]) / middle
    if spread > MOST_SPREAD:
        raise UserError(
            f"{device}: its resistance spreads over {100 * spread:.0f} %: look for a loose wire or a draught"
        )
    return middle


def _resistance(console: str, token: str, device: str) -> float:
    entries = [entry for entry in known_devices(console, token) if entry["id"] == device]
    if not entries:
        raise UserError(f"no fleet declares a device {device}")
    entry = entries[0]
    if not entry["covered"]:
        raise UserError(f"{device} is not covered: {entry['reason']}")
    for term in entry.get("latest", ()):
        if term["name"] == "gas.resistance":
            return float(term.get("value", 0))
    raise UserError(f"{device} says nothing of gas: is there an MQ-135 on its ADC3?")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
