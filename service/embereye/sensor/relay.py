"""What a text device sends to the wrong shard is passed on to its owner: one stream to each shard, for all devices.

Shards prove to each other who they are, as for every call between them: nobody else can pass anything on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from embereye.process.grpc_server import converse
from embereye.process.tasks import Tasks
from embereye.shard.links import PeerAddress
from embereye.units import MIB
from embereye.v1.ingest_pb2 import RelayedConnection, RelayRequest, RelayResponse
from embereye.v1.ingest_pb2_grpc import RelaysStub

logger = logging.getLogger(__name__)
CONNECTION_LIMIT = 256 * 1024  # bytes of one device that may wait for another shard before its lines are dropped
SHARD_LIMIT = 16 * MIB  # bytes of all devices that may wait for it
REQUEST_BYTES = 256 * 1024  # of one message, about
DIAL_SECONDS = 3.0  # for the other shard to be reached; lines wait meanwhile
LATER_SECONDS = 0.2  # at most, that lines wait for others which may begin nothing: each message takes 10 to 20 µs
LATER_SHARE = 0.25  # at most, of the time within which a device has to be heard
IDLE_SECONDS = 30.0  # that a stream is kept on which no device is left


@dataclass(frozen=True)
class Passed:
    """The connection of a device whose lines are passed on."""

    since_ns: int  # when the device connected
    also: bool  # its lines are analysed here, too
    address: str  # that it comes from
    device: str  # that its certificate proved it to be; '': none did


class Relay:
    """Passes one connection's lines on; `pass_back` gets the commands that its owner sends.

    Lines wait up to a limit, before the stream stands and after; beyond it `send` drops. Where the stream cannot be
    had, or ends, `closed` is set and what waited is lost: its session makes another.
    """

    def __init__(self, link: "_Link", passed: Passed, pass_back: Callable[[str], None]) -> None:
        self.closed = False
        self.passed = passed
        self.pass_back = pass_back
        self.waiting = bytearray()
        self._link = link

    def send(self, lines: bytes, *, later: bool = False) -> bool:
        """Send whole lines at once, or with those of other devices a little `later`.

        False where there is no room and they were dropped.
        """
        if len(self.waiting) + len(lines) > CONNECTION_LIMIT or self._link.size + len(lines) > SHARD_LIMIT:
            return False
        self.waiting += lines
        self._link.add(self, len(lines), later=later)
        return True

    def close(self) -> None:
        """End it; what waits is still sent."""
        if not self.closed:
            self.closed = True
            self._link.add(self, 0)


class Relays:
    """The streams to a fleet's other shards, which `dial` makes channels to; `dropped` counts lines that are lost."""

    def __init__(
        self, dial: Callable[[PeerAddress], grpc.aio.Channel], dropped: Callable[[int], None], tasks: Tasks
    ) -> None:
        self._dial = dial
        self._dropped = dropped
        self._tasks = tasks
        self._links: dict[PeerAddress, _Link] = {}
        self.later = LATER_SECONDS

    def configure(self, deadline: float) -> None:
        """Have devices be heard within `deadline` seconds, whatever waits for others."""
        self.later = min(LATER_SECONDS, LATER_SHARE * deadline)

    def __len__(self) -> int:
        return len(self._links)

    def open(self, peer: PeerAddress, passed: Passed, pass_back: Callable[[str], None]) -> Relay:
        """Pass the lines of one more connection on to `peer`."""
        link = self._links.get(peer)
        if link is None or link.over:
            link = self._links[peer] = _Link(self)
            self._tasks.start(self._run(peer, link), name=f"relay-{peer.shard}")
        relay = Relay(link, passed, pass_back)
        link.relays[passed.since_ns] = relay
        return relay

    async def _run(self, peer: PeerAddress, link: "_Link") -> None:
        try:
            async with self._dial(peer) as channel:
                async with asyncio.timeout(DIAL_SECONDS):
                    await channel.channel_ready()
                responses = converse(RelaysStub(channel).Pass(), link.write)
                async with contextlib.aclosing(responses):
                    async for response in responses:
                        link.pass_back(response)
        except (grpc.aio.AioRpcError, OSError, TimeoutError) as error:
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or "timed out"
            logger.warning("relay to %s at %s: %s", peer.shard, peer.control, reason)
        finally:
            if self._links.get(peer) is link:
                del self._links[peer]
            self._dropped(link.lose())


class _Link:
    """The stream to one shard, or the attempt to have one."""

    def __init__(self, relays: Relays) -> None:
        self._relays = relays
        self.size = 0  # bytes that wait
        self.over = False  # whether it takes no more
        self.relays: dict[int, Relay] = {}  # by since_ns, the latest one
        self._changed: dict[Relay, None] = {}  # of which something is to be sent, in order
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None  # that wakes it later

    def add(self, relay: Relay, size: int, *, later: bool = False) -> None:
        """Have what `relay` holds sent."""
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
        """Send what there is, until there has been nobody to send for in a while."""
        while not self.over:
            while self._changed:
                await call.write(self._request())
            self._wake.clear()
            try:
                async with asyncio.timeout(None if self.relays else IDLE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                self.over = not self._changed
        await call.done_writing()

    def _request(self) -> RelayRequest:
        request, size = RelayRequest(), 0
        while self._changed and size < REQUEST_BYTES:
            relay = next(iter(self._changed))
            del self._changed[relay]
            lines, relay.waiting = bytes(relay.waiting), bytearray()
            size += len(lines)
            passed = relay.passed
            request.connections.append(
                RelayedConnection(
                    since_ns=passed.since_ns, also=passed.also, address=passed.address, device=passed.device,
                    lines=lines, closed=relay.closed,
                )
            )  # fmt: skip
            if relay.closed and self.relays.get(passed.since_ns) is relay:
                del self.relays[passed.since_ns]
        self.size -= size
        return request

    def pass_back(self, response: RelayResponse) -> None:
        """Have a command reach its device."""
        if relay := self.relays.get(response.since_ns):
            relay.pass_back(response.word)

    def lose(self) -> int:
        """Close all relays; how many lines are lost with them."""
        if self._timer is not None:
            self._timer.cancel()
        lost = sum(relay.waiting.count(b"!") for relay in self._changed)
        for relay in (*self.relays.values(), *self._changed):
            relay.closed = True
            relay.waiting.clear()
        self.relays.clear()  # relay and stream would keep one another
        self._changed.clear()
        return lost
