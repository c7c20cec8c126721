"""What gRPC's servicers need of the shard that they serve for."""

from typing import Protocol

from embereye.sensor.device.sensor import SensorDevice
from embereye.shard.access import DeviceAccess
from embereye.shard.links import Links
from embereye.v1.shard_pb2 import Peer


class Owner(Protocol):
    """Who owns which device, whom it listens to, and how others are reached."""

    access: DeviceAccess

    @property
    def links(self) -> Links:
        """How other shards are dialled."""
        ...

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        ...
