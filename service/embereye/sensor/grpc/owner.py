"""The part of a shard that its gRPC services use."""

from typing import Protocol

from embereye.sensor.device.sensor import SensorDevice
from embereye.shard.access import DeviceAccess
from embereye.shard.links import Links
from embereye.v1.shard_pb2 import Peer


class Owner(Protocol):
    """The shard's devices, its access rules, and its links to other shards."""

    access: DeviceAccess

    @property
    def links(self) -> Links:
        """The channels to other shards."""
        ...

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state if this shard owns it, else None."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The other shard that owns the device, else None."""
        ...
