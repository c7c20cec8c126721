"""Devices that go to another shard: first it learns up to where they were analysed here, then their senders move.

A reading that was analysed here but whose acknowledgement got lost is then a duplicate there and is not analysed
twice. A shard that is killed hands nothing off: what it had analysed and not acknowledged is analysed again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import grpc

from embereye.process.tasks import Tasks
from embereye.shard.links import PeerAddress
from embereye.v1.ingest_pb2 import TakeOverRequest
from embereye.v1.ingest_pb2_grpc import IngestStub

logger = logging.getLogger(__name__)
CONNECT_SECONDS = 2.0  # for the other shard to be reached
ANSWER_SECONDS = 0.5  # for it to answer; senders of the devices wait so long
RETRY_SECONDS = 0.25  # until a shard that does not own the devices yet is asked again
MAX_RETRY_SECONDS = 2.0


class Handoffs:
    """The devices that are being handed off, and those that have gone.

    `dial(target)` makes a channel to another shard, `request(devices)` gives their watermarks, `gone(devices)` is
    called once another shard has taken over.
    """

    def __init__(
        self,
        request: Callable[[Collection[str]], TakeOverRequest],
        gone: Callable[[Collection[str]], None],
        dial: Callable[[PeerAddress], grpc.aio.Channel],
    ) -> None:
        self._request = request
        self._on_gone = gone
        self._dial = dial
        self._targets: dict[str, PeerAddress] = {}  # by device
        self._waiting: set[str] = set()  # of them, those whose shard has not taken over yet
        self._gone: set[str] = set()
        self._asking: dict[str, asyncio.Event] = {}  # device → set once the request under way is answered
        self._added = asyncio.Event()  # set, and replaced, once there are more devices to hand off
        self._tasks = Tasks()
        self._offers: dict[PeerAddress, asyncio.Task[None]] = {}  # by target

    def __len__(self) -> int:
        return len(self._waiting)

    def update(self, targets: Mapping[str, PeerAddress], ours: Collection[str]) -> None:
        """Hand off exactly `targets` (by device), each of which has a watermark.

        Senders of devices that are no longer ours wait for the first answer; those of `ours` are served meanwhile.
        """
        for device in [device for device, target in self._targets.items() if targets.get(device) != target]:
            del self._targets[device]
            self._waiting.discard(device)
            self._answered([device])
        self._gone &= targets.keys()
        asked = asyncio.Event()
        for device in targets.keys() - self._targets.keys():
            self._targets[device] = targets[device]
            self._waiting.add(device)
            self._gone.discard(device)
            if device not in ours:
                self._asking[device] = asked
            self._added.set()
        if self._added.is_set():
            self._added = asyncio.Event()
        for target in {self._targets[device] for device in self._waiting}:
            if target not in self._offers:
                self._offers[target] = self._tasks.start(self._offer(target), name=f"hand-off-{target.shard}")

    def gone(self, device: str) -> bool:
        """Whether its readings are no longer analysed here."""
        return device in self._gone

    def let_go(self, devices: Collection[str]) -> None:
        """Analyse nothing more of `devices`, whether another shard has taken over or not."""
        self._gone.update(devices)
        self._waiting.difference_update(devices)

    async def wait_until_answered(self, devices: Iterable[str]) -> None:
        """Wait while another shard is being sent a watermark of `devices`: it must stay true until that one answers."""
        for event in [self._asking[device] for device in devices if device in self._asking]:
            await event.wait()

    async def wait_until_gone(self, devices: Collection[str], timeout: float) -> None:
        """Wait until all of `devices` have gone or been dropped, at most `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._waiting.isdisjoint(devices):
                    await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Offer nothing any more; whoever waits for an answer goes on without one."""
        try:
            await self._tasks.stop()
        finally:
            self._answered(list(self._asking))

    async def _offer(self, target: PeerAddress) -> None:
        link: grpc.aio.Channel | None = None
        pause = RETRY_SECONDS
        logged = ""
        try:
            while devices := self._bound_for(target):
                added = self._added
                link = link or self._dial(target)
                if await self._reachable(link):
                    taken, refusal = await self._ask(link, devices)
                else:
                    taken, refusal = set(), "it cannot be reached"
                    # A channel asks for a name that nobody resolves up to two minutes later; a new one asks at once.
                    await link.close(None)
                    link = None
                taken &= set(self._bound_for(target))  # the assignment may have changed meanwhile
                self._gone |= taken
                self._waiting -= taken
                self._answered(devices)
                self._on_gone(taken)
                if taken:
                    continue
                if refusal != logged:
                    logger.info("%s has not taken over %d devices yet: %s", target.shard, len(devices), refusal)
                    logged = refusal
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await added.wait()
                pause = min(2 * pause, MAX_RETRY_SECONDS)
        finally:
            self._offers.pop(target, None)
            self._answered(self._bound_for(target))  # or their senders would wait for an answer that never comes
            if link is not None:
                await link.close(None)

    def _bound_for(self, target: PeerAddress) -> list[str]:
        return [device for device in self._waiting if self._targets[device] == target]

    @staticmethod
    async def _reachable(link: grpc.aio.Channel) -> bool:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await link.channel_ready()
        except TimeoutError:
            return False
        return True

    async def _ask(self, link: grpc.aio.Channel, devices: Collection[str]) -> tuple[set[str], str]:
        """Those of `devices` that the other shard has taken over, and why there is none."""
        asked = asyncio.Event()
        for device in devices:
            self._asking.setdefault(device, asked)
        try:
            response = await IngestStub(link).TakeOver(self._request(devices), timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            return set(), f"{error.code().name}: {error.details()}"
        return set(response.devices), "they are not in its assignment"

    def _answered(self, devices: Iterable[str]) -> None:
        for device in devices:
            if event := self._asking.pop(device, None):
                event.set()
