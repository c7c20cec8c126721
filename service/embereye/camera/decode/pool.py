"""Decoder pool: decodes frames of many cameras in a few processes.

Cameras queue compressed frames in mailboxes. A fair queue picks the camera that has used the least decoding time. The
pool sends its frame to the decoder with the least queued work, as an order in shared memory, and reads replies from the
decoder's socket. Frames go out in batches of 3 ms, because consecutive work finds warm caches: one at a time costs half
as much again.

All frames of one video go to one decoder, which has the video's context: the stream is pinned. A pinned camera waits in
its decoder's queue, a camera that sends pictures in the common queue.

If a decoder crashes, a new one starts. The frame that crashed it is charged to its camera and counts as undecodable; if
it belongs to a video, the video moves to a decoder process for isolated videos. Other videos of the crashed decoder
restart at a key frame, and waiting pictures are sent again.
"""

import asyncio
import contextlib
import itertools
import logging
import mmap
import os
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from embereye.camera.decode.exchange import (
    AT_NONE,
    BOX,
    DECODED,
    DELAYED,
    ENCODINGS,
    FORGET,
    FRAME_SECONDS,
    LOGIT,
    MARK,
    MESSAGE_BYTES,
    ORDER,
    READY,
    REPLY,
    SHARE_BYTES,
    SLOT_BYTES,
    SLOTS,
    TRUNCATED,
    UNIT,
    image_in,
    still_in,
)
from embereye.camera.decode.image import NOT_DECODED, Decoded, DecodeOrder, TruncatedError, UndecodableError
from embereye.camera.scheduling.fair_queue import FairQueue
from embereye.camera.scheduling.mailbox import Frame
from embereye.camera.scheduling.turn import QueuedCamera, Turn
from embereye.process.timing.backoff import Backoff

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
# how long a video that crashed a decoder is decoded in a separate process; longer with each crash
ISOLATION_SECONDS = 60.0
PAUSE_SECONDS = 2.0  # how long it is not decoded at all after its second crash; doubles per crash
PAUSE_MAX_SECONDS = 120.0
COST_SHARE = 0.05  # weight of one frame in the smoothed cost of a picture or access unit


class ContextLostError(Exception):
    """The decoder with this video's context crashed on another camera's frame."""


class PictureDelayedError(Exception):
    """The decoder has the frame but shows its picture after later ones."""


class DecodedCamera(QueuedCamera, Protocol):
    """A camera, as the pool sees it.

    A turn's `result` is a `Decoded`, or the result of `analyse_on_thread`, or an exception. The image of a `Decoded` is
    overwritten once `finish_turn` returns.
    """

    @property
    def encoding(self) -> str:
        """H264 or H265 if it sends a video, whose frames all go to the decoder with its context; '' for pictures."""
        ...

    def lose_context(self) -> None:
        """Restart at a key frame: the decoder with the video's context has ended."""
        ...

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """Return how to decode `frame`; None if it is no picture, so that `analyse_on_thread` does all of its work."""
        ...


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
        return len(self.turn.frame.units) or 1


@dataclass(eq=False)
class _Decoder:
    """One decoder process. It decodes frames in the order in which they were sent."""

    number: int
    memory: memoryview
    link: socket.socket | None = None  # None: the process is starting
    dispatched: deque[_Dispatched] = field(default_factory=deque)
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))  # free slots
    units: int = 0  # pictures in the dispatched frames
    unsent: list[bytes] = field(default_factory=list)  # orders that wait to be sent
    backoff: Backoff = field(default_factory=lambda: Backoff(floor=0.05, cap=5.0))
    queue: FairQueue[DecodedCamera] = field(default_factory=FairQueue)  # of the pinned videos
    credit: float = 0.0  # turns that pictures have saved up against its videos

    def add(self, frame: _Dispatched) -> None:
        """Count `frame` as dispatched to this decoder."""
        self.dispatched.append(frame)
        self.units += frame.units

    def remove(self, frame: _Dispatched) -> None:
        """Count `frame` as finished; its slot is still in use."""
        self.dispatched.remove(frame)
        self.units -= frame.units

    @property
    def room(self) -> int:
        """Number of frames that can be sent to it now."""
        return len(self.free) if self.link else 0


