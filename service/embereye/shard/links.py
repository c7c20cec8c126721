"""Channels from a shard to the hub and to other shards, with its certificate if it has one."""

import asyncio
from typing import NamedTuple

import grpc

from embereye.process.grpc_server import control_channel
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import SERVER_NAMES, Role, shard_server_name


class PeerAddress(NamedTuple):
    """The name and the control port of another shard of the fleet."""

    shard: str
    control: str  # host:port


class Links:
    """Makes channels; without `credentials` neither end is authenticated."""

    def __init__(self, hub: str = "", credentials: Credentials | None = None) -> None:
        """`hub` is the host:port of the hub's control port."""
        self.hub_address = hub
        self.hub_found = ""  # the hub's IP address, for when its name cannot be resolved; "": unknown
        self.credentials = credentials

    def hub(self, failed: int = 0) -> grpc.aio.Channel:
        """A channel to the hub. After each of the `failed` attempts, switch between its IP address and its name."""
        address = self.hub_found if self.hub_found and failed % 2 == 0 else self.hub_address
        return control_channel(address, SERVER_NAMES[Role.HUB], self.credentials)

    def peer(self, address: PeerAddress) -> grpc.aio.Channel:
        """A channel to another shard of the fleet."""
        namespace = self.credentials.identity.namespace if self.credentials else ""
        return control_channel(address.control, shard_server_name(namespace, address.shard), self.credentials)

    @property
    def renewed(self) -> asyncio.Event:
        """An event that is set when this shard's certificate changes, so that long-lived channels are replaced."""
        return self.credentials.changed if self.credentials else asyncio.Event()
