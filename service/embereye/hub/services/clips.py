"""The Clips service: shards deliver clips, people list and fetch them.

A shard asks how much of a clip is stored, and sends the rest in chunks from there, so that an interrupted clip
continues. `ClipStore` verifies the digest at the end. A lock for each clip serialises its deliveries, and a shard
delivers clips of its fleet only. `Storing` serves other programs.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from weakref import WeakValueDictionary

import grpc

from embereye.hub.clips.store import ClipRefusedError, ClipStore
from embereye.hub.hub import Hub
from embereye.hub.refusals import ForbiddenError, UnknownNameError
from embereye.hub.services.statuses import abort_on_error, end_with_status
from embereye.hub.services.store import Part, Storing
from embereye.process.identity.guard import caller
from embereye.v1.clips_pb2 import (
    Clip,
    ClipChunk,
    FetchClipRequest,
    HeldResponse,
    ListClipsRequest,
    ListClipsResponse,
    StoreRequest,
    StoreResponse,
)
from embereye.v1.clips_pb2_grpc import ClipsServicer

CHUNK = 256 * 1024  # bytes
DEFAULT_LIST = 100
MAX_LIST = 1_000

AnyContext = grpc.aio.ServicerContext[object, object]


@end_with_status
class ClipsService(ClipsServicer):
    """Serves any number of shards and people."""

    def __init__(self, hub: Hub, clips: ClipStore) -> None:
        self._hub = hub
        self._clips = clips
        self._arriving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def Held(self, request: Clip, context: AnyContext) -> HeldResponse:
        """Return how much of a clip is stored."""
        _check_owner(request, context)
        size, whole = await self._clips.upload_progress(request)
        return HeldResponse(bytes=size, whole=whole)

    async def Deliver(self, request_iterator: AsyncIterator[ClipChunk], context: AnyContext) -> HeldResponse:
        """Receive one clip."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first chunk must name its clip")
        clip = Clip()
        clip.CopyFrom(first.clip)
        _check_owner(clip, context)
        lock = self._arriving.setdefault(clip.sha256, asyncio.Lock())
        try:
            async with lock:
                await self._receive_clip(clip, first, request_iterator)
        except ClipRefusedError as error:
            # The shard continues from the stored size, so an interrupted clip arrives after all.
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        return HeldResponse(bytes=clip.bytes, whole=True)

    async def _receive_clip(self, clip: Clip, first: ClipChunk, rest: AsyncIterator[ClipChunk]) -> None:
        if (await self._clips.upload_progress(clip))[1]:
            return
        if first.data:
            await self._clips.write(clip, first.offset, first.data)
        async for chunk in rest:
            await self._clips.write(clip, chunk.offset, chunk.data)
        size, _ = await self._clips.upload_progress(clip)
        if size != clip.bytes:
            raise ClipRefusedError(f"the call ended after {size} of {clip.bytes} bytes")
        await self._clips.complete(clip)

    async def Store(
        self, request_iterator: AsyncIterator[StoreRequest], context: AnyContext
    ) -> AsyncIterator[StoreResponse]:
        """Store stills and clips of other programs."""
        storing = Storing(self._clips)
        async for response in storing.responses(Part(request, request.data) async for request in request_iterator):
            yield response

    async def List(self, request: ListClipsRequest, context: AnyContext) -> ListClipsResponse:
        """List the clips of an alarm, or the newest of all."""
        limit = min(request.limit or DEFAULT_LIST, MAX_LIST)
        if not request.alarm:
            return ListClipsResponse(clips=await self._clips.newest(limit))
        episodes = await self._hub.history.episodes(request.alarm)
        return ListClipsResponse(clips=(await self._clips.of_episodes(episodes))[:limit])

    async def Fetch(self, request: FetchClipRequest, context: AnyContext) -> AsyncIterator[ClipChunk]:
        """Send one clip's content."""
        async with abort_on_error(context):
            clip = await self._clips.find(request.sha256)
            if clip is None:
                raise UnknownNameError(f'there is no clip "{request.sha256[:80]}". `embereye alarms clips` lists all.')
        path, offset = self._clips.path(clip), request.offset
        try:
            while offset < clip.bytes and (data := await asyncio.to_thread(_part, path, offset)):
                yield ClipChunk(clip=clip if offset == request.offset else None, offset=offset, data=data)
                offset += len(data)
        except FileNotFoundError:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"clip {clip.sha256[:12]} is gone from the hub's disk")


def _check_owner(clip: Clip, context: AnyContext) -> None:
    """Raise ForbiddenError for a clip of a fleet that the calling shard does not belong to."""
    who = caller(context)
    if who is not None and clip.fleet != who.fleet:
        raise ForbiddenError(
            f"{who} of {who.fleet} delivers a clip of {clip.fleet[:300]}. A shard delivers clips of its fleet only."
        )


def _part(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK)