@dataclass(eq=False)
class _StreamPin:
    """The decoder that has a video's context, and the video's crashes.

    | crashes | the video is decoded |
    | --- | --- |
    | 0 | by one of the pool's decoders |
    | 1 | by the decoder for isolated videos, for ISOLATION_SECONDS |
    | 2 and more | the same, ISOLATION_SECONDS longer per crash, after a pause that doubles per crash |
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
        self._queue: FairQueue[DecodedCamera] = FairQueue()
        self._running: dict[DecodedCamera, Turn] = {}
        # monotonic seconds since when a camera in work has another frame waiting
        self._waiting_since: dict[DecodedCamera, float] = {}
        self._decoders: list[_Decoder] = []
        self._pins: dict[DecodedCamera, _StreamPin] = {}
        self._streams = itertools.count(1)
        self._cost = 0.0  # smoothed CPU seconds for decoding one picture or access unit
        self._batch_timer: asyncio.TimerHandle | None = None
        self._dispatched_at = 0.0  # monotonic seconds of the latest dispatch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="camera-analysis")
        self._forker: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._descriptor = -1
        self._memory: mmap.mmap | None = None  # of all decoders, one after the other
        self._closed = False
        self._ready = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    @property
    def is_busy(self) -> bool:
        """True if a frame is in work or waits for its turn."""
        return bool(self._running or self.waiting)

    @property
    def waiting(self) -> int:
        """Number of frames that wait for their turn."""
        return len(self._queue) + sum(len(decoder.queue) for decoder in self._decoders)

    @property
    def backlog_age_seconds(self) -> float:
        """Seconds since when at least one frame has always been waiting; 0 if none waits."""
        now = time.monotonic()
        return max(
            queue.backlog_age_seconds(now) for queue in (self._queue, *(decoder.queue for decoder in self._decoders))
        )

    @property
    def in_work(self) -> int:
        """Number of frames that are being decoded or analysed."""
        return len(self._running)

    async def start(self) -> None:
        """Start the processes on the running event loop; raise RuntimeError if none starts.

        If it is cancelled while waiting, call `stop` to end the processes.
        """
        self._loop = asyncio.get_running_loop()
        size = (self.count + 1) * SHARE_BYTES
        self._descriptor = os.memfd_create("embereye-frames")
        os.ftruncate(self._descriptor, size)
        self._memory = mmap.mmap(self._descriptor, size)
        memory = memoryview(self._memory)
        for number in range(self.count):
            begin = number * SHARE_BYTES
            self._decoders.append(_Decoder(number, memory[begin : begin + SHARE_BYTES]))
            self._start_decoder(self._decoders[-1])
        begin = self.count * SHARE_BYTES
        self._isolated_decoder = _Decoder(self.count, memory[begin : begin + SHARE_BYTES])
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            self.stop()
            raise RuntimeError(f"decoder pool: no process started within {START_SECONDS:g} s") from None

    def stop(self) -> None:
        """End the processes and drop the frames in work."""
        self._closed = True
        if self._batch_timer:
            self._batch_timer.cancel()
        for decoder in {*self._decoders, self._isolated_decoder}:
            self._disconnect(decoder)
        if self._forker:
            assert self._control
            self._control.close()
            self._forker.wait()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._thread.shutdown(wait=False, cancel_futures=True)

    def withdraw(self, camera: DecodedCamera) -> None:
        """Remove `camera` from the queue; its frame in work is still finished."""
        self._queue_of(camera).forget(camera)
        self._waiting_since.pop(camera, None)
        if home := self._pins.pop(camera, None):
            self._forget_stream(home)

    def poll_replies(self) -> None:
        """Read every decoder's replies, in case an event was missed: no second event would announce them."""
        for decoder in list(self._decoders):
            if decoder.link and decoder.dispatched:
                self._read_replies(decoder)

    def release_unused_slots(self) -> None:
        """Free the memory of all slots without a frame.

        Otherwise each slot would retain the pages of its largest frame, up to 9 MB, long after a burst. Allocating the
        pages of a few slots again takes a millisecond.
        """
        if not self._memory:
            return
        for decoder in {*self._decoders, self._isolated_decoder}:
            for slot in decoder.free:
                begin = decoder.number * SHARE_BYTES + slot * SLOT_BYTES
                self._memory.madvise(mmap.MADV_REMOVE, begin, SLOT_BYTES)

    def submit(self, camera: DecodedCamera) -> None:
        """Queue `camera` for a turn because a frame waits; do nothing if it is queued already."""
        if self._closed:
            return
        now = time.monotonic()
        home = self._pins.get(camera)
        if home and home.crashes and self._is_paused(camera, home, now):
            return
        if camera in self._running:
            self._waiting_since.setdefault(camera, now)
        else:
            self._enqueue(camera, now)

    def _is_paused(self, camera: DecodedCamera, home: _StreamPin, now: float) -> bool:
        """True if a video that crashed decoders has to wait. Once its isolation is over, unpin it."""
        since = now - home.crashed
        if home.crashes > 1 and since < min(PAUSE_MAX_SECONDS, PAUSE_SECONDS * 2 ** (home.crashes - 2)):
            return True
        if since > ISOLATION_SECONDS * home.crashes and camera not in self._running:
            self._forget_stream(home)
            home.decoder.queue.forget(camera)
            del self._pins[camera]
            camera.lose_context()
        return False

    def _queue_of(self, camera: DecodedCamera) -> FairQueue[DecodedCamera]:
        if camera in self._pins:
            return self._pins[camera].decoder.queue
        return self._pin_stream(camera).decoder.queue if camera.encoding else self._queue

    def _charge(self, camera: DecodedCamera, seconds: float) -> None:
        """Count `seconds` as used by `camera`, without pinning it: it may have been withdrawn meanwhile."""
        home = self._pins.get(camera)
        (home.decoder.queue if home else self._queue).charge(camera, seconds)

    def _pin_stream(self, camera: DecodedCamera) -> _StreamPin:
        """Pin the video of `camera` to the decoder with the fewest videos, so that it waits in its queue."""
        # a picture of the same camera may wait there; in two queues it would get two turns at a time
        self._queue.forget(camera)
        counts = Counter(home.decoder.number for home in self._pins.values())
        decoder = min(self._decoders[: self.count], key=lambda decoder: counts[decoder.number])
        home = self._pins[camera] = _StreamPin(decoder, next(self._streams))
        return home

    def _forget_stream(self, home: _StreamPin) -> None:
        home.decoder.unsent.append(
            ORDER.pack(FORGET, 0, 0, False, False, 0, 0, 0, 0, 0, home.stream, 0, 0, False, False, False, False)
        )

    def _enqueue(self, camera: DecodedCamera, since: float) -> None:
        if (
            not self._queue_of(camera).enter(camera, since, pause=camera.pause, urgent=camera.urgent)
            or self._batch_timer
        ):
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
        while True:
            able = [
                decoder for decoder in self._decoders
                if decoder.room and (len(self._queue) or len(decoder.queue)) and not self._is_supplied(decoder)
            ]  # fmt: skip
            if not able:
                break
            decoder = min(able, key=lambda decoder: decoder.units)
            now = time.monotonic()
            picked = self._next_queue(decoder).pick(now)
            if picked is None:
                break
            camera, waited = picked
            frame = camera.next_frame()
            if frame is None:
                continue
            turn = self._running[camera] = Turn(frame, waited, now)
            try:
                order = camera.decode_order(frame)
            except Exception as error:  # any error of this camera must not stop the others
                turn.result = error
                self._finish_turn(camera, turn, now)
                continue
            if order is None:
                self._loop.run_in_executor(self._thread, self._analyse_on_thread, camera, turn)
            elif not order.image and not frame.units:
                turn.result = NOT_DECODED
                self._finish_turn(camera, turn, now)
            else:
                self._write_order(decoder, camera, turn, order)
        for decoder in self._decoders:
            if decoder.unsent and decoder.link:
                orders, decoder.unsent = b"".join(decoder.unsent), []
                # the decoder died: reading its socket detects that, and its successor gets the orders again
                with contextlib.suppress(OSError):
                    decoder.link.send(orders)

    def _is_supplied(self, decoder: _Decoder) -> bool:
        """True if `decoder` has enough work queued in advance."""
        if len(decoder.dispatched) < PREFETCH_FRAMES:
            return False
        return self._cost == 0.0 or decoder.units * self._cost >= PREFETCH_SECONDS

    def _next_queue(self, decoder: _Decoder) -> FairQueue[DecodedCamera]:
        """The queue that `decoder` serves next. Pictures and its videos take turns by how many of them wait."""
        pictures, videos = len(self._queue) / self.count, len(decoder.queue)
        if not videos or not pictures or decoder.number >= self.count:
            return decoder.queue if videos else self._queue
        decoder.credit += pictures / (pictures + videos)
        if decoder.credit < 1.0:
            return decoder.queue
        decoder.credit -= 1.0
        return self._queue

    def _write_order(self, decoder: _Decoder, camera: DecodedCamera, turn: Turn, order: DecodeOrder) -> None:
        frame, slot = turn.frame, decoder.free.pop()
        boxes, close_ups = order.still or (), order.close_ups or ()
        data = frame.data if not frame.units else b"".join(unit.data for unit in frame.units)
        size, header = len(data), frame.header
        begin = slot * SLOT_BYTES
        decoder.memory[begin : begin + size] = data
        stream = self._pins[camera].stream if frame.units else 0
        message = ORDER.pack(
            slot, order.scale, len(boxes), order.still is not None, order.close_ups is not None, len(close_ups),
            size, header.width, header.height,
            ENCODINGS.index(frame.encoding), stream, len(frame.units), order.picture_side,
            bool(frame.units) and frame.units[0].key, order.smoothed, order.image,
            order.detail is not None,
        )  # fmt: skip
        details = (order.detail,) if order.detail else ()
        message += b"".join(BOX.pack(*box) for box in (*boxes, *close_ups, *details))
        message += b"".join(UNIT.pack(len(unit.data), unit.number) for unit in frame.units)
        decoder.add(_Dispatched(slot, message, camera, turn))
        decoder.unsent.append(message)

    def _analyse_on_thread(self, camera: DecodedCamera, turn: Turn) -> None:
        try:
            turn.result = camera.analyse_on_thread(turn.frame)
        except BaseException as error:  # any error of this camera must not stop the others
            turn.result = error
        ended = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the result is not needed
            self._loop.call_soon_threadsafe(self._finish_turn, camera, turn, ended)

    def _read_replies(self, decoder: _Decoder) -> None:
        assert decoder.link
        try:
            replies = decoder.link.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            # It died with orders unread. The kernel reports that once, before the replies that it did send.
            dead = decoder.link
            while decoder.link is dead:
                self._read_replies(decoder)
            return
        if not replies:
            self._replace_decoder(decoder)
            return
        if replies == READY:
            self._ready.set()
            return
        decoder.backoff.reset()
        at = 0
        while at < len(replies):
            at += self._read_reply(decoder, replies, at)
        # New frames wait for the others of their batch, even if a decoder has room now.
        if self._batch_timer is None or self.backlog_age_seconds > BATCH_SECONDS:
            self._dispatch()

    def _read_reply(self, decoder: _Decoder, replies: bytes, at: int) -> int:
        """Finish the turn whose reply begins at byte `at`. Returns the reply's length in bytes."""
        (slot, outcome, rows, columns, size, began, ended, cpu_seconds,
         further, unit, picture, high, wide) = REPLY.unpack_from(replies, at)  # fmt: skip
        rest = replies[at + REPLY.size :][:further]
        dispatched = decoder.dispatched[0]
        decoder.remove(dispatched)
        turn = dispatched.turn
        self.cpu_seconds += cpu_seconds
        self.busy_seconds += ended - began
        if cpu_seconds:
            self._cost += (cpu_seconds / dispatched.units - self._cost) * (COST_SHARE if self._cost else 1.0)
        turn.waited += began - turn.began
        turn.began = began
        if outcome == DECODED:
            behind = still_in(decoder.memory, slot, rows, columns, size + picture) if size or picture else b""
            image = image_in(decoder.memory, slot, rows, columns)
            logits = tuple(logit for (logit,) in LOGIT.iter_unpack(rest))
            detail = image_in(decoder.memory, slot, high, wide, image.size + len(behind)) if high else None
            turn.result = Decoded(image, behind[:size], cpu_seconds, unit, behind[size:], logits, detail=detail)
        elif outcome == DELAYED:
            turn.result = PictureDelayedError()
        else:
            error = TruncatedError if outcome == TRUNCATED else UndecodableError
            turn.result = error(rest.decode(errors="replace"))
        self._finish_turn(dispatched.camera, turn, ended)
        decoder.free.append(slot)
        return REPLY.size + len(rest)

    def _finish_turn(self, camera: DecodedCamera, turn: Turn, ended: float) -> None:
        """Give `camera` its turn's result and enqueue its next frame, if one waits."""
        now = time.monotonic()
        turn.seconds = ended - turn.began
        turn.waited += now - ended
        self.finished += 1
        self.results_waited += now - ended
        try:
            camera.finish_turn(turn)
        except Exception:  # an error of this camera must not stop the others
            logger.exception("a frame's result could not be used")
        del self._running[camera]
        self._charge(camera, turn.seconds + time.monotonic() - now)
        since = self._waiting_since.pop(camera, None)
        if since is not None:
            self._enqueue(camera, since)

    def _start_decoder(self, decoder: _Decoder) -> None:
        """Fork a process for `decoder` and send it the orders that its predecessor did not finish."""
        if self._closed:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._forker_control(), [bytes([decoder.number])], [theirs.fileno()])
            except OSError as error:
                ours.close()
                logger.warning("decoder %d: cannot be started; trying again (%s)", decoder.number, error)
                self._loop.call_later(decoder.backoff.next(), self._start_decoder, decoder)
                return
        ours.setblocking(False)
        decoder.link, decoder.memory[MARK] = ours, AT_NONE
        self._loop.add_reader(ours, self._read_replies, decoder)
        decoder.unsent = [dispatched.order for dispatched in decoder.dispatched]
        self._dispatch()

    def _forker_control(self) -> socket.socket:
        """The socket of the process that forks decoders. Starts the process if none runs."""
        if self._forker is None or self._forker.poll() is not None:
            self._control, theirs = socket.socketpair()
            with theirs:
                descriptors = theirs.fileno(), self._descriptor
                command = [sys.executable, "-m", "embereye.camera.decode.process", *map(str, descriptors)]
                self._forker = subprocess.Popen(command, pass_fds=descriptors)
        assert self._control
        return self._control

    def _replace_decoder(self, decoder: _Decoder) -> None:
        """Start a successor for `decoder`, whose process has ended, and blame the frame it was decoding."""
        self._disconnect(decoder)
        self.died += 1
        at = decoder.memory[MARK]
        culprit = next((dispatched for dispatched in decoder.dispatched if dispatched.slot == at), None)
        self._lose_contexts(decoder, culprit)
        if culprit is None:
            self._loop.call_later(decoder.backoff.next(), self._start_decoder, decoder)
            return
        # Its camera waits behind the others next time. The successor decodes the other frames at once.
        decoder.remove(culprit)
        decoder.free.append(culprit.slot)
        error = UndecodableError(f"the decoder crashed or used more than {FRAME_SECONDS:g} s of CPU time")
        error.crashed = True
        culprit.turn.result = error
        self._charge(culprit.camera, CRASH_SECONDS)
        self._start_decoder(decoder)
        self._finish_turn(culprit.camera, culprit.turn, time.monotonic())

    def _lose_contexts(self, decoder: _Decoder, culprit: _Dispatched | None) -> None:
        """Restart the videos of `decoder`, which has ended, at a key frame. Isolate the video of `culprit`."""
        decoder.unsent.clear()
        for dispatched in [frame for frame in decoder.dispatched if frame.turn.frame.units and frame is not culprit]:
            decoder.remove(dispatched)
            decoder.free.append(dispatched.slot)
            dispatched.turn.result = ContextLostError()
            self._finish_turn(dispatched.camera, dispatched.turn, time.monotonic())
        for camera, home in self._pins.items():
            if home.decoder is decoder:
                camera.lose_context()
        if culprit and (crashed_pin := self._pins.get(culprit.camera)):
            crashed_pin.crashed, crashed_pin.crashes = time.monotonic(), crashed_pin.crashes + 1
            self._move(culprit.camera, crashed_pin, self._isolated_decoder)

    def _move(self, camera: DecodedCamera, home: _StreamPin, decoder: _Decoder) -> None:
        """Move the context of `camera` to `decoder`."""
        if decoder is home.decoder:
            return
        home.decoder.queue.forget(camera)
        home.decoder = decoder
        if decoder not in self._decoders:
            self._decoders.append(decoder)
            self._start_decoder(decoder)

    def _disconnect(self, decoder: _Decoder) -> None:
        if decoder.link:
            self._loop.remove_reader(decoder.link)
            # Not at once: its successor's socket would get the same number, and uvloop would miss its events.
            self._loop.call_soon(decoder.link.close)
            decoder.link = None


def decoder_count(cores: int | None, largest: int = 4) -> int:
    """The number of decoders for a machine of `cores`; None: unknown."""
    return max(1, min(largest, cores or 1))
