"""The decoder pool: a few processes that decode the waiting frames of many cameras, in the order of a fair queue."""

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
    ENCODINGS,
    FORGET,
    FRAME_SECONDS,
    HELD,
    LOGIT,
    MARK,
    MESSAGE_BYTES,
    ORDER,
    READY,
    REPLY,
    SHARE_BYTES,
    SLOT_BYTES,
    SLOTS,
    UNIT,
    image_in,
    still_in,
)
from embereye.camera.decode.image import NOT_DECODED, Decoded, DecodeOrder, UndecodableError
from embereye.camera.scheduling.fair_queue import FairQueue
from embereye.camera.scheduling.mailbox import Frame
from embereye.camera.scheduling.turn import QueuedCamera, Turn
from embereye.process.timing.backoff import Backoff

logger = logging.getLogger(__name__)

CRASH_SECONDS = 1.0  # that a camera is charged with for a frame that ends a decoder
START_SECONDS = 30.0  # for the first decoder to come up: a cold machine reads OpenCV from its disk
# Frames are dispatched, decoded and inspected in batches of a few milliseconds: consecutive work finds its code and
# data in the caches, and sleepers are woken less often. One at a time, each costs half as much again.
BATCH_SECONDS = 0.003  # from the first waiting frame until it is dispatched
ALONE_SECONDS = 0.02  # without a frame, after which the next one is dispatched at once: nothing will join it
# Of work that a decoder gets ahead. Beside a neighbour the event loop waits for a processor for 10 ms and more at a
# time, and decoders that have run out of work meanwhile stand idle; what they have no urgent camera can overtake.
# Processor time of single access units: counted in time that passes, or in frames of which each brings all units that
# have piled up, it would shrink as decoders fall behind, so that they wait for the loop and fall further behind.
AHEAD_SECONDS = 0.015
AHEAD_LEAST = 3  # frames, so that a decoder never waits for its next one
APART_SECONDS = 60.0  # that a video which ended a decoder is decoded apart from others; longer after each further one
PAUSE_SECONDS = 2.0  # that it is not decoded at all after its second such frame, twice as long after each further one
PAUSE_MOST = 120.0
COST_SHARE = 0.05  # weight of a frame in the mean of what pictures and access units cost


class ContextLostError(Exception):
    """The decoder that held this video's context has ended, of another camera's frame."""


class PictureHeldError(Exception):
    """The decoder has got the frame, and shows its picture after later ones."""


class DecodedCamera(QueuedCamera, Protocol):
    """A camera as the pool sees it.

    A turn's `result` is a `Decoded`, whose image is overwritten once `finish_turn` returns; or what
    `analyse_on_thread` returned; or an exception.
    """

    @property
    def encoding(self) -> str:
        """Of a video H264 or H265: all of its frames go to one decoder, which keeps its context; else ''."""
        ...

    def lose_context(self) -> None:
        """Begin anew with a key frame: the decoder that had a video's context has ended."""
        ...

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """How to decode `frame`; None where it is no picture, and `analyse_on_thread` does all of its work."""
        ...


@dataclass(slots=True, eq=False)
class _Dispatched:
    """A frame that lies in a decoder's slot."""

    slot: int
    order: bytes
    camera: DecodedCamera
    turn: Turn

    @property
    def units(self) -> int:
        """Pictures to decode for it, of which the last is looked at."""
        return len(self.turn.frame.units) or 1


@dataclass(eq=False)
class _Decoder:
    """One process. It decodes what it was sent in that order."""

    number: int
    memory: memoryview
    link: socket.socket | None = None  # None: it is being started
    dispatched: deque[_Dispatched] = field(default_factory=deque)
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))  # slots
    units: int = 0  # of what is dispatched
    unsent: list[bytes] = field(default_factory=list)  # orders
    backoff: Backoff = field(default_factory=lambda: Backoff(floor=0.05, cap=5.0))
    queue: FairQueue[DecodedCamera] = field(default_factory=FairQueue)  # of the videos whose contexts it keeps
    credit: float = 0.0  # of pictures against its videos, turns

    def add(self, frame: _Dispatched) -> None:
        """Note that it has got `frame`."""
        self.dispatched.append(frame)
        self.units += frame.units

    def remove(self, frame: _Dispatched) -> None:
        """Note that it has done with `frame`, whose slot is still in use."""
        self.dispatched.remove(frame)
        self.units -= frame.units

    @property
    def room(self) -> int:
        """Frames that it can be sent."""
        return len(self.free) if self.link else 0


