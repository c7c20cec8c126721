"""A sensor shard's canary: an artificial device that dials the shard's own listener and reports smoke.

`burn` creates a `SensorDevice` that no assignment names, connects like a real device, and sends a calm and a burning
reading. They pass through session, tick and thresholds like any others. `Fleet` finds the device by `device_named`. Its
evidence goes to the `Fire`, which marks it as a canary's before the hub gets it.
"""

import asyncio
import socket

from embereye.detect.sensing.bands import BandTable
from embereye.sensor.device.sensor import SensorDevice
from embereye.shard.evidence.canary import Fire
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import SensorReading, SerialNumber
from embereye.zone.canary import ZONE

CALM_SECONDS = 0.1  # between the calm and the burning reading: two ticks of a usual fleet


class SensorCanary:
    """The present or last canary. The shard owns its device without an assignment, and counts it nowhere."""

    def __init__(self, bands: BandTable) -> None:
        self._bands = bands
        self._device: SensorDevice | None = None
        self._fire: Fire | None = None
        self.address: tuple[str, int] | None = None  # host and port of its end of the connection
        self._past = 0  # packets of earlier canaries

    @property
    def packets(self) -> int:
        """The number of packets that canaries have sent, which measures of load leave out."""
        return self._past + (self._device.arrivals.ledger.offered if self._device else 0)

    def device_named(self, device: str) -> SensorDevice | None:
        """The canary's device if `device` is its id, else None."""
        return self._device if self._device is not None and self._device.spec.id == device else None

    def report(self, evidence: EvidenceItem) -> None:
        """Report evidence that its readings led to."""
        if self._fire is not None and self._fire.device == evidence.device:
            self._fire.report(evidence)

    async def burn(self, fire: Fire, listener: asyncio.Server, settings: SensorSettings) -> None:
        """Connect to `listener`, send a calm and a burning reading, and wait for the evidence."""
        self._past = self.packets
        if self._device is not None:
            self._device.release()
        self._device, self._fire = SensorDevice(Device(id=fire.device, zone=ZONE), settings, self._bands), fire
        full_scale = self._device.readings.thresholds.full_scale
        address = own_address(listener)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.bind((address[0], 0))
            self.address = connection.getsockname()[:2]
            await asyncio.get_running_loop().sock_connect(connection, address)
        except OSError:
            connection.close()
            raise
        _, writer = await asyncio.open_connection(sock=connection)
        try:
            writer.write(encode(SerialNumber(fire.device)) + encode(_smoke(0)))
            await asyncio.sleep(CALM_SECONDS)
            fire.light()
            writer.write(encode(_smoke(full_scale)))
            await fire.reported.wait()
        finally:
            self.address = None
            writer.transport.abort()  # do not wait until a busy shard has read the rest


def _smoke(adc: float) -> SensorReading:
    # Only smoke: the value that means "no flame" differs between fleets.
    return SensorReading(None, adc, None, None, None)


def own_address(listener: asyncio.Server) -> tuple[str, int]:
    """The host and port at which this process reaches its own `listener`."""
    bound = listener.sockets[0]
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:
        host = "::1" if bound.family == socket.AF_INET6 else "127.0.0.1"
    return host, port
