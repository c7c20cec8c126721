"""A sensor shard's canary: a device that dials the shard's own listener and tells of smoke."""

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

CALM_SECONDS = 0.1  # between the calm reading and the burning one: two ticks of a usual fleet


class SensorCanary:
    """The canary that burns, or burnt last; it is owned, but by no assignment, and in no count."""

    def __init__(self, bands: BandTable) -> None:
        self._bands = bands
        self._device: SensorDevice | None = None
        self._fire: Fire | None = None
        self.address: tuple[str, int] | None = None  # host and port that it connects from
        self._past = 0  # packets of canaries before this one

    @property
    def packets(self) -> int:
        """All that canaries have sent: no measure of load counts them."""
        return self._past + (self._device.arrivals.ledger.offered if self._device else 0)

    def named(self, device: str) -> SensorDevice | None:
        """The canary, where `device` is its id."""
        return self._device if self._device is not None and self._device.spec.id == device else None

    def report(self, evidence: EvidenceItem) -> None:
        """Pass on what its readings are evidence of."""
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
            writer.transport.abort()  # what a shard that does not read has not taken is not waited for


def _smoke(adc: float) -> SensorReading:
    # Nothing else: what stands for "no flame" differs from fleet to fleet.
    return SensorReading(None, adc, None, None, None)


def own_address(listener: asyncio.Server) -> tuple[str, int]:
    """Where this process reaches its own `listener`."""
    bound = listener.sockets[0]
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:
        host = "::1" if bound.family == socket.AF_INET6 else "127.0.0.1"
    return host, port
