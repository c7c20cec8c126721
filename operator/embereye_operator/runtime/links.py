"""The operator's gRPC calls to shards and to the hub, for all runtimes."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from embereye.process.grpc_server import channel
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, RetainRequest
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.shard_pb2 import Assignment, AssignResponse, ShardStatus, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye_operator.errors import UnavailableError

if TYPE_CHECKING:
    from embereye.v1.roster_pb2_grpc import RosterAsyncStub

T = TypeVar("T")
TIMEOUT = 1.0  # seconds; a shard that takes longer to tell how it is, is not well
IDLE = 60.0  # seconds after which the channel to a shard that nobody asks for is closed
ROSTER_PERIOD = 30.0  # seconds between repetitions of an unchanged roster, for a hub that lost it
# A shard that restarts comes back at the same address; gRPC would wait up to two minutes before it looks.
RECONNECT = (("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000))


class Shards:
    """Calls to shards by address; one channel each, closed when it is not used any more."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._used: dict[str, float] = {}  # monotonic seconds

    async def status(self, address: str) -> ShardStatus | None:
        """The shard's word with each device, or None where it cannot be had."""
        return await self._call(ShardStub(self._channel(address)).Status(StatusRequest(devices=True), timeout=TIMEOUT))

    async def assign(self, address: str, assignment: Assignment) -> AssignResponse | None:
        """Give the shard at `address` its assignment; None where it cannot be reached."""
        return await self._call(ShardStub(self._channel(address)).Assign(assignment, timeout=2 * TIMEOUT))

    async def close_idle(self) -> None:
        """Close the channels to shards that are gone."""
        now = time.monotonic()
        for address in [address for address, used in self._used.items() if now - used > IDLE]:
            del self._used[address]
            await self._channels.pop(address).close(None)

    async def close(self) -> None:
        """Close all channels."""
        channels, self._channels = list(self._channels.values()), {}
        self._used.clear()
        await asyncio.gather(*(link.close(None) for link in channels))

    def _channel(self, address: str) -> grpc.aio.Channel:
        self._used[address] = time.monotonic()
        if address not in self._channels:
            self._channels[address] = channel(address, RECONNECT)
        return self._channels[address]

    async def _call(self, call: "grpc.aio.UnaryUnaryCall[Any, T]") -> T | None:
        try:
            return await call
        except grpc.aio.AioRpcError:
            return None
        finally:
            call.cancel()


class Hub:
    """What the hub is told about fleets; an unchanged roster is repeated only now and then."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel: grpc.aio.Channel | None = None
        self._told: dict[str, tuple[FleetRoster, float, FleetLedger | None]] = {}  # fleet → roster, monotonic seconds

    async def set(self, roster: FleetRoster) -> FleetLedger | None:
        """Tell which devices of a fleet ought to be watched; returns what the hub knew of the fleet when it was told.

        UnavailableError where it cannot be told.
        """
        told, when, ledger = self._told.get(roster.fleet, (None, 0.0, None))
        if (told is roster or told == roster) and time.monotonic() - when < ROSTER_PERIOD:
            return ledger
        self._told.pop(roster.fleet, None)
        response = await self._call(self._stub().Set(roster, timeout=TIMEOUT))
        ledger = response.ledger if response.HasField("ledger") else None
        self._told[roster.fleet] = (roster, time.monotonic(), ledger)
        return ledger

    async def retain(self, fleets: Sequence[str]) -> None:
        """Make the hub forget every other fleet; UnavailableError where it cannot be told."""
        for fleet in set(self._told) - set(fleets):
            del self._told[fleet]
        await self._call(self._stub().Retain(RetainRequest(fleets=fleets), timeout=TIMEOUT))

    async def answers(self) -> bool:
        """Whether the hub is there and serves."""
        check = health_pb2_grpc.HealthStub(self._link()).Check
        try:
            answer = await self._call(check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT))
        except UnavailableError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel:
            await self._channel.close(None)
            self._channel = None

    def _link(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = channel(self.address, RECONNECT)
        return self._channel

    def _stub(self) -> "RosterAsyncStub":
        return RosterStub(self._link())

    async def _call(self, call: "grpc.aio.UnaryUnaryCall[Any, T]") -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            sentence = f"hub {self.address} cannot be told the roster: {error.code().name}"
            raise UnavailableError(sentence) from error
        finally:
            call.cancel()
