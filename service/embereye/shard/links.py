"""How a shard dials those of our own processes that it talks to: with its certificate, where it has one."""

import asyncio
from typing import NamedTuple

import grpc

from embereye.process.grpc_server import control_channel
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import SERVER_NAMES, Role, shard_server_name


class PeerAddress(NamedTuple):
    """Another shard of the fleet, and where it answers shards."""

    shard: str
    control: str  # host:port


class Links:
    """Without `credentials` neither end of a channel proves who it is."""

    def __init__(self, hub: str = "", credentials: Credentials | None = None) -> None:
        """`hub` is the host:port of the hub's control port."""
        self.hub_address = hub
        self.hub_found = ""  # the same without a name, which nobody may resolve just now; "" where that is not known
        self.credentials = credentials

    def hub(self, failed: int = 0) -> grpc.aio.Channel:
        """A channel to the hub, after so many that led nowhere: without a name first, then by name, and so on."""
        address = self.hub_found if self.hub_found and failed % 2 == 0 else self.hub_address
        return control_channel(address, SERVER_NAMES[Role.HUB], self.credentials)

    def peer(self, address: PeerAddress) -> grpc.aio.Channel:
        """A channel to another shard of the fleet."""
        namespace = self.credentials.identity.namespace if self.credentials else ""
        return control_channel(address.control, shard_server_name(namespace, address.shard), self.credentials)

    @property
    def renewed(self) -> asyncio.Event:
        """Is set once this shard has another certificate than now: a channel that lasts is to be made anew."""
        return self.credentials.changed if self.credentials else asyncio.Event()