@dataclass(eq=False)
class _Home:
    """Where a video's context is."""

    decoder: _Decoder
    stream: int
    crashed: float = float("-inf")  # when it last ended a decoder, monotonic seconds
    crashes: int = 0


class DecoderPool:
    """Decodes the frames of all cameras in the order of a `FairQueue`, at most one frame of each at a time.

    Runs on the event loop alone. A decoder that dies, of its frame or of anything else, is replaced; the frame that it
    was at is undecodable, those behind it are decoded by its successor.
    """

    def __init__(self, count: int) -> None:
        self.count = count  # of decoders
        self.cpu_seconds = 0.0  # of the decoders, as far as they have answered
        self.busy_seconds = 0.0  # for which the decoders were at frames, as far as they have answered
        self.finished = 0  # turns
        self.results_waited = 0.0  # seconds, for the event loop, of all turns together
        self.died = 0  # decoders so far
        self._queue: FairQueue[DecodedCamera] = FairQueue()
        self._running: dict[DecodedCamera, Turn] = {}
        self._again: dict[DecodedCamera, float] = {}  # since when a frame waits behind the one in work, by camera
        self._decoders: list[_Decoder] = []
        self._homes: dict[DecodedCamera, _Home] = {}
        self._streams = itertools.count(1)
        self._cost = 0.0  # processor seconds that a picture or an access unit takes to be decoded, smoothed
        self._batch_timer: asyncio.TimerHandle | None = None
        self._dispatched_at = 0.0  # when frames were dispatched last
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="camera-analysis")
        self._forker: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._descriptor = -1
        self._memory: mmap.mmap | None = None  # of all decoders, one after the other
        self._closed = False
        self._ready = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    @property
    def busy(self) -> bool:
        """Whether a frame is in work, or waits for its turn."""
        return bool(self._running or self.waiting)

    @property
    def waiting(self) -> int:
        """Frames that wait for their turn."""
        return len(self._queue) + sum(len(decoder.queue) for decoder in self._decoders)

    @property
    def standing(self) -> float:
        """Seconds for which frames have waited at every moment; 0: none waits."""
        now = time.monotonic()
        return max(queue.standing(now) for queue in (self._queue, *(decoder.queue for decoder in self._decoders)))

    @property
    def in_work(self) -> int:
        """Frames that are being decoded or looked at."""
        return len(self._running)

    async def start(self) -> None:
        """Start the processes, on the event loop they answer to; RuntimeError where none comes up.

        Cancelled while it waits, it leaves processes behind that `stop` ends.
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
        self._apart = _Decoder(self.count, memory[begin : begin + SHARE_BYTES])
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            self.stop()
            raise RuntimeError(f"no decoder process has come up within {START_SECONDS:g} s") from None

    def stop(self) -> None:
        """End the processes; frames in work are forgotten."""
        self._closed = True
        if self._batch_timer:
            self._batch_timer.cancel()
        for decoder in {*self._decoders, self._apart}:
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
        """Remove `camera` from the queue; a frame of its that is in work is still finished."""
        self._queue_of(camera).forget(camera)
        self._again.pop(camera, None)
        if home := self._homes.pop(camera, None):
            self._forget_stream(home)

    def look(self) -> None:
        """Read what decoders have answered, or that they have ended: an event that is missed would be for good."""
        for decoder in list(self._decoders):
            if decoder.link and decoder.dispatched:
                self._read_replies(decoder)

    def give_back(self) -> None:
        """Free the memory of all slots that hold no frame.

        Each would keep the pages of its largest frame for good, 9 MB at most: of the slots together, what the worst
        burst had ever taken, long after it. To get the pages of a few slots anew takes a millisecond.
        """
        if not self._memory:
            return
        for decoder in {*self._decoders, self._apart}:
            for slot in decoder.free:
                begin = decoder.number * SHARE_BYTES + slot * SLOT_BYTES
                self._memory.madvise(mmap.MADV_REMOVE, begin, SLOT_BYTES)

    # A frame's way, from its mailbox to the turn's end

    def submit(self, camera: DecodedCamera) -> None:
        """Note that `camera` has a frame waiting; a no-op while it is queued already."""
        if self._closed:
            return
        now = time.monotonic()
        home = self._homes.get(camera)
        if home and home.crashes and self._paused(camera, home, now):
            return
        if camera in self._running:
            self._again.setdefault(camera, now)
        else:
            self._enter(camera, now)

    def _paused(self, camera: DecodedCamera, home: _Home, now: float) -> bool:
        """Whether a video that has ended decoders is not decoded yet; after a while it is among the others again."""
        since = now - home.crashed
        if home.crashes > 1 and since < min(PAUSE_MOST, PAUSE_SECONDS * 2 ** (home.crashes - 2)):
            return True
        if since > APART_SECONDS * home.crashes and camera not in self._running:
            self._forget_stream(home)
            home.decoder.queue.forget(camera)
            del self._homes[camera]
            camera.lose_context()
        return False

    def _queue_of(self, camera: DecodedCamera) -> FairQueue[DecodedCamera]:
        if camera in self._homes:
            return self._homes[camera].decoder.queue
        return self._settle(camera).decoder.queue if camera.encoding else self._queue

    def _charge(self, camera: DecodedCamera, seconds: float) -> None:
        """Count `seconds` as used by `camera`, which gets no home for that: it may have been withdrawn meanwhile."""
        home = self._homes.get(camera)
        (home.decoder.queue if home else self._queue).charge(camera, seconds)

    def _settle(self, camera: DecodedCamera) -> _Home:
        """Choose the decoder that is to keep the context of `camera`, in whose queue it waits from now on."""
        self._queue.forget(camera)  # a picture of it may wait there: from two queues it would get two turns at a time
        counts = Counter(home.decoder.number for home in self._homes.values())
        decoder = min(self._decoders[: self.count], key=lambda decoder: counts[decoder.number])
        home = self._homes[camera] = _Home(decoder, next(self._streams))
        return home

    def _forget_stream(self, home: _Home) -> None:
        home.decoder.unsent.append(
            ORDER.pack(FORGET, 0, 0, False, False, 0, 0, 0, 0, 0, home.stream, 0, 0, False, False, False, False)
        )

    def _enter(self, camera: DecodedCamera, since: float) -> None:
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
        """Dispatch the frames that wait for others to join them: whatever was to be read has been."""
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
                if decoder.room and (len(self._queue) or len(decoder.queue)) and not self._supplied(decoder)
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
            except Exception as error:  # whatever it is, it is this camera's alone
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
                with contextlib.suppress(OSError):  # it has died: reading tells so, and its successor gets them again
                    decoder.link.send(orders)

    def _supplied(self, decoder: _Decoder) -> bool:
        """Whether `decoder` has as much to do as it is to get ahead."""
        if len(decoder.dispatched) < AHEAD_LEAST:
            return False
        return self._cost == 0.0 or decoder.units * self._cost >= AHEAD_SECONDS

    def _next_queue(self, decoder: _Decoder) -> FairQueue[DecodedCamera]:
        """The queue that `decoder` is to serve: pictures and its videos take turns, by how many of them wait."""
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
        stream = self._homes[camera].stream if frame.units else 0
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
        except BaseException as error:  # whatever it is, it is this camera's alone
            turn.result = error
        ended = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish_turn, camera, turn, ended)

    def _read_replies(self, decoder: _Decoder) -> None:
        assert decoder.link
        try:
            replies = decoder.link.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            # It died with orders unread. The kernel says so once, before what it has answered, and never again.
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
        # What has only just come waits for the others of its batch, also where a decoder has room now.
        if self._batch_timer is None or self.standing > BATCH_SECONDS:
            self._dispatch()

    def _read_reply(self, decoder: _Decoder, replies: bytes, at: int) -> int:
        """Finish the turn whose reply begins at byte `at`; returns the reply's length in bytes."""
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
        elif outcome == HELD:
            turn.result = PictureHeldError()
        else:
            turn.result = UndecodableError(rest.decode(errors="replace"))
        self._finish_turn(dispatched.camera, turn, ended)
        decoder.free.append(slot)
        return REPLY.size + len(rest)

    def _finish_turn(self, camera: DecodedCamera, turn: Turn, ended: float) -> None:
        """Let `camera` use the result of its turn; its next frame may have a turn then."""
        now = time.monotonic()
        turn.seconds = ended - turn.began
        turn.waited += now - ended
        self.finished += 1
        self.results_waited += now - ended
        try:
            camera.finish_turn(turn)
        except Exception:  # this camera's own, and others wait behind it
            logger.exception("the result of a frame could not be used")
        del self._running[camera]
        self._charge(camera, turn.seconds + time.monotonic() - now)
        since = self._again.pop(camera, None)
        if since is not None:
            self._enter(camera, since)

    # The life of a decoder

    def _start_decoder(self, decoder: _Decoder) -> None:
        """Have a process forked for `decoder`, and send it what its predecessor left."""
        if self._closed:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._forker_control(), [bytes([decoder.number])], [theirs.fileno()])
            except OSError as error:
                ours.close()
                logger.warning("decoder %d cannot be started: %s; trying again", decoder.number, error)
                self._loop.call_later(decoder.backoff.next(), self._start_decoder, decoder)
                return
        ours.setblocking(False)
        decoder.link, decoder.memory[MARK] = ours, AT_NONE
        self._loop.add_reader(ours, self._read_replies, decoder)
        decoder.unsent = [dispatched.order for dispatched in decoder.dispatched]
        self._dispatch()

    def _forker_control(self) -> socket.socket:
        """The socket of the process that forks decoders, which is started where there is none."""
        if self._forker is None or self._forker.poll() is not None:
            self._control, theirs = socket.socketpair()
            with theirs:
                descriptors = theirs.fileno(), self._descriptor
                command = [sys.executable, "-m", "embereye.camera.decode.process", *map(str, descriptors)]
                self._forker = subprocess.Popen(command, pass_fds=descriptors)
        assert self._control
        return self._control

    def _replace_decoder(self, decoder: _Decoder) -> None:
        """Start a successor of the process of `decoder`, which has ended."""
        self._disconnect(decoder)
        self.died += 1
        at = decoder.memory[MARK]
        culprit = next((dispatched for dispatched in decoder.dispatched if dispatched.slot == at), None)
        self._lose_contexts(decoder, culprit)
        if culprit is None:
            self._loop.call_later(decoder.backoff.next(), self._start_decoder, decoder)
            return
        # Its camera waits behind the others next time; the other frames are decoded by the successor at once.
        decoder.remove(culprit)
        decoder.free.append(culprit.slot)
        error = UndecodableError(f"the decoder crashed on it, or took more than {FRAME_SECONDS:g} s of processor time")
        error.crashed = True
        culprit.turn.result = error
        self._charge(culprit.camera, CRASH_SECONDS)
        self._start_decoder(decoder)
        self._finish_turn(culprit.camera, culprit.turn, time.monotonic())

    def _lose_contexts(self, decoder: _Decoder, culprit: _Dispatched | None) -> None:
        """Let the videos of `decoder`, which has ended, begin anew; the one it ended of is tried apart from others."""
        decoder.unsent.clear()
        for dispatched in [of for of in decoder.dispatched if of.turn.frame.units and of is not culprit]:
            decoder.remove(dispatched)
            decoder.free.append(dispatched.slot)
            dispatched.turn.result = ContextLostError()
            self._finish_turn(dispatched.camera, dispatched.turn, time.monotonic())
        for camera, home in self._homes.items():
            if home.decoder is decoder:
                camera.lose_context()
        if culprit and (own := self._homes.get(culprit.camera)):
            own.crashed, own.crashes = time.monotonic(), own.crashes + 1
            self._move(culprit.camera, own, self._apart)

    def _move(self, camera: DecodedCamera, home: _Home, decoder: _Decoder) -> None:
        """Have `decoder` keep the context of `camera` from now on."""
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
            # Not at once: its successor's socket would get the same number, and uvloop then misses what comes there.
            self._loop.call_soon(decoder.link.close)
            decoder.link = None


def decoder_count(cores: int | None, largest: int = 4) -> int:
    """How many decoders suit a machine of `cores`; None: unknown."""
    return max(1, min(largest, cores or 1))
