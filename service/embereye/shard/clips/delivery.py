"""Delivers clips from the shard's disk to the hub, each until the hub confirms that it has it."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import grpc

from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation
from embereye.process.timing.backoff import Backoff
from embereye.shard.clips.spool import KeptSpool
from embereye.shard.links import Links
from embereye.v1.clips_pb2 import Clip, ClipChunk
from embereye.v1.clips_pb2_grpc import ClipsStub

if TYPE_CHECKING:
    from embereye.v1.clips_pb2_grpc import ClipsAsyncStub

logger = logging.getLogger(__name__)
R = TypeVar("R")

CHUNK = 256 * 1024  # bytes of one message; gRPC refuses more than 4 MB
ANSWER_SECONDS = 5.0  # for the hub to say what it has of a clip
DELIVER_SECONDS = 120.0  # for one clip; the next attempt continues where this one stopped
ATTEMPTS = 5  # for a clip whose content does not match its name when it arrives: after that, the disk has damaged it


class SpoolThread(Protocol):
    """Who has a spool, and the thread that it belongs to."""

    async def run(self, work: Callable[[KeptSpool], R]) -> R:
        """The result of `work(spool)`, run on the spool's own thread; cancelled, the work is done all the same."""
        ...


class Delivery:
    """`run` delivers what the recorder's spool holds; call `wake` when there may be more. Belongs to the event loop."""

    def __init__(self, links: Links, recorder: SpoolThread) -> None:
        self._links = links
        self._recorder = recorder
        self._more = asyncio.Event()
        self.waiting = 0  # clips
        self.delivered = 0  # clips
        self.refused = 0  # clips that the hub will never accept
        self._failed = 0  # attempts since the hub was reached
        self._aborted: Counter[str] = Counter()  # attempts, by SHA-256
        self._over: set[str] = set()  # clips that are dealt with, by SHA-256, and could not be removed

    def wake(self) -> None:
        """Note that there may be a clip to deliver."""
        self.waiting = self.waiting or 1  # until it is known
        self._more.set()

    async def run(self) -> None:
        """Deliver until cancelled, the oldest clip first; a delivery that is cut off is resumed later."""
        backoff, failing = Backoff(floor=0.5, cap=30.0), ""
        while True:
            self._more.clear()
            try:
                clips = self._open(await self._recorder.run(KeptSpool.waiting))
                self.waiting = len(clips)
                reason = await self._deliver_all(clips) if clips else ""
            except (OSError, UnrequestedCancellationError) as error:
                reason = f"the shard's disk: {error}" if isinstance(error, OSError) else str(error)
            if reason != failing and reason:
                logger.warning(
                    "clips wait for hub %s: %s; trying again, %d waiting", self._links.hub_address, reason, self.waiting
                )
            failing = reason
            if reason:
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                await self._more.wait()

    def _open(self, clips: list[Clip]) -> list[Clip]:
        """Those of `clips`, all that the disk has, that are to be delivered; what is known of others is forgotten."""
        here = {clip.sha256 for clip in clips}
        self._over &= here
        for name in self._aborted.keys() - (here - self._over):
            del self._aborted[name]
        return [clip for clip in clips if clip.sha256 not in self._over]

    async def _deliver_all(self, clips: list[Clip]) -> str:
        """Deliver `clips`; returns why that came to a stop, or ''."""
        async with self._links.hub(self._failed) as link:
            stub = ClipsStub(link)
            for clip in clips:
                try:
                    with no_stray_cancellation("a delivery"):
                        await self._deliver(stub, clip)
                except grpc.aio.AioRpcError as error:
                    if not self._hopeless(clip, error):
                        self._failed += 1
                        return f"{error.code().name}: {error.details()}"
                    self.refused += 1
                    logger.warning("clip %s of %s is refused: %s", clip.sha256[:12], clip.device, error.details())
                else:
                    self.delivered += 1
                self.waiting -= 1
                self._over.add(clip.sha256)  # on a disk that cannot be written it stays, and is not offered again
                await self._recorder.run(partial(_forget, clip))
                self._over.discard(clip.sha256)
        return ""

    def _hopeless(self, clip: Clip, error: grpc.aio.AioRpcError) -> bool:
        if error.code() == grpc.StatusCode.ABORTED:
            self._aborted[clip.sha256] += 1
            return self._aborted[clip.sha256] >= ATTEMPTS
        return error.code() == grpc.StatusCode.INVALID_ARGUMENT

    async def _deliver(self, stub: "ClipsAsyncStub", clip: Clip) -> None:
        held = await stub.Held(clip, timeout=ANSWER_SECONDS)
        self._failed = 0
        if held.whole:
            return
        await stub.Deliver(self._chunks(clip, held.bytes), timeout=DELIVER_SECONDS)

    async def _chunks(self, clip: Clip, offset: int) -> AsyncIterator[ClipChunk]:
        yield ClipChunk(clip=clip, offset=offset)
        while True:
            try:
                data = await self._recorder.run(partial(_read, clip, offset))
            except OSError as error:
                # The hub misses the end, and it is offered again: gRPC would call off all that is under way.
                logger.warning("clip %s of %s cannot be read: %s", clip.sha256[:12], clip.device, error)
                return
            if not data:
                return
            yield ClipChunk(offset=offset, data=data)
            offset += len(data)


def _read(clip: Clip, offset: int, spool: KeptSpool) -> bytes:
    try:
        with spool.path(clip).open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK)
    except FileNotFoundError:
        return b""  # dropped for newer ones meanwhile: the hub misses its end, and it is not offered again


def _forget(clip: Clip, spool: KeptSpool) -> None:
    spool.forget(clip)
