"""The operator's gRPC calls to shards and to the hub, for all runtimes.

`KubernetesLinks` and `LocalRuntime` use one `Shards` and a `Hub` for each hub. There is one channel for each process;
it is replaced when the operator's certificate changes, or if it does not connect, because a new channel resolves the
name at once. Calls have short deadlines. A silent shard is None, because silence is a normal answer that passes decide
on; a silent hub is an UnavailableError.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from embereye.process.grpc_server import PEOPLE, control_channel
from embereye.process.identity.credentials import Certificate, Credentials
from embereye.process.identity.names import SERVER_NAMES, Role, shard_server_name
from embereye.process.tasks import Tasks
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling, HeardRequest, RetainRequest
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.shard_pb2 import Assignment, AssignResponse, ShardStatus, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye_operator.errors import UnavailableError

T = TypeVar("T")
TIMEOUT = 1.0  # seconds; for calls to the hub
# Longest duration of a call, in seconds. A shard that takes longer to report its status counts as silent. On a busy
# machine an answer may take more than one second; its fleet must not be reported uncovered for that.
CALL_SECONDS = 2.0
IDLE = 60.0  # seconds without a call until a shard's channel is closed
ROSTER_PERIOD = 30.0  # seconds between repetitions of an unchanged roster, for a hub that lost it
CONNECT_SECONDS = 15.0  # longest attempt to connect; a process on a busy machine needs several seconds
# Many shards may be gone for long, so reconnects are slower than for readings.
RECONNECT = (
    ("grpc.min_reconnect_backoff_ms", int(CONNECT_SECONDS * 1000)),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
# gRPC waits as long before it resolves a name again, and no option shortens that. A channel that is not connected so
# many seconds after its creation is replaced, and the new one resolves the name at once. The old one may still connect.
CONNECTED_SECONDS = 2.0


SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Address(NamedTuple):
    """A shard and its control address."""

    namespace: str
    shard: str
    control: str  # host:port


class Heard(NamedTuple):
    """The times since a hub heard shards, in nanoseconds."""

    silences: Mapping[tuple[str, str], int] = {}  # by fleet and name of each shard: since its latest report
    listening: int = 0  # since it began to hear shards; 0: nothing is known


class _Open(NamedTuple):
    link: grpc.aio.Channel
    shown: Certificate | None
    since: float  # monotonic seconds


class _Caller:
    """A caller of our own processes, with a channel to each; without `credentials` neither end is authenticated."""

    def __init__(self, credentials: Credentials | None) -> None:
        self.credentials = credentials
        self._open: dict[tuple[str, str], _Open] = {}
        self._slow: dict[tuple[str, str], list[_Open]] = {}  # replaced channels that were still connecting
        self._over: set[grpc.aio.Channel] = set()  # replaced channels, closed once their calls have ended
        self._closing = Tasks()

    def channel(self, address: str, server_name: str) -> grpc.aio.Channel:
        """Return the channel to a process, a new one after a change of our certificate."""
        certificate = self.credentials.current if self.credentials else None
        known = self._open.get((address, server_name))
        if known and known.shown is not certificate:
            self._retire(self._open.pop((address, server_name)))
            known = None
        if connected := self._connected(address, server_name, certificate):
            if known:
                self._retire(known)
            known = self._open[address, server_name] = connected
        if known is None:
            link = control_channel(address, server_name, self.credentials, RECONNECT)
            known = self._open[address, server_name] = _Open(link, certificate, time.monotonic())
        return known.link

    def _connected(self, address: str, server_name: str, certificate: Certificate | None) -> _Open | None:
        """Return a replaced channel that has connected after all, and close the others once they fail."""
        connected: _Open | None = None
        for slow in self._slow.pop((address, server_name), ()):
            state = slow.link.get_state()
            if state is grpc.ChannelConnectivity.READY and slow.shown is certificate and connected is None:
                connected = slow
            elif state is grpc.ChannelConnectivity.CONNECTING and slow.shown is certificate and connected is None:
                self._slow.setdefault((address, server_name), []).append(slow)
            else:
                self._retire(slow)
        if connected:
            for slow in self._slow.pop((address, server_name), ()):
                self._retire(slow)
        return connected

    def _note_failure(self, address: str, server_name: str, link: grpc.aio.Channel, code: grpc.StatusCode) -> None:
        """Record a call on `link` that failed with `code`: the next call may need a new channel.

        A connection without an answer is replaced at once. It may lead to a lost node, where it would remain until that
        node is back, although a Service of the same name now leads to another pod.
        """
        known = self._open.get((address, server_name))
        if known is None or known.link is not link:
            return
        state = link.get_state()
        if state is grpc.ChannelConnectivity.READY:
            is_over = code is grpc.StatusCode.DEADLINE_EXCEEDED
        else:
            is_over = time.monotonic() - known.since > CONNECTED_SECONDS
        if is_over:
            del self._open[address, server_name]
            if state is grpc.ChannelConnectivity.CONNECTING:
                self._slow.setdefault((address, server_name), []).append(known)
            else:
                self._retire(known)

    async def close(self) -> None:
        """Close all channels."""
        await self._closing.stop()
        await asyncio.gather(self._close([*self._open, *self._slow]), *(link.close(None) for link in self._over))
        self._over.clear()

    async def _close(self, chosen: Collection[tuple[str, str]]) -> None:
        closed = [self._open.pop(key) for key in chosen if key in self._open]
        closed += [slow for key in chosen for slow in self._slow.pop(key, ())]
        await asyncio.gather(*(known.link.close(None) for known in closed))

    def _retire(self, known: _Open) -> None:
        link = known.link
        self._over.add(link)
        self._closing.start(self._close_later(link), name="close-channel")

    async def _close_later(self, link: grpc.aio.Channel) -> None:
        await link.close(CALL_SECONDS)
        self._over.discard(link)

    async def _answer(
        self, address: str, server_name: str, make: "Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryCall[Any, T]]"
    ) -> T:
        """Await the call that `make` starts on a channel; AioRpcError if it fails.

        The call is always cancelled, because gRPC never collects an abandoned one: grpc#43462.
        """
        link = self.channel(address, server_name)
        call = make(link)
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            self._note_failure(address, server_name, link, error.code())
            raise
        finally:
            call.cancel()


class Shards(_Caller):
    """Calls to shards; one channel each, closed when idle."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        super().__init__(credentials)
        self._used: dict[tuple[str, str], float] = {}  # monotonic seconds

    async def status(self, address: Address) -> ShardStatus | None:
        """Query the shard's status with all its devices; None if it does not answer."""
        request = StatusRequest(devices=True)
        return await self._call(address, lambda link: ShardStub(link).Status(request, timeout=CALL_SECONDS))

    async def assign(self, address: Address, assignment: Assignment) -> AssignResponse | None:
        """Send the shard at `address` its assignment; None if it cannot be reached."""
        return await self._call(address, lambda link: ShardStub(link).Assign(assignment, timeout=CALL_SECONDS))

    async def close_idle(self) -> None:
        """Close idle channels."""
        now = time.monotonic()
        idle = [key for key, used in self._used.items() if now - used > IDLE]
        for key in idle:
            del self._used[key]
        await self._close(idle)

    async def forget(self, address: Address) -> None:
        """Close the channel to a deleted shard."""
        key = self._key(address)
        if self._used.pop(key, None) is not None:
            await self._close([key])

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
    """Reports to a hub; an unchanged roster is repeated only every ROSTER_PERIOD."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        """Use `address`, the host:port of its control port."""
        super().__init__(credentials)
        self.address = address
        self.epochs: Mapping[str, int] = {}  # epochs of the hub's rosters by fleet, as last reported
        self.is_reaching_people: bool | None = None  # as last reported; None: unknown, or it notifies nobody
        self.ip_address = ""  # its address without a name to resolve, which is tried first; "" if it is unknown
        self._by_name = False
        self._reported: dict[
            str, tuple[FleetRoster, float, FleetLedger | None]
        ] = {}  # fleet → roster, monotonic seconds

    async def set(self, roster: FleetRoster) -> FleetLedger | None:
        """Report all declared devices of a fleet; return the hub's ledger of the fleet as of its latest report.

        UnavailableError if the hub cannot be reached.
        """
        reported, when, ledger = self._reported.get(roster.fleet, (None, 0.0, None))
        if (reported is roster or reported == roster) and time.monotonic() - when < ROSTER_PERIOD:
            return ledger
        self._reported.pop(roster.fleet, None)
        response = await self._call(lambda link: RosterStub(link).Set(roster, timeout=TIMEOUT))
        ledger = response.ledger if response.HasField("ledger") else None
        self.is_reaching_people = await self._ask_for_people()
        self._reported[roster.fleet] = (roster, time.monotonic(), ledger)
        return ledger

    async def report_scaling(self, scaling: FleetScaling) -> None:
        """Report a fleet's load; UnavailableError if the hub cannot be reached."""
        await self._call(lambda link: RosterStub(link).TellScaling(scaling, timeout=TIMEOUT))

    async def retain(self, fleets: Sequence[str]) -> None:
        """Make the hub forget all other fleets; UnavailableError if it cannot be reached."""
        for fleet in set(self._reported) - set(fleets):
            del self._reported[fleet]
        request = RetainRequest(fleets=fleets)
        response = await self._call(lambda link: RosterStub(link).Retain(request, timeout=TIMEOUT))
        self.epochs = dict(response.epochs)

    async def heard(self) -> Heard:
        """Return when the hub heard shards; nothing if it does not say."""
        try:
            answer = await self._answer(
                self._target, SERVER_NAMES[Role.HUB],
                lambda link: RosterStub(link).Heard(HeardRequest(), timeout=TIMEOUT),
            )  # fmt: skip
        except grpc.aio.AioRpcError:
            return Heard()
        silences = {(shard.fleet, shard.shard): shard.silent_ns for shard in answer.shards}
        return Heard(silences, answer.listening_ns)

    async def is_serving(self) -> bool:
        """True if the hub answers and serves."""
        request = health_pb2.HealthCheckRequest()
        try:
            answer = await self._call(lambda link: health_pb2_grpc.HealthStub(link).Check(request, timeout=TIMEOUT))
        except UnavailableError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def _ask_for_people(self) -> bool | None:
        """Ask if all routes to people work; None if it does not say. A hub without routes knows no such service."""
        request = health_pb2.HealthCheckRequest(service=PEOPLE)
        try:
            answer = await self._answer(
                self._target, SERVER_NAMES[Role.HUB],
                lambda link: health_pb2_grpc.HealthStub(link).Check(request, timeout=TIMEOUT),
            )  # fmt: skip
        except grpc.aio.AioRpcError:
            return None
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    @property
    def _target(self) -> str:
        return self.ip_address if self.ip_address and not self._by_name else self.address

    async def _call(self, make: "Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryCall[Any, T]]") -> T:
        try:
            return await self._answer(self._target, SERVER_NAMES[Role.HUB], make)
        except grpc.aio.AioRpcError as error:
            self._by_name = not self._by_name
            # A hub that is gone answers either of two codes, by chance: that is no news.
            code = "" if error.code() in SILENT else f" ({error.code().name})"
            sentence = f"hub {self.address} cannot be reached{code}"
            raise UnavailableError(sentence) from error
