"""Frames pushed over gRPC: `Frames.Push`, with cumulative acknowledgements, rejections and hand-over.

Each stream has a reader and a writer. The reader admits frames and pauses while none is wanted, so that the sender, not
the shard, drops frames. The writer sends refusals, hand-overs and, twice a second, the changed acknowledgements.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc

from embereye.camera.scheduling.mailbox import Tally
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.shard.access import EVERYTHING, DeviceAccess, Grant
from embereye.units import SECOND
from embereye.v1.frames_pb2 import FrameAck, PushRequest, PushResponse
from embereye.v1.frames_pb2_grpc import FramesServicer
from embereye.v1.ingest_pb2 import Drain, Rejected
from embereye.wire import radiometric

# Bytes of a stream in flight. Without this limit gRPC lets it grow to seconds of frames.
WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 128 * 1024))
ACK_PERIOD = 0.5  # seconds between acknowledgements; they are cumulative, and each costs as much as a small frame
GATHER = 0.02  # seconds that a response waits for others to go out with it
FINISH_PERIOD = 0.05  # seconds between two checks of the last frames of a sender that has finished
REFUSAL_PERIOD = 1.0  # seconds between two refusals of the same camera on one stream
FINISH_SECONDS = 1.0  # for the last frames of a sender that has finished
STRANGER_PAUSE = 0.002  # seconds after each frame of a stream with none of our cameras
RECHECK_PERIOD = 0.2  # seconds between two checks during a pause, because a fire may be suspected meanwhile
SILENT_NS = 5 * SECOND  # without a frame of a camera, after which it no longer prevents pauses of its stream
MAX_UNKNOWN = 1_000  # different unknown ids on one stream before it is closed
MAX_NAME = 253  # characters of a camera's id on the wire; declared ids have 63 at most
MAX_RESPONSES = 1_000  # unread responses after which a sender's frames are no longer read
UNKNOWN = f"more than {MAX_UNKNOWN} unknown cameras on one stream, or one with more than {MAX_NAME} characters"


@dataclass(frozen=True)
class PushVerdict:
    """The decision about a pushed frame: accepted, rejected for `reason`, or to be sent to `target` instead."""

    accepted: bool
    reason: str = ""
    elsewhere: bool = False
    target: str = ""


@dataclass(eq=False)
class _Stream:
    """One sender's stream: the counts of its frames, and the responses to be sent."""

    grant: Grant = EVERYTHING
    tallies: dict[str, Tally] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)  # frames
    # (sequence, analysed, shed) as last sent
    acknowledged: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    refusals: dict[str, float] = field(default_factory=dict)  # loop time of each camera's latest refusal
    outgoing: list[PushResponse] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def queue_response(self, response: PushResponse) -> None:
        """Queue `response` and wake the writer."""
        self.outgoing.append(response)
        self.wake.set()

    async def wait_for_responses(self) -> None:
        """Wait until there are responses, at most ACK_PERIOD because acknowledgements may have changed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACK_PERIOD):
                await self.wake.wait()
                await asyncio.sleep(GATHER)  # a sender of many cameras gets all responses at once
        self.wake.clear()

    @property
    def has_pending(self) -> bool:
        """True if frames of this stream wait, so that acknowledgements may change without a new frame."""
        return any(
            count > self.tallies[camera].analysed + self.tallies[camera].shed for camera, count in self.received.items()
        )

    def pause(self, now_ns: int) -> float:
        """Seconds until a camera on this stream wants a frame; not positive: one is wanted now."""
        wanted = [tally.wanted_ns for tally in self.tallies.values() if now_ns - tally.heard_ns < SILENT_NS]
        return (min(wanted, default=now_ns) - now_ns) / SECOND

    def responses(self) -> list[PushResponse]:
        """Return all responses that have not been sent."""
        outgoing, self.outgoing = self.outgoing, []
        return [*outgoing, *self.acknowledgements()]

    def acknowledgements(self) -> list[PushResponse]:
        """Return an acknowledgement for every camera whose counts have changed."""
        acks = []
        for camera, sequence in self.sequences.items():
            tally = self.tallies[camera]
            state = (sequence, tally.analysed, tally.shed)
            if self.acknowledged.get(camera) != state:
                self.acknowledged[camera] = state
                ack = FrameAck(camera=camera, sequence=sequence, analysed=tally.analysed, shed=tally.shed)
                acks.append(PushResponse(ack=ack))
        return acks


class PushService(FramesServicer):
    """Serves streams of frames; `admit(camera, image, time_ns, tally)` decides about each frame."""

    def __init__(self, admit: Callable[[str, bytes, int, Tally], PushVerdict]) -> None:
        self._admit = admit
        self.access = DeviceAccess()
        self._streams: set[_Stream] = set()

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    def send_drain(self, targets: dict[str, str] | None, reason: str, successor: str = "") -> None:
        """Redirect senders: `targets` maps cameras to host:port; None sends all of them to `successor`."""
        for stream in self._streams:
            if targets is None:
                stream.queue_response(PushResponse(drain=Drain(target=successor, reason=reason)))
                continue
            for target in sorted({targets[camera] for camera in stream.sequences if camera in targets}):
                cameras = sorted(camera for camera in stream.sequences if targets.get(camera) == target)
                stream.queue_response(PushResponse(drain=Drain(target=target, devices=cameras, reason=reason)))

    def forget(self, cameras: Iterable[str]) -> None:
        """Acknowledge `cameras` a last time, because another shard owns them now."""
        gone = set(cameras)
        for stream in self._streams:
            for camera in gone & stream.sequences.keys():
                for response in stream.acknowledgements():
                    stream.queue_response(response)
                for known in (stream.sequences, stream.tallies, stream.received, stream.acknowledged):
                    known.pop(camera, None)

    # The stubs expect a generator, but gRPC would cancel it while one of its responses is being written.
    async def Push(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[PushRequest],
        context: "grpc.aio.ServicerContext[PushRequest, PushResponse]",
    ) -> None:
        """Serve one sender."""
        async with (
            self.access.admitted(context) as grant,
            contextlib.aclosing(self._serve(_Stream(grant=grant), context)) as responses,
        ):
            async for response in responses:
                await _write(context, response)

    async def _serve(
        self, stream: _Stream, context: "grpc.aio.ServicerContext[PushRequest, PushResponse]"
    ) -> AsyncGenerator[PushResponse]:
        self._streams.add(stream)
        try:
            async with Tasks() as tasks:
                reader = tasks.start(self._read_frames(stream, context), name="push-read")
                reader.add_done_callback(lambda _: stream.wake.set())
                while not reader.done():
                    await stream.wait_for_responses()
                    for response in stream.responses():
                        yield response
                if not await reader:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, UNKNOWN)
                # A sender that has finished still gets the acknowledgements of its last frames.
                for _ in range(int(FINISH_SECONDS / FINISH_PERIOD)):
                    if not stream.has_pending:
                        break
                    await asyncio.sleep(FINISH_PERIOD)
                for response in stream.responses():
                    yield response
        finally:
            self._streams.discard(stream)

    async def _read_frames(
        self, stream: _Stream, context: "grpc.aio.ServicerContext[PushRequest, PushResponse]"
    ) -> bool:
        """Read every frame of the sender. Returns False if the stream has to be closed.

        While no frame is wanted, none is read. The connection's small window fills, and the sender has to drop frames.
        """
        # An iterator of requests would retain the latest one, with its picture, while it waits for the next.
        while True:
            request: Any = await context.read()
            if request is grpc.aio.EOF:
                return True
            welcome = self._receive_frame(stream, request)
            del request
            if not welcome:
                return False
            if not stream.tallies:
                await asyncio.sleep(STRANGER_PAUSE)
            while (pause := stream.pause(now_ns())) > 0:
                await asyncio.sleep(min(pause, RECHECK_PERIOD))
            while len(stream.outgoing) > MAX_RESPONSES:
                await asyncio.sleep(RECHECK_PERIOD)

    def _receive_frame(self, stream: _Stream, request: PushRequest) -> bool:
        camera = request.camera
        if len(camera) > MAX_NAME:
            return False
        tally = stream.tallies.get(camera) or Tally()
        image = request.image
        if request.HasField("raw"):
            image = radiometric.wrap(request.raw.width, request.raw.height, image)
        if stream.grant.is_for(camera):
            verdict = self._admit(camera, image, request.time_ns, tally)
        else:
            verdict = PushVerdict(accepted=False, reason=f'its credentials allow only "{stream.grant.device}"')
        if verdict.accepted:
            stream.tallies[camera] = tally
            stream.sequences[camera] = max(request.sequence, stream.sequences.get(camera, 0))
            stream.received[camera] = stream.received.get(camera, 0) + 1
            if not verdict.reason:
                return True
        now = asyncio.get_running_loop().time()
        if now - stream.refusals.get(camera, -REFUSAL_PERIOD) < REFUSAL_PERIOD:
            return True
        if len(stream.refusals) >= MAX_UNKNOWN and camera not in stream.refusals:
            return False
        stream.refusals[camera] = now
        if verdict.elsewhere:
            stream.queue_response(
                PushResponse(drain=Drain(target=verdict.target, devices=[camera], reason=verdict.reason))
            )
        else:
            stream.queue_response(PushResponse(rejected=Rejected(devices=[camera], reason=verdict.reason)))
        return True


async def _write(context: "grpc.aio.ServicerContext[PushRequest, PushResponse]", response: PushResponse) -> None:
    """Write `response`; ignore a sender that has gone."""
    with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
        await context.write(response)
