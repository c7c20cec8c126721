"""The part of a sensor shard that a source of readings needs, with real devices, for tests of sources."""

from typing import Any

from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

from embereye.detect.sensing.bands import BandTable  # isort: skip
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

SETTINGS = build_sensor_settings(SensorFleetSpec())


class SourceShard:
    """Devices that one source reads; call `apply` to begin."""

    def __init__(self, source: Any, *declared: Device, name: str = "s-0") -> None:
        self.devices = {device.id: SensorDevice(device, SETTINGS, BandTable()) for device in declared}
        self.received: list[tuple[str, dict[str, float]]] = []  # device, and value by quantity
        self.signs: list[Any] = []
        self.tasks = Tasks()
        self.source = source
        source.start(self, self.tasks, name)

    def apply(self, *names: str) -> None:
        """Have the source read the devices with these names; without any, all."""
        self.source.apply("default/sensors/test", [self.devices[name] for name in names or self.devices])

    def receive(self, device: str, report: Any, heard_ns: int) -> None:
        self.received.append((device, {reading.quantity: reading.value for reading in report.readings}))
        self.signs += self.devices[device].analyse_report(report, heard_ns, now_ns())

    def refuse(self, device: str, reason: str) -> None:
        self.devices[device].arrivals.ledger.rejected[reason] += 1

    def note_link(self, device: str, problem: str) -> None:
        self.devices[device].note_link(problem, now_ns())

    def reports(self, device: str = "") -> list[dict[str, float]]:
        """The values that were received, of one device or all."""
        return [values for name, values in self.received if device in ("", name)]

    def reason(self, device: str, later: int = 0) -> str:
        """Return why `device` is dark `later` nanoseconds from now; '' if it is not."""
        return self.devices[device].reason(now_ns() + later, 5 * SECOND)

    async def stop(self) -> None:
        """Read nothing more."""
        await self.source.drain()
        await self.tasks.stop()
