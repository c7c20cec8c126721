"""Decoder pool: decodes frames of many cameras in a few processes.

Cameras queue compressed frames in mailboxes. A fair queue picks the camera that has used the least decoding time. The
pool sends its frame to the decoder with the least queued work, as an order in shared memory, and reads replies from the
decoder's socket. Frames go out in batches of 3 ms, because consecutive work finds warm caches: one at a time costs half
as much again.

All frames of one video go to one decoder, which has the video's context: the stream is pinned. A pinned camera waits in
its decoder's queue, a camera that sends pictures in the common queue.

If a decoder crashes, a new one starts. The frame that crashed it is charged to its camera and counts as undecodable,
and the camera moves to a decoder process for isolated cameras. Other videos of the crashed decoder restart at a key
frame, and waiting pictures are sent again.

`DecoderPool` schedules; `supervisor` starts and replaces processes; `wire` packs orders and replies.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from embereye.camera.decode.image import NOT_DECODED, DecodeOrder, UndecodableError
from embereye.camera.decode.supervisor import DecoderProcess, Forker
from embereye.camera.decode.wire import FRAME_SECONDS, SLOT_BYTES, SLOTS, Forget, GarbledError, Order, Reply, Units
from embereye.camera.scheduling.fair_queue import FairQueue
from embereye.camera.scheduling.mailbox import Frame, Picture
from embereye.camera.scheduling.turn import QueuedCamera, Turn
from embereye.camera.scheduling.turn_queue import TurnQueue
from embereye.camera.scheduling.video_mailbox import VideoFrame
from embereye.process.tasks import first_of

logger = logging.getLogger(__name__)

CRASH_SECONDS = 1.0  # charged to a camera for a frame that crashes a decoder
START_SECONDS = 30.0  # for the first decoder to start: a cold machine reads OpenCV from disk
# Frames are dispatched, decoded and inspected in batches of a few milliseconds: consecutive work finds its code and
# data in the caches, and sleepers are woken less often. One at a time, each costs half as much again.
BATCH_SECONDS = 0.003  # from the first waiting frame until its batch is dispatched
ALONE_SECONDS = 0.02  # after this long without frames, the next one is dispatched at once: no others will join it
# Work queued to a decoder in advance. It covers the 10 ms and more that the event loop may wait for a CPU when a
# neighbour is busy. An urgent frame cannot overtake queued work, so keep it short.
#
# Measured in CPU time of single access units. Wall time, or frames that carry all units that piled up, would shrink the
# prefetch as decoders fall behind, and they would fall further behind.
PREFETCH_SECONDS = 0.015
PREFETCH_FRAMES = 3  # frames, at least, so that a decoder never waits for its next one
# how long a camera that crashed a decoder is decoded in a separate process; longer with each crash
ISOLATION_SECONDS = 60.0
PAUSE_SECONDS = 2.0  # how long a video is not decoded at all after its second crash; doubles per crash
PAUSE_MAX_SECONDS = 120.0
COST_SHARE = 0.05  # weight of one frame in the smoothed cost of a picture or access unit


class ContextLostError(Exception):
    """The decoder with this video's context crashed on another camera's frame."""


class DecodedCamera(QueuedCamera, Protocol):
    """A camera, as the pool sees it.

    A turn's `result` is a `Decoded`, or the result of `analyse_on_thread`, or an exception. The image of a `Decoded` is
    overwritten once `finish_turn` returns.
    """

    @property
    def encoding(self) -> str:
        """H264 or H265 if it sends a video, whose frames all go to the decoder with its context; '' for pictures."""

    def lose_context(self) -> None:
        """Restart at a key frame: the decoder with the video's context has ended."""

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """Return how to decode `frame`; None if it is no picture, so that `analyse_on_thread` does all of its work."""


@dataclass(slots=True, eq=False)
class _Dispatched:
    """A frame in a decoder's slot."""

    slot: int
    order: bytes
    camera: DecodedCamera
    turn: Turn

    @property
    def units(self) -> int:
        """Number of pictures to decode for it; the last of them is analysed."""
        frame = self.turn.frame
        return len(frame.units) if isinstance(frame, VideoFrame) else 1


