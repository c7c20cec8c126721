"""Try a declared sensor: read it as a shard does, and print its newest reading.

The sensor is one of MQTT, Modbus, HTTP or sound, as FLEET.yaml declares it. Nothing is stored, and no shard is needed.
A sensor that connects to a shard, or pushes, cannot be read from here.
"""

import argparse
import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from embereye.detect.sensing.bands import BandTable
from embereye.process import lifecycle
from embereye.process.lifecycle import CheckFailedError, NotFoundError, UserError
from embereye.process.tasks import Tasks, first_of
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.source import PUSH
from embereye.wire.readings.quantity import QUANTITIES, Report
from embereye_cli.devices.credentials import default_folder
from embereye_cli.devices.sensor_map import print_readings
from embereye_cli.processes.shard_sensor import sources
from embereye_cli.terminal import print_json
from embereye_cli.values import check_ranges
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.sensors import Sensor, SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_device, build_sensor_settings
from embereye_operator.up.folder import load_fleets

LONGEST = 3600.0  # seconds to wait for a message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye sensor try`."""
    parser.add_argument("device", metavar="DEVICE", help="id of the sensor")
    parser.add_argument("manifests", metavar="FLEET.yaml", nargs="+", type=Path, help="file that declares it")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="SECONDS",
                        help="longest wait for a reading (%(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Read and print. Exit code 1: no reading came."""
    lifecycle.configure_logging("CRITICAL")
    check_ranges(arguments, seconds=(0.5, LONGEST))
    os.environ.setdefault("EMBEREYE_CREDENTIALS", str(default_folder()))
    device = _find(arguments.device, load_fleets(arguments.manifests).values())
    report = asyncio.run(_read(device, arguments.seconds))
    if arguments.json:
        rows = [
            {"quantity": reading.quantity, "value": reading.value, "unit": QUANTITIES[reading.quantity].unit}
            for reading in report.readings
        ]
        print_json({"readings": rows}, line=False)
    else:
        print_readings(report, "It checked in without a value.")
    return 0


@dataclass
class _Listener:
    """Implements `embereye.sensor.source.Owner` for one sensor."""

    problem: str = "it has not answered"
    rejected: str = ""
    report: Report | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self, _: str, report: Report, __: int) -> None:
        """Note the newest reading."""
        self.report = report
        self.arrived.set()

    def refuse(self, _: str, reason: str) -> None:
        """Note why a message cannot be read."""
        self.rejected = reason

    def note_link(self, _: str, problem: str) -> None:
        """Note why the sensor cannot be heard, which ends the attempt."""
        self.problem = problem
        if problem:
            self.arrived.set()


async def _read(device: SensorDevice, seconds: float) -> Report:
    """Return the first report of `device`; CheckFailedError says why there is none."""
    scheme, name = device.spec.source.partition(":")[0], device.spec.id
    maker, listener = sources().get(scheme), _Listener()
    if not device.spec.source or scheme == PUSH or maker is None:
        raise UserError(f"{name}: it sends to a shard, so it cannot be read from here. Declare it and see its page")
    try:
        source = maker()
    except ImportError as error:
        raise CheckFailedError(str(error)) from error
    async with Tasks() as tasks:
        source.start(listener, tasks, f"try-{os.getpid()}")
        source.apply("try", [device])
        await first_of(listener.arrived.wait(), timeout=seconds)
        await source.drain()
    if listener.report is None:
        why = listener.problem or listener.rejected or f"it said nothing within {seconds:g} s. It may report rarely"
        raise CheckFailedError(f"{name}: {why}")
    return listener.report


def _find(name: str, fleets: Iterable[Fleet]) -> SensorDevice:
    """The sensor `name` of `fleets`; NotFoundError if there is none."""
    for fleet in fleets:
        spec = fleet.spec
        if not isinstance(spec, SensorFleetSpec):
            continue
        for sensor in fleet.devices:
            if sensor.id == name and isinstance(sensor, Sensor):
                # With a heartbeat, its check-ins would be stored at the broker.
                device = build_device(replace(sensor, heartbeat="always"), fleet)
                return SensorDevice(device, build_sensor_settings(spec), BandTable())
    raise NotFoundError(f"{name}: the files declare no such sensor")
