"""Clips/Store: stores stills and clips of other programs; those that wait together become durable together.

A client sends clips without waiting for answers. One task reads them into a queue, up to WAITING_BYTES. Complete clips
at its front form a batch, which `ClipStore` makes durable in one step; up to UNDER_WAY batches are in progress at once.
A clip in several parts goes alone. Answers leave in the order of the requests.

The Clips service and the control add-on's associations each make one `Storing` for every client.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from embereye.hub.clips.store import ClipRefusedError, ClipStore, NoRoomError
from embereye.hub.roles import CALLER
from embereye.process.tasks import Tasks, beside
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse
from embereye.wire.delimited import Buffer, Buffers
from embereye.wire.fields import split_field

STORE_BYTES = 16 * 1024 * 1024  # of one still or clip
WAITING_BYTES = 8 * 1024 * 1024  # waiting data of one client from which on it is not read
TOGETHER = 64  # clips that become durable together
PART_BYTES = 1024  # memory of a part in addition to its data
UNDER_WAY = 4  # batches at once: some are received, others are checked and written, others wait for the disk


@dataclass(frozen=True)
class Part:
    """A request, and its data separately."""

    request: StoreRequest
    data: Buffer


def part_of(message: Buffer) -> Part:
    """Parse a StoreRequest's bytes; its data is not copied. DecodeError."""
    rest, data = split_field(message, StoreRequest.DATA_FIELD_NUMBER)
    return Part(StoreRequest.FromString(rest), data)


@dataclass(frozen=True)
class _Waiting:
    clip: Clip
    offset: int
    data: Buffer
    begins: bool

    @property
    def whole(self) -> bool:
        """True if the message has the complete content."""
        return self.begins and not self.offset and 0 < len(self.data) == self.clip.bytes


class Storing:
    """One client's requests, in order."""

    def __init__(self, clips: ClipStore, buffers: Buffers | None = None) -> None:
        """`buffers` own the memory of received data, if it has to be given back."""
        self._clips = clips
        self._buffers = buffers
        self._who = CALLER.get().name
        self._waiting: deque[_Waiting] = deque()
        self._under_way: deque[asyncio.Task[list[StoreResponse]]] = deque()
        self._bytes = 0  # of data that waits or is under way
        self._more = asyncio.Event()
        self._less = asyncio.Event()
        self._over = False
        self._skipped = ""  # digest of a clip whose further data is ignored: it is stored already, or was refused

    async def responses(self, parts: AsyncIterator[Part]) -> AsyncIterator[StoreResponse]:
        """Answer each clip once it is complete, and each question immediately."""
        async with Tasks() as tasks, beside(self._read(parts), name="store-read"):
            while True:
                while self._waiting and self._waiting[0].whole and len(self._under_way) < UNDER_WAY:
                    task = tasks.start(self._store(self._next_batch()), name="store-batch")
                    task.add_done_callback(lambda _: self._more.set())
                    self._under_way.append(task)
                if self._under_way:
                    answered = self._under_way.popleft().result() if self._under_way[0].done() else None
                elif self._waiting:
                    answered = await self._step(self._waiting.popleft())
                elif self._over:
                    return
                else:
                    answered = None
                if answered is None:
                    self._more.clear()
                    await self._more.wait()
                    continue
                for response in answered:
                    yield response

    async def _read(self, parts: AsyncIterator[Part]) -> None:
        clip = Clip()
        try:
            async for part in parts:
                request = part.request
                begins = request.HasField("clip")
                if begins:
                    clip = Clip()
                    clip.CopyFrom(request.clip)
                    clip.stored_by = self._who
                self._waiting.append(_Waiting(clip, request.offset, part.data, begins))
                self._bytes += len(part.data) + PART_BYTES
                self._more.set()
                while self._bytes > WAITING_BYTES:
                    self._less.clear()
                    await self._less.wait()
        finally:
            self._over = True
            self._more.set()

    def _next_batch(self) -> list[_Waiting]:
        """Take the next complete clips from the queue."""
        batch = [self._waiting.popleft()]
        while len(batch) < TOGETHER and self._waiting and self._waiting[0].whole:
            batch.append(self._waiting.popleft())
        return batch

    def _release(self, part: _Waiting) -> None:
        """Give back the memory of a part. Not called for an aborted batch: a thread may still read its data."""
        self._bytes -= len(part.data) + PART_BYTES
        self._less.set()
        if self._buffers is not None:
            self._buffers.put_back(part.data)

    async def _store(self, batch: list[_Waiting]) -> list[StoreResponse]:
        try:
            problems = await self._clips.store([(part.clip, part.data) for part in batch])
        except NoRoomError as error:
            problems = [error] * len(batch)
        for part in batch:
            self._release(part)
        return [
            _refused(part.clip, why)
            if why
            else StoreResponse(sha256=part.clip.sha256, bytes=part.clip.bytes, whole=True)
            for part, why in zip(batch, problems, strict=True)
        ]

    async def _step(self, part: _Waiting) -> list[StoreResponse]:
        """Handle a question, or one part of a clip."""
        answered = await self._answer(part)
        self._release(part)
        return answered

    async def _answer(self, part: _Waiting) -> list[StoreResponse]:
        clip = part.clip
        if part.begins:
            self._skipped = ""
        elif self._skipped == clip.sha256:
            return []
        try:
            if not part.begins and not clip.sha256:
                raise ClipRefusedError("the first message must have a clip")
            if clip.bytes > STORE_BYTES:
                raise ClipRefusedError(f"bytes: {clip.bytes} is more than {STORE_BYTES}")
            stored, whole = await self._clips.upload_progress(clip)
            if whole or not part.data:
                self._skipped = clip.sha256 if whole else ""
                return [StoreResponse(sha256=clip.sha256, bytes=stored, whole=whole)]
            await self._clips.write(clip, part.offset, part.data)
            if part.offset + len(part.data) < clip.bytes:
                return []
            await self._clips.complete(clip)
        except (ClipRefusedError, NoRoomError) as error:
            self._skipped = clip.sha256
            return [_refused(clip, error)]
        return [StoreResponse(sha256=clip.sha256, bytes=clip.bytes, whole=True)]


def _refused(clip: Clip, error: ClipRefusedError | NoRoomError) -> StoreResponse:
    return StoreResponse(sha256=clip.sha256, refused=str(error), retry=isinstance(error, NoRoomError))
