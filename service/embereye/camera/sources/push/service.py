"""Frames pushed over gRPC: `Frames.Push`, with cumulative acknowledgements, rejections and hand-over."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc

from embereye.camera.scheduling.mailbox import Tally
from embereye.units import SECOND
from embereye.v1.frames_pb2 import FrameAck, PushRequest, PushResponse
from embereye.v1.frames_pb2_grpc import FramesServicer
from embereye.v1.ingest_pb2 import Drain, Rejected
from embereye.wire import radiometric

# What a stream may have on its way to us. Without a limit of our own, gRPC lets it grow to seconds of frames.
WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 128 * 1024))
ACK_PERIOD = 0.5  # seconds between acknowledgements of a stream: cumulative, and each costs as much as a small frame
GATHER = 0.02  # seconds from the first to the last of what is told at once
FINISH_PERIOD = 0.05  # seconds between looks at the last frames of a sender that has finished
TELL_AGAIN = 1.0  # seconds between two refusals of the same camera on one stream
FINISH_SECONDS = 1.0  # for the last frames of a sender that has finished
STRANGER_REST = 0.002  # seconds behind each frame on a stream of which none is ours
LOOK_AGAIN = 0.2  # seconds of a rest between looks whether it is still one: fire may be suspected meanwhile
SILENT_NS = 5 * SECOND  # of a camera after which its stream rests without regard to it
MAX_UNKNOWN = 1_000  # different unknown ids on one stream before it is ended


@dataclass(frozen=True)
class Verdict:
    """What became of a pushed frame: taken, rejected for `reason`, or to be sent to `target` instead."""

    taken: bool
    reason: str = ""
    elsewhere: bool = False
    target: str = ""


@dataclass(eq=False)
class _Stream:
    """One sender's stream: what it sent, what it still has to be told."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)  # frames
    told: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # (sequence, analysed, shed) last told
    refusals: dict[str, float] = field(default_factory=dict)  # when a camera was refused last, loop time
    outgoing: list[PushResponse] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, response: PushResponse) -> None:
        self.outgoing.append(response)
        self.wake.set()

    @property
    def pending(self) -> bool:
        """Whether frames of this stream still wait: their acknowledgement changes without a new frame."""
        return any(
            count > self.tallies[camera].analysed + self.tallies[camera].shed for camera, count in self.received.items()
        )

    def rest(self, now_ns: int) -> float:
        """Seconds in which no camera on this stream has a frame that is wanted."""
        wanted = [tally.wanted_ns for tally in self.tallies.values() if now_ns - tally.heard_ns < SILENT_NS]
        return (min(wanted, default=now_ns) - now_ns) / SECOND

    def responses(self) -> list[PushResponse]:
        """All that the sender has not been told yet."""
        outgoing, self.outgoing = self.outgoing, []
        return [*outgoing, *self.acknowledgements()]

    def acknowledgements(self) -> list[PushResponse]:
        acks = []
        for camera, sequence in self.sequences.items():
            tally = self.tallies[camera]
            state = (sequence, tally.analysed, tally.shed)
            if self.told.get(camera) != state:
                self.told[camera] = state
                ack = FrameAck(camera=camera, sequence=sequence, analysed=tally.analysed, shed=tally.shed)
                acks.append(PushResponse(ack=ack))
        return acks


class PushService(FramesServicer):
    """Takes streams of frames; `take(camera, image, time_ns, tally)` decides about each frame."""

    def __init__(self, take: Callable[[str, bytes, int, Tally], Verdict]) -> None:
        self._take = take
        self._streams: set[_Stream] = set()

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    def drain(self, targets: dict[str, str] | None, reason: str) -> None:
        """Tell senders to go elsewhere: `targets` maps cameras to host:port; None: everything, anywhere."""
        for stream in self._streams:
            if targets is None:
                stream.say(PushResponse(drain=Drain(reason=reason)))
                continue
            for target in sorted({targets[camera] for camera in stream.sequences if camera in targets}):
                cameras = sorted(camera for camera in stream.sequences if targets.get(camera) == target)
                stream.say(PushResponse(drain=Drain(target=target, devices=cameras, reason=reason)))

    def forget(self, cameras: Iterable[str]) -> None:
        """Acknowledge `cameras` once more, then no longer: they are not ours any more."""
        gone = set(cameras)
        for stream in self._streams:
            for camera in gone & stream.sequences.keys():
                for response in stream.acknowledgements():
                    stream.say(response)
                for known in (stream.sequences, stream.tallies, stream.received, stream.told):
                    known.pop(camera, None)

    async def Push(
        self,
        request_iterator: AsyncIterator[PushRequest],
        context: "grpc.aio.ServicerContext[PushRequest, PushResponse]",
    ) -> AsyncIterator[PushResponse]:
        """Serve one sender."""
        stream = _Stream()
        self._streams.add(stream)
        reader = asyncio.get_running_loop().create_task(self._read(stream, context), name="push-read")
        reader.add_done_callback(lambda _: stream.wake.set())
        try:
            while not reader.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ACK_PERIOD):
                        await stream.wake.wait()
                        await asyncio.sleep(GATHER)  # a sender of many cameras is told of all of them at once
                stream.wake.clear()
                for response in stream.responses():
                    yield response
            if not await reader:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "too many unknown cameras on one stream")
            # A sender that has finished still learns what became of its last frames.
            for _ in range(int(FINISH_SECONDS / FINISH_PERIOD)):
                if not stream.pending:
                    break
                await asyncio.sleep(FINISH_PERIOD)
            for response in stream.responses():
                yield response
        finally:
            self._streams.discard(stream)
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader

    async def _read(self, stream: _Stream, context: "grpc.aio.ServicerContext[PushRequest, PushResponse]") -> bool:
        """Take every frame of the sender; False where it has to be sent away.

        While no frame is wanted none is read: the connection's small window fills, and the sender has to let frames go
        instead of us.
        """
        # The iterator of requests would keep the latest one, a picture for each camera, while it waits for the next.
        while True:
            request: Any = await context.read()
            if request is grpc.aio.EOF:
                return True
            taken = self._receive(stream, request)
            del request
            if not taken:
                return False
            if not stream.tallies:
                await asyncio.sleep(STRANGER_REST)
            while (rest := stream.rest(time.time_ns())) > 0:
                await asyncio.sleep(min(rest, LOOK_AGAIN))

    def _receive(self, stream: _Stream, request: PushRequest) -> bool:
        camera = request.camera
        tally = stream.tallies.get(camera) or Tally()
        image = request.image
        if request.HasField("raw"):
            image = radiometric.wrap(request.raw.width, request.raw.height, image)
        verdict = self._take(camera, image, request.time_ns, tally)
        if verdict.taken:
            stream.tallies[camera] = tally
            stream.sequences[camera] = max(request.sequence, stream.sequences.get(camera, 0))
            stream.received[camera] = stream.received.get(camera, 0) + 1
            if not verdict.reason:
                return True
        now = asyncio.get_running_loop().time()
        if now - stream.refusals.get(camera, -TELL_AGAIN) < TELL_AGAIN:
            return True
        if len(stream.refusals) >= MAX_UNKNOWN and camera not in stream.refusals:
            return False
        stream.refusals[camera] = now
        if verdict.elsewhere:
            stream.say(PushResponse(drain=Drain(target=verdict.target, devices=[camera], reason=verdict.reason)))
        else:
            stream.say(PushResponse(rejected=Rejected(devices=[camera], reason=verdict.reason)))
        return True
