"""Devices that go to another shard: it is told up to where their readings were taken here, then their senders are.

So a reading that was taken here, and whose acknowledgement got lost, counts as a duplicate there and is not analysed
twice. A shard that is killed tells nobody: what it had analysed and not acknowledged is analysed again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import grpc

from embereye.process.grpc_server import channel
from embereye.process.tasks import Tasks
from embereye.v1.ingest_pb2 import TakeOverRequest
from embereye.v1.ingest_pb2_grpc import IngestStub

logger = logging.getLogger(__name__)
CONNECT_SECONDS = 2.0  # for the other shard to be reached
ANSWER_SECONDS = 0.5  # for it to answer; senders of the devices wait so long
RETRY_SECONDS = 0.25  # until a shard that does not own the devices yet is asked again
MAX_RETRY_SECONDS = 2.0


class Handoffs:
    """The devices that are on their way, and those that have gone.

    `request(devices)` says up to where their readings were taken; `gone(devices)` is called once another shard goes on.
    """

    def __init__(
        self, request: Callable[[Collection[str]], TakeOverRequest], gone: Callable[[Collection[str]], None]
    ) -> None:
        self._request = request
        self._on_gone = gone
        self._targets: dict[str, str] = {}  # device → host:port
        self._waiting: set[str] = set()  # of them, those whose shard does not go on with them yet
        self._gone: set[str] = set()
        self._asking: dict[str, asyncio.Event] = {}  # device → set once the question of the moment is answered
        self._tasks = Tasks()
        self._offers: dict[str, asyncio.Task[None]] = {}  # by target

    def __len__(self) -> int:
        return len(self._waiting)

    def update(self, targets: Mapping[str, str], ours: Collection[str]) -> None:
        """Let `targets` (device → host:port) go, each of which has a watermark, and nothing else.

        Senders of what is not ours any more wait for the first answer; what is still `ours` is taken meanwhile.
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
        for target in {self._targets[device] for device in self._waiting}:
            offer = self._offers.get(target)
            if offer is None or offer.done():
                self._offers[target] = self._tasks.start(self._offer(target), name=f"hand-off-{target}")

    def gone(self, device: str) -> bool:
        """Whether nothing is to be taken of it here."""
        return device in self._gone

    def let_go(self, devices: Collection[str]) -> None:
        """Take nothing more of `devices`, whatever another shard says."""
        self._gone.update(devices)
        self._waiting.difference_update(devices)

    async def wait_until_answered(self, devices: Iterable[str]) -> None:
        """Wait while another shard is being told of any of `devices`: what it is told must stay true."""
        for event in [self._asking[device] for device in devices if device in self._asking]:
            await event.wait()

    async def wait_until_gone(self, devices: Collection[str], timeout: float) -> None:
        """Wait until none of `devices` is on its way any more, at most `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._waiting.isdisjoint(devices):
                    await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Offer nothing any more; whoever waits for an answer goes on without one."""
        await self._tasks.stop()
        self._answered(list(self._asking))

    async def _offer(self, target: str) -> None:
        link = channel(target)
        pause = RETRY_SECONDS
        told = ""
        try:
            while devices := self._bound_for(target):
                if await self._reachable(link):
                    taken, refusal = await self._ask(link, devices)
                else:
                    taken, refusal = set(), "it cannot be reached"
                taken &= set(self._bound_for(target))  # the assignment may have changed meanwhile
                self._gone |= taken
                self._waiting -= taken
                self._answered(devices)
                self._on_gone(taken)
                if taken:
                    continue
                if refusal != told:
                    logger.info("%s does not go on with %d devices yet: %s", target, len(devices), refusal)
                    told = refusal
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY_SECONDS)
        finally:
            self._answered(self._bound_for(target))  # nobody may wait for an answer that will not come
            await link.close(None)

    def _bound_for(self, target: str) -> list[str]:
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
        """Those of `devices` that the other shard goes on with, and why there is none."""
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
