"""Clips/Store: stills and clips that programs keep at the hub, those that wait together made durable together."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from embereye.hub.access.roles import CALLER
from embereye.hub.storage.clip_store import ClipRefusedError, ClipStore, NoRoomError
from embereye.process.tasks import beside
from embereye.v1.clips_pb2 import Clip, StoreRequest, StoreResponse

STORE_BYTES = 16 * 1024 * 1024  # of one still or clip
WAITING_BYTES = 8 * 1024 * 1024  # of one client, from which on it is not read
TOGETHER = 64  # that are made durable together


@dataclass(frozen=True)
class _Waiting:
    clip: Clip
    offset: int
    data: bytes
    begins: bool

    @property
    def whole(self) -> bool:
        """Whether the message has all of the content."""
        return self.begins and not self.offset and 0 < len(self.data) == self.clip.bytes


class Storing:
    """One client's requests, in order."""

    def __init__(self, clips: ClipStore) -> None:
        self._clips = clips
        self._who = CALLER.get().name
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._more = asyncio.Event()
        self._less = asyncio.Event()
        self._over = False
        self._skipped = ""  # the one whose further data is of no use: it is here already, or was refused

    async def responses(self, requests: AsyncIterator[StoreRequest]) -> AsyncIterator[StoreResponse]:
        """An answer to each that begins, once it is whole; to a question at once."""
        async with beside(self._read(requests), name="store-read"):
            while True:
                while not self._waiting and not self._over:
                    self._more.clear()
                    await self._more.wait()
                if not self._waiting:
                    return
                batch = self._together()
                for response in await (self._store(batch) if batch[0].whole else self._step(batch[0])):
                    yield response

    async def _read(self, requests: AsyncIterator[StoreRequest]) -> None:
        clip = Clip()
        try:
            async for request in requests:
                begins = request.HasField("clip")
                if begins:
                    clip = Clip()
                    clip.CopyFrom(request.clip)
                    clip.stored_by = self._who
                self._waiting.append(_Waiting(clip, request.offset, request.data, begins))
                self._bytes += len(request.data)
                self._more.set()
                while self._bytes > WAITING_BYTES:
                    self._less.clear()
                    await self._less.wait()
        finally:
            self._over = True
            self._more.set()

    def _together(self) -> list[_Waiting]:
        """The next one, and of those that are whole all that follow it."""
        count = 1
        if self._waiting[0].whole:
            while count < min(len(self._waiting), TOGETHER) and self._waiting[count].whole:
                count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= sum(len(one.data) for one in batch)
        self._less.set()
        return batch

    async def _store(self, batch: list[_Waiting]) -> list[StoreResponse]:
        try:
            found = await self._clips.store([(one.clip, one.data) for one in batch])
        except NoRoomError as error:
            return [_refused(one.clip, error) for one in batch]
        return [
            _refused(one.clip, why) if why else StoreResponse(sha256=one.clip.sha256, bytes=one.clip.bytes, whole=True)
            for one, why in zip(batch, found, strict=True)
        ]

    async def _step(self, one: _Waiting) -> list[StoreResponse]:
        """A question, or a part of one that comes in parts."""
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
            held, whole = await self._clips.held(clip)
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
