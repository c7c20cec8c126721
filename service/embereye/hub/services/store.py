"""Clips/Store: stills and clips that programs keep at the hub, those that wait together made durable together."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from embereye.hub.access.roles import CALLER
from embereye.hub.storage.clip_store import ClipRefusedError, ClipStore, NoRoomError
from embereye.process.tasks import Tasks, beside
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse
from embereye.wire.delimited import Buffer, Buffers
from embereye.wire.fields import split_field

STORE_BYTES = 16 * 1024 * 1024  # of one still or clip
WAITING_BYTES = 8 * 1024 * 1024  # of one client, from which on it is not read
TOGETHER = 64  # that are made durable together
PART_BYTES = 1024  # of memory that a part takes besides its data
UNDER_WAY = 4  # times that: some are received, others checked and written, and others wait for the disk


@dataclass(frozen=True)
class Part:
    """A request whose data is beside it."""

    request: StoreRequest
    data: Buffer


def part_of(message: Buffer) -> Part:
    """The part that a StoreRequest's bytes are, its data left where it is. DecodeError: they are none."""
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
        """Whether the message has all of the content."""
        return self.begins and not self.offset and 0 < len(self.data) == self.clip.bytes


class Storing:
    """One client's requests, in order."""

    def __init__(self, clips: ClipStore, buffers: Buffers | None = None) -> None:
        """`buffers` has the memory of what comes, where that is to be put back."""
        self._clips = clips
        self._buffers = buffers
        self._who = CALLER.get().name
        self._waiting: deque[_Waiting] = deque()
        self._under_way: deque[asyncio.Task[list[StoreResponse]]] = deque()
        self._bytes = 0  # of what waits and is under way
        self._more = asyncio.Event()
        self._less = asyncio.Event()
        self._over = False
        self._skipped = ""  # the one whose further data is of no use: it is here already, or was refused

    async def responses(self, parts: AsyncIterator[Part]) -> AsyncIterator[StoreResponse]:
        """An answer to each that begins, once it is whole; to a question at once."""
        async with Tasks() as tasks, beside(self._read(parts), name="store-read"):
            while True:
                while self._waiting and self._waiting[0].whole and len(self._under_way) < UNDER_WAY:
                    task = tasks.start(self._store(self._together()), name="store-batch")
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

    def _together(self) -> list[_Waiting]:
        """Of those that are whole the next ones."""
        batch = [self._waiting.popleft()]
        while len(batch) < TOGETHER and self._waiting and self._waiting[0].whole:
            batch.append(self._waiting.popleft())
        return batch

    def _done_with(self, one: _Waiting) -> None:
        """Nothing reads its data any more. Not told of what is broken off: a thread may read that still."""
        self._bytes -= len(one.data) + PART_BYTES
        self._less.set()
        if self._buffers is not None:
            self._buffers.put_back(one.data)

    async def _store(self, batch: list[_Waiting]) -> list[StoreResponse]:
        try:
            found = await self._clips.store([(one.clip, one.data) for one in batch])
        except NoRoomError as error:
            found = [error] * len(batch)
        for one in batch:
            self._done_with(one)
        return [
            _refused(one.clip, why) if why else StoreResponse(sha256=one.clip.sha256, bytes=one.clip.bytes, whole=True)
            for one, why in zip(batch, found, strict=True)
        ]

    async def _step(self, one: _Waiting) -> list[StoreResponse]:
        """A question, or a part of one that comes in parts."""
        answered = await self._go_on(one)
        self._done_with(one)
        return answered

    async def _go_on(self, one: _Waiting) -> list[StoreResponse]:
        clip = one.clip
        if one.begins:
            self._skipped = ""
        elif self._skipped == clip.sha256:
            return []
        try:
            if not one.begins and not clip.sha256:
                raise ClipRefusedError("the first message must have a clip")
            if clip.bytes > STORE_BYTES:
                raise ClipRefusedError(f"bytes: {clip.bytes} is more than {STORE_BYTES}")
            held, whole = await self._clips.upload_progress(clip)
            if whole or not one.data:
                self._skipped = clip.sha256 if whole else ""
                return [StoreResponse(sha256=clip.sha256, bytes=held, whole=whole)]
            await self._clips.write(clip, one.offset, one.data)
            if one.offset + len(one.data) < clip.bytes:
                return []
            await self._clips.complete(clip)
        except (ClipRefusedError, NoRoomError) as error:
            self._skipped = clip.sha256
            return [_refused(clip, error)]
        return [StoreResponse(sha256=clip.sha256, bytes=clip.bytes, whole=True)]


def _refused(clip: Clip, error: ClipRefusedError | NoRoomError) -> StoreResponse:
    return StoreResponse(sha256=clip.sha256, refused=str(error), retry=isinstance(error, NoRoomError))