@dataclass(eq=False)
class _Decoder:
    """The frames that one decoder process works on, and the videos whose contexts it has."""

    number: int
    process: DecoderProcess = field(init=False)
    dispatched: deque[_Dispatched] = field(default_factory=deque)
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))  # free slots
    units: int = 0  # pictures in the dispatched frames
    queue: FairQueue[DecodedCamera] = field(default_factory=FairQueue)  # of the pinned videos
    credit: float = 0.0  # turns that pictures have saved up against its videos

    def add(self, frame: _Dispatched) -> None:
        """Count `frame` as dispatched to this decoder."""
        self.dispatched.append(frame)
        self.units += frame.units

    def remove(self, frame: _Dispatched) -> None:
        """Count `frame` as finished; its slot is still in use until it is freed."""
        self.dispatched.remove(frame)
        self.units -= frame.units

    @property
    def room(self) -> int:
        """Number of frames that can be sent to it now."""
        return len(self.free) if self.process.link else 0


@dataclass(eq=False)
class _StreamPin:
    """The decoder that has a video's context, or that decodes an isolated camera, and the camera's crashes.

    | crashes | the camera is decoded |
    | --- | --- |
    | 0 | by one of the pool's decoders |
    | 1 | by the decoder for isolated cameras, for ISOLATION_SECONDS |
    | 2 and more | the same, ISOLATION_SECONDS longer per crash; a video after a pause that doubles per crash |
    """

    decoder: _Decoder
    stream: int
    crashed: float = float("-inf")  # monotonic seconds of its latest crash
    crashes: int = 0


