"""The operator's gRPC calls to shards and to the hub, for all runtimes."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from embereye.process.grpc_server import control_channel
from embereye.process.identity.credentials import Certificate, Credentials
from embereye.process.identity.names import SERVER_NAMES, Role, shard_server_name
from embereye.process.tasks import Tasks
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling, RetainRequest
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.shard_pb2 import Assignment, AssignResponse, ShardStatus, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye_operator.errors import UnavailableError

T = TypeVar("T")
TIMEOUT = 1.0  # seconds; a shard that takes longer to tell how it is, is not well
CALL_SECONDS = 2 * TIMEOUT  # the longest that any call takes
IDLE = 60.0  # seconds after which the channel to a shard that nobody asks for is closed
ROSTER_PERIOD = 30.0  # seconds between repetitions of an unchanged roster, for a hub that lost it
# Many shards may be gone for long: each is looked for less often than where readings wait for it.
RECONNECT = (("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000))
# As long as that it waits before it asks for a name again that nobody resolved, and no option shortens it: a channel
# that is not connected so many seconds after it was made is made anew, and asks at once.
CONNECTED_SECONDS = 2.0


class Address(NamedTuple):
    """A shard, and where it answers the operator."""

    namespace: str
    shard: str
    control: str  # host:port


class _Open(NamedTuple):
    link: grpc.aio.Channel
    shown: Certificate | None
    since: float  # monotonic seconds


class _Channels:
    """One channel to each process of ours, made anew when the certificate that it is called with is another one."""

    def __init__(self, credentials: Credentials | None) -> None:
        self.credentials = credentials
        self._open: dict[tuple[str, str], _Open] = {}
        self._over: set[grpc.aio.Channel] = set()  # that are closed once the calls which began on them have ended
        self._closing = Tasks()

    def get(self, address: str, server_name: str) -> grpc.aio.Channel:
        certificate = self.credentials.current if self.credentials else None
        known = self._open.get((address, server_name))
        if known and known.shown is not certificate:
            self._let_go(address, server_name)
            known = None
        if known is None:
            link = control_channel(address, server_name, self.credentials, RECONNECT)
            known = self._open[address, server_name] = _Open(link, certificate, time.monotonic())
        return known.link

    def failed(self, address: str, server_name: str, link: grpc.aio.Channel) -> None:
        """A call on `link` failed: if it is not even connected, the next one is made on another."""
        known = self._open.get((address, server_name))
        if (
            known
            and known.link is link
            and link.get_state() is not grpc.ChannelConnectivity.READY
            and time.monotonic() - known.since > CONNECTED_SECONDS
        ):
            self._let_go(address, server_name)

    async def close(self, chosen: Collection[tuple[str, str]] | None = None) -> None:
        """Close those of `chosen`, or all."""
        keys = list(self._open) if chosen is None else chosen
        closing = [self._open.pop(key).link for key in keys if key in self._open]
        if chosen is None:
            await self._closing.stop()
            closing += self._over
            self._over.clear()
        await asyncio.gather(*(link.close(None) for link in closing))

    def _let_go(self, address: str, server_name: str) -> None:
        link = self._open.pop((address, server_name)).link
        self._over.add(link)
        self._closing.start(self._close_later(link), name="close-channel")

    async def _close_later(self, link: grpc.aio.Channel) -> None:
        await link.close(CALL_SECONDS)
        self._over.discard(link)


class _Caller:
    """Who calls processes of ours; without `credentials` neither end proves who it is."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._channels = _Channels(credentials)

    @property
    def credentials(self) -> Credentials | None:
        """By which it proves who it is."""
        return self._channels.credentials

    @credentials.setter
    def credentials(self, credentials: Credentials | None) -> None:
        self._channels.credentials = credentials

    async def close(self) -> None:
        """Close all channels."""
        await self._channels.close()

    async def _answer(
        self, address: str, server_name: str, make: "Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryCall[Any, T]]"
    ) -> T:
        """What the call returns that `make` begins on a channel; AioRpcError where it fails.

        An abandoned call would never be collected: grpc#43462.
        """
        link = self._channels.get(address, server_name)
        call = make(link)
        try:
            return await call
        except grpc.aio.AioRpcError:
            self._channels.failed(address, server_name, link)
            raise
        finally:
            call.cancel()


