"""Relay lines of text devices to the shards that own them: one stream to each shard, for all devices.

A device may connect to any shard. Its session opens a `Relay` per owning shard and sends whole lines; the stream to
that shard (`_Link`) collects the lines of all relays into requests. Urgent lines are sent at once, others after a short
wait. Commands of the owner come back on the same stream. If the stream fails, its relays are closed, their waiting
lines are dropped and counted, and the session opens a new relay with its next line.

Shards authenticate each other for this call as for every other one, so only shards can relay.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from embereye.process.grpc_server import converse
from embereye.process.reason import reason_of
from embereye.process.tasks import Tasks
from embereye.shard.links import PeerAddress
from embereye.units import MIB
from embereye.v1.ingest_pb2 import RelayedConnection, RelayRequest, RelayResponse
from embereye.v1.ingest_pb2_grpc import RelaysStub

logger = logging.getLogger(__name__)
REQUEST_BYTES = 256 * 1024  # approximate size of one request
LATER_SHARE = 0.25  # longest wait of quiet lines for others, as a share of the devices' deadline


@dataclass
class Limits:
    """The limits of relays; changes take effect at once."""

    connection: int = 256 * 1024  # bytes of one device that may wait; beyond it its lines are dropped
    shard: int = 16 * MIB  # bytes of all devices that may wait for one shard
    dial: float = 3.0  # seconds to reach the other shard; lines wait meanwhile
    later: float = 0.2  # longest wait of quiet lines for others, in seconds: each message costs 10 to 20 µs
    idle: float = 30.0  # seconds until a stream without devices is closed


@dataclass(frozen=True)
class Origin:
    """The device's connection that relayed lines come from."""

    since_ns: int  # when the device connected
    shared: bool  # the relaying shard analyses the lines, too
    address: str  # the device's host
    device: str  # the device that its certificate names; '': no certificate


class Relay:
    """Relays the lines of one connection; `forward_command` gets the commands that the owning shard sends.

    Lines wait up to a limit, before and after the stream is open; beyond it `send` drops them. If the stream cannot be
    opened, or ends, `closed` is set and waiting lines are lost; the session then opens another relay.
    """

    def __init__(self, link: "_Link", origin: Origin, forward_command: Callable[[str], None]) -> None:
        self.closed = False
        self.origin = origin
        self.forward_command = forward_command
        self.waiting = bytearray()
        self._link = link

    def send(self, lines: bytes, *, later: bool = False) -> bool:
        """Send whole lines at once, or a little `later` together with those of other devices.

        False if there is no room: the lines are dropped.
        """
        limits = self._link.limits
        if len(self.waiting) + len(lines) > limits.connection or self._link.size + len(lines) > limits.shard:
            return False
        self.waiting += lines
        self._link.add(self, len(lines), later=later)
        return True

    def close(self) -> None:
        """End the relay; waiting lines are still sent."""
        if not self.closed:
            self.closed = True
            self._link.add(self, 0)


class Relays:
    """The streams to a fleet's other shards; `dial` makes their channels, `dropped` counts lost lines."""

    def __init__(
        self,
        dial: Callable[[PeerAddress], grpc.aio.Channel],
        dropped: Callable[[int], None],
        tasks: Tasks,
        limits: Limits | None = None,
    ) -> None:
        self._dial = dial
        self._dropped = dropped
        self._tasks = tasks
        self._links: dict[PeerAddress, _Link] = {}
        limits = limits or Limits()
        self.limits = limits
        self.later = limits.later

    def configure(self, deadline: float) -> None:
        """Limit the wait of quiet lines, so that devices are heard within `deadline` seconds."""
        self.later = min(self.limits.later, LATER_SHARE * deadline)

    def __len__(self) -> int:
        return len(self._links)

    def open(self, peer: PeerAddress, origin: Origin, forward_command: Callable[[str], None]) -> Relay:
        """Open a relay to `peer` for one connection."""
        link = self._links.get(peer)
        if link is None or link.closing:
            link = self._links[peer] = _Link(self)
            self._tasks.start(self._run(peer, link), name=f"relay-{peer.shard}")
        relay = Relay(link, origin, forward_command)
        link.relays[origin.since_ns] = relay
        return relay

    async def _run(self, peer: PeerAddress, link: "_Link") -> None:
        try:
            async with self._dial(peer) as channel:
                async with asyncio.timeout(self.limits.dial):
                    await channel.channel_ready()
                responses = converse(RelaysStub(channel).Pass(), link.write)
                async with contextlib.aclosing(responses):
                    async for response in responses:
                        link.forward_command(response)
        except (grpc.aio.AioRpcError, OSError, TimeoutError) as error:
            logger.warning("relay to %s at %s: failed: %s", peer.shard, peer.control, reason_of(error))
        finally:
            if self._links.get(peer) is link:
                del self._links[peer]
            self._dropped(link.discard())


class _Link:
    """The stream to one shard, open or being opened."""

    def __init__(self, relays: Relays) -> None:
        self._relays = relays
        self.limits = relays.limits
        self.size = 0  # waiting bytes
        self.closing = False  # accepts no more relays
        self.relays: dict[int, Relay] = {}  # the latest one by since_ns
        self._changed: dict[Relay, None] = {}  # relays with something to send, in order
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None  # sets `_wake` later

    def add(self, relay: Relay, size: int, *, later: bool = False) -> None:
        """Queue `relay`, which has `size` more bytes to send."""
        self.size += size
        self._changed[relay] = None
        if not later:
            self._wake.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._relays.later, self._wake_up)

    def _wake_up(self) -> None:
        self._timer = None
        self._wake.set()

    async def write(self, call: "grpc.aio.StreamStreamCall[RelayRequest, RelayResponse]") -> None:
        """Send what is queued, until the stream has been without relays for long."""
        while not self.closing:
            while self._changed:
                await call.write(self._request())
            self._wake.clear()
            try:
                async with asyncio.timeout(None if self.relays else self.limits.idle):
                    await self._wake.wait()
            except TimeoutError:
                self.closing = not self._changed
        await call.done_writing()

    def _request(self) -> RelayRequest:
        request, size = RelayRequest(), 0
        while self._changed and size < REQUEST_BYTES:
            relay = next(iter(self._changed))
            del self._changed[relay]
            lines, relay.waiting = bytes(relay.waiting), bytearray()
            size += len(lines)
            origin = relay.origin
            request.connections.append(
                RelayedConnection(
                    since_ns=origin.since_ns, also=origin.shared, address=origin.address, device=origin.device,
                    lines=lines, closed=relay.closed,
                )
            )  # fmt: skip
            if relay.closed and self.relays.get(origin.since_ns) is relay:
                del self.relays[origin.since_ns]
        self.size -= size
        return request

    def forward_command(self, response: RelayResponse) -> None:
        """Forward a command to its device."""
        if relay := self.relays.get(response.since_ns):
            relay.forward_command(response.word)

    def discard(self) -> int:
        """Close all relays and return the number of lines that are lost."""
        if self._timer is not None:
            self._timer.cancel()
        lost = sum(relay.waiting.count(b"!") for relay in self._changed)
        for relay in (*self.relays.values(), *self._changed):
            relay.closed = True
            relay.waiting.clear()
        self.relays.clear()  # breaks the reference cycle between relay and stream
        self._changed.clear()
        return lost