class DecoderPool:
    """Decodes the frames of all cameras in the order of a `FairQueue`, at most one frame per camera at a time.

    It runs on the event loop only.
    """

    def __init__(self, count: int) -> None:
        self.count = count  # number of decoders
        self.cpu_seconds = 0.0  # of the decoders, for all replies so far
        self.busy_seconds = 0.0  # for which decoders worked on frames, for all replies so far
        self.finished = 0  # turns so far
        self.results_waited = 0.0  # seconds that results waited for the event loop, summed over all turns
        self.died = 0  # decoders that have crashed so far
        self._turns: TurnQueue[DecodedCamera] = TurnQueue()
        self._decoders: list[_Decoder] = []
        self._isolated_decoder: _Decoder
        self._pins: dict[DecodedCamera, _StreamPin] = {}
        self._streams = itertools.count(1)
        self.prefetch_seconds = PREFETCH_SECONDS
        self._cost = 0.0  # smoothed CPU seconds for decoding one picture or access unit
        self._batch_timer: asyncio.TimerHandle | None = None
        self._dispatched_at = 0.0  # monotonic seconds of the latest dispatch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="camera-analysis")
        self._forker: Forker | None = None
        self._closed = False
        self._ready = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    @property
    def is_busy(self) -> bool:
        """True if a frame is in work or waits for its turn."""
        return bool(self._turns.running or self.waiting)

    @property
    def waiting(self) -> int:
        """Number of frames that wait for their turn."""
        return len(self._turns.common) + sum(len(decoder.queue) for decoder in self._decoders)

    @property
    def backlog_age_seconds(self) -> float:
        """Seconds since when at least one frame has always been waiting; 0 if none waits."""
        now = time.monotonic()
        queues = self._turns.common, *(decoder.queue for decoder in self._decoders)
        return max(queue.backlog_age_seconds(now) for queue in queues)

    @property
    def in_work(self) -> int:
        """Number of frames that are being decoded or analysed."""
        return len(self._turns.running)

    async def start(self) -> None:
        """Start the processes on the running event loop; raise RuntimeError if none starts.

        If it is cancelled while waiting, call `stop` to end the processes.
        """
        self._loop = asyncio.get_running_loop()
        self._forker = Forker(self.count + 1)
        self._decoders = [self._decoder(number, self._forker) for number in range(self.count)]
        self._isolated_decoder = self._decoder(self.count, self._forker)
        for decoder in self._decoders:
            decoder.process.start()
        if not await first_of(self._ready.wait(), timeout=START_SECONDS):
            self.stop()
            raise RuntimeError(f"decoder pool: no process started within {START_SECONDS:g} s")

    def _decoder(self, number: int, forker: Forker) -> _Decoder:
        decoder = _Decoder(number)
        decoder.process = DecoderProcess(
            number,
            forker,
            on_ready=self._ready.set,
            on_start=partial(self._send_again, decoder),
            on_replies=partial(self._use_replies, decoder),
            on_end=partial(self._replace_decoder, decoder),
        )
        return decoder

    def stop(self) -> None:
        """End the processes and drop the frames in work."""
        self._closed = True
        if self._batch_timer:
            self._batch_timer.cancel()
        for decoder in self._decoders:
            decoder.process.close()
        if self._forker:
            self._forker.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def withdraw(self, camera: DecodedCamera) -> None:
        """Remove `camera` from the queue; its frame in work is still finished."""
        self._turns.withdraw(camera)
        if pin := self._pins.pop(camera, None):
            self._forget_stream(pin)

    def poll_replies(self) -> None:
        """Read every decoder's replies, in case an event was missed: no second event would announce them."""
        for decoder in list(self._decoders):
            if decoder.dispatched:
                decoder.process.read()

    def release_unused_slots(self) -> None:
        """Free the memory of all slots without a frame.

        Otherwise each slot would retain the pages of its largest frame, up to 9 MB, long after a burst. Allocating the
        pages of a few slots again takes a millisecond.
        """
        if self._forker and not self._closed:
            for decoder in self._decoders:
                self._forker.release(decoder.number, decoder.free)

    def submit(self, camera: DecodedCamera) -> None:
        """Queue `camera` for a turn because a frame waits; do nothing if it is queued already."""
        if self._closed:
            return
        now = time.monotonic()
        pin = self._pins.get(camera)
        if pin and pin.crashes and self._is_paused(camera, pin, now):
            return
        if camera.encoding and camera not in self._pins:
            self._pin_stream(camera)
        if self._turns.submit(camera, now):
            self._dispatch_soon()

    def _is_paused(self, camera: DecodedCamera, pin: _StreamPin, now: float) -> bool:
        """True if a video that crashed decoders has to wait. Once its isolation is over, unpin the camera.

        Pictures do not wait: each may be the first that can be decoded.
        """
        since = now - pin.crashed
        if (
            camera.encoding
            and pin.crashes > 1
            and since < min(PAUSE_MAX_SECONDS, PAUSE_SECONDS * 2 ** (pin.crashes - 2))
        ):
            return True
        if since > ISOLATION_SECONDS * pin.crashes and camera not in self._turns.running:
            self._forget_stream(pin)
            self._turns.assign(camera, None)
            del self._pins[camera]
            camera.lose_context()
        return False

    def _pin_stream(self, camera: DecodedCamera) -> None:
        """Pin the video of `camera` to the decoder with the fewest videos, so that it waits in its queue."""
        counts = Counter(pin.decoder.number for pin in self._pins.values())
        self._pin(camera, min(self._decoders[: self.count], key=lambda decoder: counts[decoder.number]))

    def _pin(self, camera: DecodedCamera, decoder: _Decoder) -> _StreamPin:
        # a picture of the same camera may wait in the common queue; in two queues it would get two turns at a time
        self._turns.assign(camera, decoder.queue)
        pin = self._pins[camera] = _StreamPin(decoder, next(self._streams))
        return pin

    def _forget_stream(self, pin: _StreamPin) -> None:
        pin.decoder.process.send(Forget(pin.stream).pack())

    def _dispatch_soon(self) -> None:
        """Dispatch waiting frames: now, or with the frames that join their batch."""
        if self._batch_timer:
            return
        if time.monotonic() - self._dispatched_at > ALONE_SECONDS:
            self._dispatch()
        else:
            self._batch_timer = self._loop.call_later(BATCH_SECONDS, self._dispatch_batch)

    def dispatch_gathered(self) -> None:
        """Dispatch the frames that wait for others to join their batch: all available input has been read."""
        if self._batch_timer:
            self._batch_timer.cancel()
            self._dispatch_batch()

    def _dispatch_batch(self) -> None:
        self._batch_timer = None
        self._dispatch()

    def _dispatch(self) -> None:
        """Send queued frames to decoders as long as one has room."""
        self._dispatched_at = time.monotonic()
        common = self._turns.common
        while able := [
            decoder for decoder in self._decoders
            if decoder.room and (len(common) or len(decoder.queue)) and not self._is_supplied(decoder)
        ]:  # fmt: skip
            decoder = min(able, key=lambda decoder: decoder.units)
            now = time.monotonic()
            begun = self._turns.begin(now, self._next_queue(decoder))
            if begun is None:
                continue  # the frames were withdrawn
            camera, turn = begun
            try:
                how = camera.decode_order(turn.frame)
                if how and (how.image or how.picture_side or isinstance(turn.frame, VideoFrame)):
                    self._write_order(decoder, camera, turn, how)
                    continue
                turn.result = NOT_DECODED if how else None
            except Exception as error:  # any error of this camera must not stop the others
                turn.result = error
            if turn.result is None:
                self._loop.run_in_executor(self._thread, self._analyse_on_thread, camera, turn)
            else:
                self._finish_turn(camera, turn, now)
        for decoder in self._decoders:
            decoder.process.flush()

    def _is_supplied(self, decoder: _Decoder) -> bool:
        """True if `decoder` has enough work queued in advance."""
        if len(decoder.dispatched) < PREFETCH_FRAMES:
            return False
        return self._cost == 0.0 or decoder.units * self._cost >= self.prefetch_seconds

    def _next_queue(self, decoder: _Decoder) -> FairQueue[DecodedCamera]:
        """The queue that `decoder` serves next. Pictures and its videos take turns by how many of them wait."""
        pictures, videos = len(self._turns.common) / self.count, len(decoder.queue)
        if not videos or not pictures or decoder.number >= self.count:
            return decoder.queue if videos else self._turns.common
        decoder.credit += pictures / (pictures + videos)
        if decoder.credit < 1.0:
            return decoder.queue
        decoder.credit -= 1.0
        return self._turns.common

    def _write_order(self, decoder: _Decoder, camera: DecodedCamera, turn: Turn, how: DecodeOrder) -> None:
        frame, slot, video = turn.frame, decoder.free[-1], None
        if isinstance(frame, VideoFrame):
            data = b"".join(unit.data for unit in frame.units)
            pin = self._pins.get(camera) or self._pin(camera, decoder)  # it waited for a turn with a picture
            sizes = [(len(unit.data), unit.number) for unit in frame.units]
            video = Units(frame.encoding, pin.stream, sizes, frame.units[0].key)
        else:
            assert isinstance(frame, Picture)
            data = frame.data
        begin = slot * SLOT_BYTES
        decoder.process.memory[begin : begin + len(data)] = data
        order = Order(slot, how, len(data), frame.header.width, frame.header.height, video)
        message = order.pack()
        decoder.free.pop()
        decoder.add(_Dispatched(slot, message, camera, turn))
        decoder.process.send(message)

    def _analyse_on_thread(self, camera: DecodedCamera, turn: Turn) -> None:
        try:
            turn.result = camera.analyse_on_thread(turn.frame)
        except BaseException as error:  # any error of this camera must not stop the others
            turn.result = error
        ended = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the result is not needed
            self._loop.call_soon_threadsafe(self._finish_turn, camera, turn, ended)

    def _use_replies(self, decoder: _Decoder, replies: Iterator[Reply]) -> None:
        for reply in replies:
            self._use_reply(decoder, reply)
        # New frames wait for the others of their batch, even if a decoder has room now.
        if self._batch_timer is None or self.backlog_age_seconds > BATCH_SECONDS:
            self._dispatch()

    def _use_reply(self, decoder: _Decoder, reply: Reply) -> None:
        """Finish the turn that `reply` answers; raise GarbledError if it is not the next one."""
        if not decoder.dispatched or decoder.dispatched[0].slot != reply.slot:
            raise GarbledError(f"slot {reply.slot} is not in work")
        dispatched = decoder.dispatched[0]
        decoder.remove(dispatched)
        turn = dispatched.turn
        self.cpu_seconds += reply.cpu_seconds
        self.busy_seconds += reply.ended - reply.began
        if reply.cpu_seconds:
            cost = reply.cpu_seconds / dispatched.units
            self._cost += (cost - self._cost) * (COST_SHARE if self._cost else 1.0)
        turn.waited += reply.began - turn.began
        turn.began = reply.began
        turn.result = reply.result(decoder.process.memory)
        self._finish_turn(dispatched.camera, turn, reply.ended)
        decoder.free.append(reply.slot)

    def _finish_turn(self, camera: DecodedCamera, turn: Turn, ended: float) -> None:
        """Give `camera` its turn's result and queue its next frame, if one waits."""
        now = time.monotonic()
        turn.seconds = ended - turn.began
        turn.waited += now - ended
        self.finished += 1
        self.results_waited += now - ended
        try:
            camera.finish_turn(turn)
        except Exception:  # an error of this camera must not stop the others
            logger.exception("a frame's result could not be used")
        if self._turns.finish(camera, turn.seconds + time.monotonic() - now):
            self._dispatch_soon()

    def _send_again(self, decoder: _Decoder) -> None:
        """Send the successor of a decoder that ended the orders that were not finished."""
        for dispatched in decoder.dispatched:
            decoder.process.send(dispatched.order)
        self._dispatch()

    def _replace_decoder(self, decoder: _Decoder, garbled: bool) -> None:
        """Start a successor for `decoder`, whose process has ended, and blame the frame it was decoding.

        `garbled`: it was replaced because of its reply to the next frame, so that one is to blame.
        """
        self.died += 1
        frames = decoder.dispatched
        at = frames[0].slot if garbled and frames else decoder.process.slot_in_work
        culprit = next((dispatched for dispatched in frames if dispatched.slot == at), None)
        self._lose_contexts(decoder, culprit)
        if culprit is None:
            decoder.process.start_later()
            return
        # Its camera waits behind the others next time. The successor decodes the other frames at once.
        decoder.remove(culprit)
        decoder.free.append(culprit.slot)
        error = UndecodableError(f"the decoder crashed or used more than {FRAME_SECONDS:g} s of CPU time")
        error.crashed = True
        culprit.turn.result = error
        self._turns.charge(culprit.camera, CRASH_SECONDS)
        if garbled:  # the old process may still write into slots until it notices that nobody listens
            decoder.process.start_later()
        else:
            decoder.process.start()
        self._finish_turn(culprit.camera, culprit.turn, time.monotonic())

    def _lose_contexts(self, decoder: _Decoder, culprit: _Dispatched | None) -> None:
        """Restart the videos of `decoder`, which has ended, at a key frame. Isolate the camera of `culprit`."""
        lost = [of for of in decoder.dispatched if isinstance(of.turn.frame, VideoFrame) and of is not culprit]
        for dispatched in lost:
            decoder.remove(dispatched)
            decoder.free.append(dispatched.slot)
            dispatched.turn.result = ContextLostError()
            self._finish_turn(dispatched.camera, dispatched.turn, time.monotonic())
        for camera, pin in self._pins.items():
            if pin.decoder is decoder:
                camera.lose_context()
        if culprit and not culprit.turn.withdrawn:
            self._isolate(culprit.camera)

    def _isolate(self, camera: DecodedCamera) -> None:
        """Let the decoder for isolated cameras decode `camera`, which crashed a decoder."""
        isolated = self._isolated_decoder
        pin = self._pins.get(camera) or self._pin(camera, isolated)
        pin.crashed, pin.crashes = time.monotonic(), pin.crashes + 1
        if pin.decoder is not isolated:
            pin.decoder = isolated
            self._turns.assign(camera, isolated.queue)
        if isolated not in self._decoders:
            self._decoders.append(isolated)
            isolated.process.start()


def decoder_count(cores: int | None, largest: int = 4) -> int:
    """The number of decoders for a machine of `cores`; None: unknown."""
    return max(1, min(largest, cores or 1))
