"""Deliver clips from the shard's disk to the hub, until the hub confirms each.

The recorder owns the spool and its thread; `Delivery` reads clips through it. `wake` starts a pass over all waiting
clips, the oldest first. For each, it asks the hub how much of the clip it has, sends the rest in chunks, and only then
removes the clip from the spool. If the hub or the disk fails, the pass ends, and the next one follows after a pause.
A clip that the hub will never accept is counted and removed, too.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import grpc

from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation
from embereye.process.timing.backoff import Backoff
from embereye.shard.clips.spool import SpoolFolder
from embereye.shard.links import Links
from embereye.v1.clips_pb2 import Clip, ClipChunk
from embereye.v1.clips_pb2_grpc import ClipsStub

if TYPE_CHECKING:
    from embereye.v1.clips_pb2_grpc import ClipsAsyncStub

logger = logging.getLogger(__name__)
R = TypeVar("R")

CHUNK = 256 * 1024  # bytes of one message; gRPC refuses more than 4 MB
ANSWER_SECONDS = 5.0  # for the hub to say which part of a clip it has
DELIVER_SECONDS = 120.0  # for one clip; the next attempt continues where this one stopped
ATTEMPTS = 5  # for a clip whose content does not match its SHA-256; then its file is damaged


class SpoolThread(Protocol):
    """The owner of a spool and of its thread."""

    async def run(self, work: Callable[[SpoolFolder], R]) -> R:
        """Run `work(spool)` on the spool's thread and return its result. Cancelling this does not stop the work."""


class Delivery:
    """Delivers the clips in the recorder's spool; call `wake` after adding one. Use it on the event loop."""

    def __init__(self, links: Links, recorder: SpoolThread) -> None:
        self._links = links
        self._recorder = recorder
        self._more = asyncio.Event()
        self.waiting = 0  # clips
        self.delivered = 0  # clips
        self.refused = 0  # clips that the hub will never accept
        self._failed = 0  # attempts since the hub was last reached
        self._aborted: Counter[str] = Counter()  # attempts that the hub aborted, by SHA-256
        self._done: set[str] = set()  # delivered or refused clips that are not removed yet, by SHA-256

    def wake(self) -> None:
        """Note that there may be a clip to deliver."""
        self.waiting = self.waiting or 1  # until the spool is read
        self._more.set()

    async def run(self) -> None:
        """Deliver until cancelled, the oldest clip first; an interrupted delivery is resumed later."""
        backoff, failing = Backoff(floor=0.5, cap=30.0), Condition(logger)
        while True:
            self._more.clear()
            try:
                clips = self._undelivered(await self._recorder.run(SpoolFolder.waiting))
                self.waiting = len(clips)
                reason = await self._deliver_all(clips) if clips else ""
            except (OSError, UnrequestedCancellationError) as error:
                reason = f"the shard's disk: {error}" if isinstance(error, OSError) else str(error)
            if reason:
                sentence = "hub %s: %d clips wait: %s; trying again"
                failing.fail(reason, sentence, self._links.hub_address, self.waiting, reason)
                await asyncio.sleep(backoff.next())
            else:
                failing.clear()
                backoff.reset()
                await self._more.wait()

    def _undelivered(self, clips: list[Clip]) -> list[Clip]:
        """The undelivered ones of `clips`, which are all on the disk; forget the state of clips that are gone."""
        present = {clip.sha256 for clip in clips}
        self._done &= present
        for name in self._aborted.keys() - (present - self._done):
            del self._aborted[name]
        return [clip for clip in clips if clip.sha256 not in self._done]

    async def _deliver_all(self, clips: list[Clip]) -> str:
        """Deliver `clips`; return why that stopped early, or ''."""
        async with self._links.hub(self._failed) as link:
            stub = ClipsStub(link)
            for clip in clips:
                try:
                    with no_stray_cancellation("a delivery"):
                        await self._deliver(stub, clip)
                except grpc.aio.AioRpcError as error:
                    if not self._is_hopeless(clip, error):
                        self._failed += 1
                        return reason_of(error)
                    self.refused += 1
                    logger.warning("clip %s of %s is refused: %s", clip.sha256[:12], clip.device, error.details())
                else:
                    self.delivered += 1
                self.waiting -= 1
                self._done.add(clip.sha256)  # if the disk cannot be written, its file stays but is not delivered again
                await self._recorder.run(partial(SpoolFolder.forget, about=clip))
                self._done.discard(clip.sha256)
        return ""

    def _is_hopeless(self, clip: Clip, error: grpc.aio.AioRpcError) -> bool:
        if error.code() == grpc.StatusCode.ABORTED:
            self._aborted[clip.sha256] += 1
            return self._aborted[clip.sha256] >= ATTEMPTS
        return error.code() == grpc.StatusCode.INVALID_ARGUMENT

    async def _deliver(self, stub: "ClipsAsyncStub", clip: Clip) -> None:
        progress = await stub.Held(clip, timeout=ANSWER_SECONDS)
        self._failed = 0
        if progress.whole:
            return
        await stub.Deliver(self._chunks(clip, progress.bytes), timeout=DELIVER_SECONDS)

    async def _chunks(self, clip: Clip, offset: int) -> AsyncIterator[ClipChunk]:
        yield ClipChunk(clip=clip, offset=offset)
        while True:
            try:
                data = await self._recorder.run(partial(_read, clip, offset))
            except OSError as error:
                # End the stream early, so that the hub aborts it and it is retried; an exception would cancel the call.
                logger.warning("clip %s of %s cannot be read: %s", clip.sha256[:12], clip.device, error)
                return
            if not data:
                return
            yield ClipChunk(offset=offset, data=data)
            offset += len(data)


def _read(clip: Clip, offset: int, spool: SpoolFolder) -> bytes:
    try:
        with spool.path(clip).open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK)
    except FileNotFoundError:
        return b""  # dropped meanwhile to make room: the hub aborts it, and it is not retried
