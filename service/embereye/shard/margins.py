"""Margins on their way from a shard to the hub, which keeps them: see `embereye.margins`.

`add` compresses each margin at once, so that little memory is needed. Every `BLOCK_SECONDS` the result becomes a block.
Blocks wait in memory until the hub has them, the oldest are dropped first. A day of one device takes at most
`DEVICE_DAY_BYTES`: near this limit a margin loses its terms, and at the limit quiet margins are left out. Room that is
not used is saved up for some minutes.
"""

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import grpc
from prometheus_client.core import Metric

from embereye.levels import Level
from embereye.margins import Margin
from embereye.process.condition import Condition
from embereye.process.margins_call import CALL, Block, line_of
from embereye.process.reason import reason_of
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation
from embereye.process.telemetry.metric import counter
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.shard.links import Links
from embereye.units import DAY, SECOND

logger = logging.getLogger(__name__)
SPAN_TICKS = 20  # ticks of a shard between two margins of a device; with ticks of 0.25 s: 5 s
BLOCK_SECONDS = 30.0
BLOCK_BYTES = 2 * 1024**2  # compressed, at which a block ends early; gRPC takes messages of 4 MiB
DEVICE_DAY_BYTES = 2_000_000  # most bytes of one device's margins of a day
SPARE_BYTES = 4_096  # room of a shard that has just started
SAVED_NS = 600 * SECOND  # of unused room that is saved up
PENDING_BYTES = 16 * 1024**2  # of blocks that wait for the hub
SEND_SECONDS = 10.0  # to wait for the hub's answer
CLEAR = Level.CLEAR.word

SENT = counter("embereye_shard_margins_bytes_total", "Bytes of margins that the hub stored.")
LEFT_OUT = counter(
    "embereye_shard_margins_left_out_total",
    "Margins left out because their device exceeded its share, or because the hub was away for too long.",
)


def _share_of(watched_ns: int) -> float:
    """The bytes that devices may use in a time, added up over them."""
    return DEVICE_DAY_BYTES * watched_ns / DAY


class _Ready(NamedTuple):
    block: Block
    margins: int


class Margins:
    """Collects margins and sends them. For one event loop."""

    def __init__(self, names: Callable[[], tuple[str, str]], block_seconds: float = BLOCK_SECONDS) -> None:
        """`names` returns the names of the fleet and the shard."""
        self._names = names
        self._block_seconds = block_seconds
        self._ready: deque[_Ready] = deque()
        self._ready_bytes = 0
        self.sent_bytes = 0
        self.left_out = 0
        self._room = float(SPARE_BYTES)  # bytes that may be used now, less those of the present block
        self._ratio = 0.3  # of compressed to other bytes, in the latest block
        self._begin()

    def _begin(self) -> None:
        self._packer = zlib.compressobj(4)
        self._packed = bytearray()
        self._count = self._bytes = 0  # margins, and their bytes before compression
        self._watched_ns = 0  # added up over the devices
        self._from_ns = self._until_ns = 0

    def add(self, margin: Margin) -> None:
        """Keep `margin`, or leave it out if there is no room."""
        self._watched_ns += max(0, margin["untilNs"] - margin["fromNs"])
        room = self._room + _share_of(self._watched_ns) - self._bytes * self._ratio
        if room < 0 and all(peak["level"] == CLEAR for peak in margin.get("peaks", ())):
            self.left_out += 1
            return
        if room < SPARE_BYTES / 4:
            for peak in margin.get("peaks", ()):
                peak.pop("terms", None)
        self._from_ns = min(self._from_ns or margin["fromNs"], margin["fromNs"])
        self._until_ns = max(self._until_ns, margin["untilNs"])
        self._count += 1
        line = line_of(margin)
        self._bytes += len(line)
        self._packed += self._packer.compress(line)
        if len(self._packed) > BLOCK_BYTES:
            self.end_block()

    def end_block(self) -> None:
        """Make a block of what was added since the last one."""
        if self._count:
            fleet, shard = self._names()
            content = bytes(self._packed) + self._packer.flush()
            self._ready.append(_Ready(Block(fleet, shard, self._from_ns, self._until_ns, 0, content), self._count))
            self._ready_bytes += len(content)
            self._ratio = len(content) / self._bytes
            saved = SPARE_BYTES + _share_of(self._watched_ns) * SAVED_NS / max(1, self._until_ns - self._from_ns)
            self._room = min(self._room + _share_of(self._watched_ns) - len(content), saved)
            while self._ready_bytes > PENDING_BYTES and len(self._ready) > 1:
                self.left_out += self._drop().margins
        self._begin()

    def next_block(self) -> Block | None:
        """Remove the oldest block that waits and return it; None if there is none."""
        return self._drop().block if self._ready else None

    def _drop(self) -> _Ready:
        ready = self._ready.popleft()
        self._ready_bytes -= len(ready.block.content)
        return ready

    async def run(self, links: Links) -> None:
        """Send a block after each `block_seconds` until cancelled; later if the hub cannot be reached."""
        backoff, failing, failed = Backoff(floor=0.5, cap=30.0), Condition(logger), 0
        while True:
            await asyncio.sleep(backoff.next() if failing else self._block_seconds)
            self.end_block()
            if reason := await self._send_all(links, failed):
                failed += 1
                failing.fail(reason, "margins wait for the hub: %s; alarms are not affected", reason)
            else:
                failing.clear("the hub stores margins again")
                backoff.reset()
                failed = 0

    async def drain(self, links: Links, seconds: float) -> None:
        """Send everything for up to `seconds`; the rest is lost."""
        self.end_block()
        try:
            async with asyncio.timeout(seconds):
                await self._send_all(links)
        except TimeoutError:
            pass

    async def _send_all(self, links: Links, failed: int = 0) -> str:
        """Send every block; return why that stopped early, or ''."""
        if not self._ready:
            return ""
        async with links.hub(failed) as link:
            while self._ready:
                ready = self._ready[0]
                try:
                    with no_stray_cancellation("storing margins"):
                        await CALL.send(link, replace(ready.block, sent_ns=now_ns()).dump(), SEND_SECONDS)
                except UnrequestedCancellationError as error:
                    return str(error)
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.INVALID_ARGUMENT:
                        return reason_of(error)
                    logger.warning("margins are refused: %s", error.details())
                    self.left_out += ready.margins
                else:
                    self.sent_bytes += len(ready.block.content)
                if self._ready and self._ready[0] is ready:  # it may have been dropped meanwhile
                    self._drop()
        return ""

    def metrics(self) -> Iterator[Metric]:
        """Yield the metric families."""
        yield SENT.value(self.sent_bytes)
        yield LEFT_OUT.value(self.left_out)