class Shards(_Caller):
    """Calls to shards; one channel each, closed when it is not used any more."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        super().__init__(credentials)
        self._used: dict[tuple[str, str], float] = {}  # monotonic seconds

    async def status(self, address: Address) -> ShardStatus | None:
        """The shard's word with each device, or None where it cannot be had."""
        request = StatusRequest(devices=True)
        return await self._call(address, lambda link: ShardStub(link).Status(request, timeout=TIMEOUT))

    async def assign(self, address: Address, assignment: Assignment) -> AssignResponse | None:
        """Give the shard at `address` its assignment; None where it cannot be reached."""
        return await self._call(address, lambda link: ShardStub(link).Assign(assignment, timeout=CALL_SECONDS))

    async def close_idle(self) -> None:
        """Close the channels to shards that are gone."""
        now = time.monotonic()
        idle = [key for key, used in self._used.items() if now - used > IDLE]
        for key in idle:
            del self._used[key]
        await self._channels.close(idle)

    async def forget(self, address: Address) -> None:
        """Close the channel to a shard that is gone."""
        key = self._key(address)
        if self._used.pop(key, None) is not None:
            await self._channels.close([key])

    async def close(self) -> None:
        """Close all channels."""
        self._used.clear()
        await super().close()

    @staticmethod
    def _key(address: Address) -> tuple[str, str]:
        return address.control, shard_server_name(address.namespace, address.shard)

    async def _call(
        self, address: Address, make: "Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryCall[Any, T]]"
    ) -> T | None:
        key = self._key(address)
        self._used[key] = time.monotonic()
        try:
            return await self._answer(*key, make)
        except grpc.aio.AioRpcError:
            return None


class Hub(_Caller):
    """What the hub is told about fleets; an unchanged roster is repeated only now and then."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        """`address` is the host:port of its control port."""
        super().__init__(credentials)
        self.address = address
        self.epochs: Mapping[str, int] = {}  # of the rosters that it has, by fleet, as it said last
        self._found = ""
        self._by_name = False
        self._told: dict[str, tuple[FleetRoster, float, FleetLedger | None]] = {}  # fleet → roster, monotonic seconds

    def found_at(self, address: str) -> None:
        """Try `address`, too, and first: nobody has to resolve a name for it. "": there is none."""
        self._found = address

    async def set(self, roster: FleetRoster) -> FleetLedger | None:
        """Tell which devices of a fleet ought to be watched; returns what the hub knew of the fleet when it was told.

        UnavailableError where it cannot be told.
        """
        told, when, ledger = self._told.get(roster.fleet, (None, 0.0, None))
        if (told is roster or told == roster) and time.monotonic() - when < ROSTER_PERIOD:
            return ledger
        self._told.pop(roster.fleet, None)
        response = await self._call(lambda link: RosterStub(link).Set(roster, timeout=TIMEOUT))
        ledger = response.ledger if response.HasField("ledger") else None
        self._told[roster.fleet] = (roster, time.monotonic(), ledger)
        return ledger

    async def tell_scaling(self, scaling: FleetScaling) -> None:
        """Tell how busy a fleet is; UnavailableError where it cannot be told."""
        await self._call(lambda link: RosterStub(link).TellScaling(scaling, timeout=TIMEOUT))

    async def retain(self, fleets: Sequence[str]) -> None:
        """Make the hub forget every other fleet; UnavailableError where it cannot be told."""
        for fleet in set(self._told) - set(fleets):
            del self._told[fleet]
        request = RetainRequest(fleets=fleets)
        response = await self._call(lambda link: RosterStub(link).Retain(request, timeout=TIMEOUT))
        self.epochs = dict(response.epochs)

    async def answers(self) -> bool:
        """Whether the hub is there and serves."""
        request = health_pb2.HealthCheckRequest()
        try:
            answer = await self._call(lambda link: health_pb2_grpc.HealthStub(link).Check(request, timeout=TIMEOUT))
        except UnavailableError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def _call(self, make: "Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryCall[Any, T]]") -> T:
        address = self._found if self._found and not self._by_name else self.address
        try:
            return await self._answer(address, SERVER_NAMES[Role.HUB], make)
        except grpc.aio.AioRpcError as error:
            self._by_name = not self._by_name
            sentence = f"hub {self.address} cannot be told the roster: {error.code().name}"
            raise UnavailableError(sentence) from error
