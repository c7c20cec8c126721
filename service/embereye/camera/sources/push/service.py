"""Frames pushed over gRPC: `Frames.Push`, with cumulative acknowledgements, rejections and hand-over."""

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

# How much of a stream may be on its way to us. Without a limit of our own, gRPC lets it grow to seconds of frames.
WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 128 * 1024))
ACK_PERIOD = 0.5  # seconds between acknowledgements of a stream: cumulative, and each costs as much as a small frame
GATHER = 0.02  # seconds that a response waits for others to be sent with it
FINISH_PERIOD = 0.05  # seconds between two checks of the last frames of a sender that has finished
REFUSAL_PERIOD = 1.0  # seconds between two refusals of the same camera on one stream
FINISH_SECONDS = 1.0  # for the last frames of a sender that has finished
STRANGER_PAUSE = 0.002  # seconds after each frame on a stream that carries none of our cameras
RECHECK_PERIOD = 0.2  # seconds of a pause between two checks whether it still holds: fire may be suspected meanwhile
SILENT_NS = 5 * SECOND  # without a frame of a camera, after which its stream pauses without regard to it
MAX_UNKNOWN = 1_000  # different unknown ids on one stream before it is ended
MAX_NAME = 253  # characters of a camera's id on the wire; declared ones have 63 at most
MOST_RESPONSES = 1_000  # that a sender leaves unread before it is read no further
UNKNOWN = f"more than {MAX_UNKNOWN} unknown cameras on one stream, or one with more than {MAX_NAME} characters"


@dataclass(frozen=True)
class PushVerdict:
    """What became of a pushed frame: accepted, rejected for `reason`, or to be sent to `target` instead."""

    accepted: bool
    reason: str = ""
    elsewhere: bool = False
    target: str = ""


@dataclass(eq=False)
class _Stream:
    """One sender's stream: what it sent, and what is still to be sent back."""

    grant: Grant = EVERYTHING
    tallies: dict[str, Tally] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)  # frames
    acknowledged: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # (sequence, analysed, shed) last sent
    refusals: dict[str, float] = field(default_factory=dict)  # when a camera was refused last, loop time
    outgoing: list[PushResponse] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def queue_response(self, response: PushResponse) -> None:
        """Send `response` as soon as the stream is written to."""
        self.outgoing.append(response)
        self.wake.set()

    async def wait_for_responses(self) -> None:
        """Wait until there are responses, or ACK_PERIOD for acknowledgements."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACK_PERIOD):
                await self.wake.wait()
                await asyncio.sleep(GATHER)  # a sender of many cameras gets the responses about all of them at once
        self.wake.clear()

    @property
    def pending(self) -> bool:
        """Whether frames of this stream still wait: their acknowledgement changes without a new frame."""
        return any(
            count > self.tallies[camera].analysed + self.tallies[camera].shed for camera, count in self.received.items()
        )

    def pause(self, now_ns: int) -> float:
        """Seconds in which no frame of any camera on this stream is wanted; not positive: one is wanted now."""
        wanted = [tally.wanted_ns for tally in self.tallies.values() if now_ns - tally.heard_ns < SILENT_NS]
        return (min(wanted, default=now_ns) - now_ns) / SECOND

    def responses(self) -> list[PushResponse]:
        """All that the sender does not know yet."""
        outgoing, self.outgoing = self.outgoing, []
        return [*outgoing, *self.acknowledgements()]

    def acknowledgements(self) -> list[PushResponse]:
        """An acknowledgement for every camera whose numbers have changed."""
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

    def __init__(
        self, admit: Callable[[str, bytes, int, Tally], PushVerdict], access: DeviceAccess | None = None
    ) -> None:
        self._admit = admit
        self._access = access or DeviceAccess()
        self._streams: set[_Stream] = set()

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    def send_drain(self, targets: dict[str, str] | None, reason: str, successor: str = "") -> None:
        """Tell senders to go elsewhere: `targets` maps cameras to host:port; None: everything, to `successor`."""
        for stream in self._streams:
            if targets is None:
                stream.queue_response(PushResponse(drain=Drain(target=successor, reason=reason)))
                continue
            for target in sorted({targets[camera] for camera in stream.sequences if camera in targets}):
                cameras = sorted(camera for camera in stream.sequences if targets.get(camera) == target)
                stream.queue_response(PushResponse(drain=Drain(target=target, devices=cameras, reason=reason)))

    def forget(self, cameras: Iterable[str]) -> None:
        """Acknowledge `cameras` a last time: they are another shard's now."""
        gone = set(cameras)
        for stream in self._streams:
            for camera in gone & stream.sequences.keys():
                for response in stream.acknowledgements():
                    stream.queue_response(response)
                for known in (stream.sequences, stream.tallies, stream.received, stream.acknowledged):
                    known.pop(camera, None)

    # The stubs ask for a generator, whose responses gRPC writes: it would be cancelled with one of them on its way.
    async def Push(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[PushRequest],
        context: "grpc.aio.ServicerContext[PushRequest, PushResponse]",
    ) -> None:
        """Serve one sender."""
        async with (
            self._access.admitted(context) as grant,
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
                # A sender that has finished still learns what became of its last frames.
                for _ in range(int(FINISH_SECONDS / FINISH_PERIOD)):
                    if not stream.pending:
                        break
                    await asyncio.sleep(FINISH_PERIOD)
                for response in stream.responses():
                    yield response
        finally:
            self._streams.discard(stream)

    async def _read_frames(
        self, stream: _Stream, context: "grpc.aio.ServicerContext[PushRequest, PushResponse]"
    ) -> bool:
        """Read every frame of the sender; False where it has to be sent away.

        While no frame is wanted none is read: the connection's small window fills, and it is the sender, not this
        shard, that has to drop frames.
        """
        # The iterator of requests would keep the latest one, a picture for each camera, while it waits for the next.
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
            while len(stream.outgoing) > MOST_RESPONSES:
                await asyncio.sleep(RECHECK_PERIOD)

    def _receive_frame(self, stream: _Stream, request: PushRequest) -> bool:
        camera = request.camera
        if len(camera) > MAX_NAME:
            return False
        tally = stream.tallies.get(camera) or Tally()
        image = request.image
        if request.HasField("raw"):
            image = radiometric.wrap(request.raw.width, request.raw.height, image)
        if stream.grant.permits(camera):
            verdict = self._admit(camera, image, request.time_ns, tally)
        else:
            verdict = PushVerdict(accepted=False, reason=f'what was shown speaks for "{stream.grant.device}" alone')
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
    """Write; the sender may have gone."""
    with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
        await context.write(response)
