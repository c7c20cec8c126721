"""The part of a shard that its gRPC services use."""

from typing import Protocol

from embereye.sensor.fleet import Fleet
from embereye.shard.access import DeviceAccess
from embereye.shard.links import Links


class Owner(Protocol):
    """The shard's devices, its access rules, and its links to other shards."""

    access: DeviceAccess
    fleet: Fleet

    @property
    def links(self) -> Links:
        """The channels to other shards."""
