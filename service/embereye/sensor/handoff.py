"""Hand devices over to another shard: first it learns their watermarks, then their senders move.

A watermark says up to which sequence a device's readings were analysed here. With it, the new owner recognises a
reading as a duplicate if its acknowledgement from here was lost. A shard that is killed hands nothing over, so its
unacknowledged readings are analysed twice.

`Handoffs` runs one task per target shard. It offers the watermarks until the target, which learns its assignment on its
own, has taken the devices over. While a request is under way, senders of these devices wait, because the watermarks
must stay true until it is answered.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import grpc

from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.tasks import Tasks, first_of
from embereye.shard.links import PeerAddress
from embereye.v1.ingest_pb2 import TakeOverRequest
from embereye.v1.ingest_pb2_grpc import IngestStub

logger = logging.getLogger(__name__)
CONNECT_SECONDS = 2.0  # to reach the other shard
ANSWER_SECONDS = 0.5  # for its answer; senders of the devices wait meanwhile
RETRY_SECONDS = 0.25  # between requests to a shard that does not own the devices yet; doubles, …
MAX_RETRY_SECONDS = 2.0  # … up to this


@dataclass(eq=False)
class Handoffs:
    """The devices that are being handed over, and those that are gone.

    `dial(target)` makes a channel to another shard, `request(devices)` makes the request with their watermarks, and
    `on_gone(devices)` is called once another shard has taken them over.
    """

    request: Callable[[Collection[str]], TakeOverRequest]
    on_gone: Callable[[Collection[str]], None]
    dial: Callable[[PeerAddress], grpc.aio.Channel]
    connect_seconds: float = CONNECT_SECONDS
    retry_seconds: float = RETRY_SECONDS
    _targets: dict[str, PeerAddress] = field(default_factory=dict, init=False)  # by device
    _waiting: set[str] = field(default_factory=set, init=False)  # those of them that are not taken over yet
    _gone: set[str] = field(default_factory=set, init=False)
    # device → event, set once the request under way is answered
    _asking: dict[str, asyncio.Event] = field(default_factory=dict, init=False)
    # set, and replaced, when there are more devices to hand over
    _added: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _tasks: Tasks = field(default_factory=Tasks, init=False)
    _offers: dict[PeerAddress, asyncio.Task[None]] = field(default_factory=dict, init=False)  # by target

    def __len__(self) -> int:
        return len(self._waiting)

    def update(self, targets: Mapping[str, PeerAddress], owned: Collection[str]) -> None:
        """Hand over exactly `targets` (by device); each device has a watermark.

        Senders of devices in `owned`, which this shard still owns, are served; other senders wait for the first answer.
        """
        for device in [device for device, target in self._targets.items() if targets.get(device) != target]:
            del self._targets[device]
            self._waiting.discard(device)
            self._release_waiters([device])
        self._gone &= targets.keys()
        asked = asyncio.Event()
        for device in targets.keys() - self._targets.keys():
            self._targets[device] = targets[device]
            self._waiting.add(device)
            self._gone.discard(device)
            if device not in owned:
                self._asking[device] = asked
            self._added.set()
        if self._added.is_set():
            self._added = asyncio.Event()
        for target in {self._targets[device] for device in self._waiting}:
            if target not in self._offers:
                self._offers[target] = self._tasks.start(self._offer(target), name=f"hand-off-{target.shard}")

    def is_gone(self, device: str) -> bool:
        """True if another shard analyses the device's readings now."""
        return device in self._gone

    def give_up(self, devices: Collection[str]) -> None:
        """Analyse nothing more of `devices`, even if no shard has taken them over."""
        self._gone.update(devices)
        self._waiting.difference_update(devices)

    async def wait_until_answered(self, devices: Iterable[str]) -> None:
        """Wait while a request with watermarks of `devices` is under way: they must stay true until it is answered."""
        for event in [self._asking[device] for device in devices if device in self._asking]:
            await event.wait()

    async def wait_until_gone(self, devices: Collection[str], timeout: float) -> None:
        """Wait until all of `devices` are gone or not to be handed over, at most `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._waiting.isdisjoint(devices):
                    await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Stop all offers; senders that wait for an answer continue without one."""
        try:
            await self._tasks.stop()
        finally:
            self._release_waiters(list(self._asking))

    async def _offer(self, target: PeerAddress) -> None:
        link: grpc.aio.Channel | None = None
        pause, refused = self.retry_seconds, Condition(logger, begin=logging.INFO)
        try:
            while devices := self._bound_for(target):
                added = self._added
                link = link or self.dial(target)
                if await self._reachable(link):
                    taken, refusal = await self._ask(link, devices)
                else:
                    taken, refusal = set(), "it cannot be reached"
                    # A channel retries an unresolved name after up to two minutes; a new channel resolves it at once.
                    await link.close(None)
                    link = None
                taken &= set(self._bound_for(target))  # the assignment may have changed meanwhile
                self._gone |= taken
                self._waiting -= taken
                self._release_waiters(devices)
                self.on_gone(taken)
                if taken:
                    continue
                sentence = "hand-over of %d devices to %s: not taken over yet: %s"
                refused.fail(refusal, sentence, len(devices), target.shard, refusal)
                await first_of(added.wait(), timeout=pause)
                pause = min(2 * pause, MAX_RETRY_SECONDS)
        finally:
            self._offers.pop(target, None)
            self._release_waiters(self._bound_for(target))  # no answer will come
            if link is not None:
                await link.close(None)

    def _bound_for(self, target: PeerAddress) -> list[str]:
        return [device for device in self._waiting if self._targets[device] == target]

    async def _reachable(self, link: grpc.aio.Channel) -> bool:
        try:
            async with asyncio.timeout(self.connect_seconds):
                await link.channel_ready()
        except TimeoutError:
            return False
        return True

    async def _ask(self, link: grpc.aio.Channel, devices: Collection[str]) -> tuple[set[str], str]:
        """Request the take-over of `devices`; return those that were taken over, and the reason if none were."""
        asked = asyncio.Event()
        for device in devices:
            self._asking.setdefault(device, asked)
        try:
            response = await IngestStub(link).TakeOver(self.request(devices), timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            return set(), reason_of(error)
        return set(response.devices), "the devices are not in its assignment"

    def _release_waiters(self, devices: Iterable[str]) -> None:
        for device in devices:
            if event := self._asking.pop(device, None):
                event.set()
