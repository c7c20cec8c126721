"""The decoder pool: a few processes that decode the waiting frames of many cameras, each camera in its turn."""

import asyncio
import contextlib
import logging
import mmap
import os
import socket
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from embereye.camera.decoding import (
    AT_NONE,
    BOX,
    HANG_SECONDS,
    MARK,
    MESSAGE,
    ORDER,
    READY,
    REPLY,
    SHARE_BYTES,
    SLOT_BYTES,
    SLOTS,
    Decoded,
    Order,
    UndecodableError,
    picture_of,
    still_of,
)
from embereye.camera.mailbox import Frame
from embereye.camera.schedule import Line
from embereye.camera.workers import Waiting, Work
from embereye.process.backoff import Backoff

logger = logging.getLogger(__name__)

CRASH_SECONDS = 1.0  # that a camera is charged with for a frame that ends a decoder
START_SECONDS = 30.0  # for the first decoder to come up
# Frames are given, decoded and looked at several at a time: work that is done in one go finds its code and data at
# hand, and whoever sleeps is woken less often.
GATHER_SECONDS = 0.003  # from the first frame that waits until it is given
ALONE_SECONDS = 0.02  # without a frame, after which the next one will hardly have company
GIVEN_SECONDS = 0.005  # of work that a decoder is given ahead; more would be kept from whoever is urgent by then
GIVEN_LEAST = 2  # frames, so that it need not wait for the next one
COST_SHARE = 0.05  # of a frame in the mean of what frames take


class Customer(Waiting, Protocol):
    """A camera as the pool sees it.

    Its `done` gets a `Decoded`, whose picture is overwritten once that returns, what its own `work` returned, or an
    exception.
    """

    def order(self, frame: Frame) -> Order | None:
        """How to decode `frame`; None where it needs no decoding, and `work` does it all."""
        ...


@dataclass(eq=False)
class _Decoder:
    """One process. What is given to it is decoded in that order."""

    number: int
    memory: memoryview
    link: socket.socket | None = None  # None: it is being started
    given: deque[tuple[int, bytes, Customer, Work]] = field(default_factory=deque)  # slot, message
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))
    orders: list[bytes] = field(default_factory=list)  # not sent yet
    backoff: Backoff = field(default_factory=lambda: Backoff(floor=0.05, cap=5.0))


class Decoders:
    """Decodes the frames of all cameras in the order of a `Line`, at most one frame of each at a time.

    Runs on the event loop alone. A decoder that dies, of its frame or of anything else, is replaced; the frame that it
    was at is undecodable, those behind it are given to its successor.
    """

    def __init__(self, count: int) -> None:
        self.threads = count  # of decoding
        self.cpu_seconds = 0.0  # of the decoders, as far as they have answered
        self.died = 0  # decoders so far
        self._line: Line[Customer] = Line()
        self._running: dict[Customer, Work] = {}
        self._again: dict[Customer, float] = {}  # has a frame waiting while one is in work, since when
        self._decoders: list[_Decoder] = []
        self._cost = 0.0  # seconds that a frame takes to be decoded, smoothed
        self._gathering: asyncio.TimerHandle | None = None
        self._given = 0.0  # when decoders were given something last
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="camera-work")
        self._forking: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._descriptor = -1
        self._closed = False
        self._ready = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    @property
    def busy(self) -> bool:
        """Whether a frame is being looked at, or waits for its turn."""
        return bool(self._running or len(self._line))

    @property
    def waiting(self) -> int:
        """Frames that wait for their turn."""
        return len(self._line)

    @property
    def in_work(self) -> int:
        """Frames that are being decoded or looked at."""
        return len(self._running)

    async def start(self) -> None:
        """Start the processes, on the event loop they answer to; RuntimeError where none comes up."""
        self._loop = asyncio.get_running_loop()
        size = self.threads * SHARE_BYTES
        self._descriptor = os.memfd_create("embereye-frames")
        os.ftruncate(self._descriptor, size)
        memory = memoryview(mmap.mmap(self._descriptor, size))
        for number in range(self.threads):
            begin = number * SHARE_BYTES
            self._decoders.append(_Decoder(number, memory[begin : begin + SHARE_BYTES]))
            self._start(self._decoders[-1])
        try:
            await asyncio.wait_for(self._ready.wait(), START_SECONDS)
        except TimeoutError:
            self.stop()
            raise RuntimeError(f"no process that decodes pictures has come up within {START_SECONDS:g} s") from None

    def stop(self) -> None:
        """End the processes; frames in work are forgotten."""
        self._closed = True
        if self._gathering:
            self._gathering.cancel()
        for decoder in self._decoders:
            self._cut(decoder)
        if self._forking:
            assert self._control
            self._control.close()
            self._forking.wait()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, decoder: _Decoder) -> None:
        """Have a process forked for `decoder`, and give it what its predecessor left."""
        if self._closed:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._forker(), [bytes([decoder.number])], [theirs.fileno()])
            except OSError as error:
                ours.close()
                logger.warning("decoder %d cannot be started: %s; trying again", decoder.number, error)
                self._loop.call_later(decoder.backoff.next(), self._start, decoder)
                return
        ours.setblocking(False)
        decoder.link, decoder.memory[MARK] = ours, AT_NONE
        self._loop.add_reader(ours, self._replies, decoder)
        decoder.orders = [order for _, order, _, _ in decoder.given]
        self._give()

    def _forker(self) -> socket.socket:
        if self._forking is None or self._forking.poll() is not None:
            self._control, theirs = socket.socketpair()
            with theirs:
                descriptors = theirs.fileno(), self._descriptor
                self._forking = subprocess.Popen(
                    [sys.executable, "-m", "embereye.camera.decoding", *map(str, descriptors)], pass_fds=descriptors
                )
        assert self._control
        return self._control

    def _cut(self, decoder: _Decoder) -> None:
        if decoder.link:
            self._loop.remove_reader(decoder.link)
            decoder.link.close()
            decoder.link = None

    def submit(self, customer: Customer) -> None:
        """Note that `customer` has a frame waiting; a no-op while it is in line already."""
        if self._closed:
            return
        now = time.monotonic()
        if customer in self._running:
            self._again.setdefault(customer, now)
        else:
            self._enter(customer, now)

    def _enter(self, customer: Customer, since: float) -> None:
        if not self._line.enter(customer, since, pause=customer.pause, urgent=customer.urgent) or self._gathering:
            return
        if time.monotonic() - self._given > ALONE_SECONDS:
            self._give()
        else:
            self._gathering = self._loop.call_later(GATHER_SECONDS, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        self._give()

    def withdraw(self, customer: Customer) -> None:
        """Take `customer` out of the line; a frame of its in work is still finished."""
        self._line.forget(customer)
        self._again.pop(customer, None)

    def _give(self) -> None:
        """Give decoders something to do as long as one has room and somebody is in line."""
        self._given = time.monotonic()
        most = min(SLOTS, max(GIVEN_LEAST, int(GIVEN_SECONDS / self._cost))) if self._cost else GIVEN_LEAST
        while len(self._line):
            decoder = min(self._decoders, key=lambda decoder: len(decoder.given) if decoder.link else SLOTS)
            if len(decoder.given) >= most or not decoder.free or not decoder.link:
                break
            now = time.monotonic()
            picked = self._line.pick(now)
            if picked is None:
                break
            customer, waited = picked
            frame = customer.next_frame()
            if frame is None:
                continue
            work = self._running[customer] = Work(frame, waited, now)
            try:
                order = customer.order(frame)
            except Exception as error:  # whatever it is, it is this camera's alone
                work.result = error
                self._finish(customer, work, now)
                continue
            if order is None:
                self._loop.run_in_executor(self._threads, self._aside, customer, work)
            else:
                self._place(decoder, customer, work, order)
        for decoder in self._decoders:
            if decoder.orders and decoder.link:
                orders, decoder.orders = b"".join(decoder.orders), []
                with contextlib.suppress(OSError):  # it has died: reading tells, and its successor is told again
                    decoder.link.send(orders)

    def _place(self, decoder: _Decoder, customer: Customer, work: Work, order: Order) -> None:
        frame, boxes, slot = work.frame, order.still or (), decoder.free.pop()
        size, header = len(frame.data), frame.header
        begin = slot * SLOT_BYTES
        decoder.memory[begin : begin + size] = frame.data
        wanted = order.still is not None
        message = ORDER.pack(slot, order.scale, len(boxes), wanted, size, header.width, header.height)
        message += b"".join(BOX.pack(*box) for box in boxes)
        decoder.given.append((slot, message, customer, work))
        decoder.orders.append(message)

    def _replies(self, decoder: _Decoder) -> None:
        assert decoder.link
        try:
            replies = decoder.link.recv(MESSAGE)
        except BlockingIOError:
            return
        except ConnectionResetError:
            # It died with orders unread, which is told once, before what it has answered, and then by nobody any more.
            dead = decoder.link
            while decoder.link is dead:
                self._replies(decoder)
            return
        if not replies:
            self._lost(decoder)
            return
        if replies == READY:
            self._ready.set()
            return
        decoder.backoff.reset()
        at = 0
        while at < len(replies):
            at += self._answered(decoder, replies, at)
        self._give()

    def _answered(self, decoder: _Decoder, replies: bytes, at: int) -> int:
        """Take the reply that begins at byte `at`; returns how many it has."""
        slot, decoded, rows, columns, size, began, ended, cpu_seconds, reason = REPLY.unpack_from(replies, at)
        _, _, customer, work = decoder.given.popleft()
        self.cpu_seconds += cpu_seconds
        self._cost += (ended - began - self._cost) * (COST_SHARE if self._cost else 1.0)
        work.waited += began - work.began
        work.began = began
        if decoded:
            still = still_of(decoder.memory, slot, rows, columns, size) if size else b""
            work.result = Decoded(picture_of(decoder.memory, slot, rows, columns), still, cpu_seconds)
        else:
            work.result = UndecodableError(replies[at + REPLY.size :][:reason].decode(errors="replace"))
        self._finish(customer, work, ended)
        decoder.free.append(slot)
        return REPLY.size + int(reason)

    def _lost(self, decoder: _Decoder) -> None:
        """The process of `decoder` has ended."""
        self._cut(decoder)
        self.died += 1
        at = decoder.memory[MARK]
        culprit = next((given for given in decoder.given if given[0] == at), None)
        if culprit is None:
            self._loop.call_later(decoder.backoff.next(), self._start, decoder)
            return
        # Its camera waits behind the others next time; those given beside it are decoded by the next one at once.
        slot, _, customer, work = culprit
        decoder.given.remove(culprit)
        decoder.free.append(slot)
        work.result = UndecodableError(f"the decoder crashed on it, or took more than {HANG_SECONDS:g} s")
        self._line.charge(customer, CRASH_SECONDS)
        self._start(decoder)
        self._finish(customer, work, time.monotonic())

    def _aside(self, customer: Customer, work: Work) -> None:
        """Let `customer` do its own `work`; on the thread."""
        try:
            work.result = customer.work(work.frame)
        except BaseException as error:  # whatever it is, it is this camera's alone
            work.result = error
        ended = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish, customer, work, ended)

    def _finish(self, customer: Customer, work: Work, ended: float) -> None:
        """Let `customer` take the result of `work`; its next frame may have its turn then."""
        now = time.monotonic()
        work.seconds = ended - work.began
        work.waited += now - ended
        try:
            customer.done(work)
        except Exception:  # this camera's own, and others wait behind it
            logger.exception("what became of a frame could not be taken")
        del self._running[customer]
        self._line.charge(customer, work.seconds + time.monotonic() - now)
        since = self._again.pop(customer, None)
        if since is not None:
            self._enter(customer, since)


def thread_count(cores: int | None, largest: int = 4) -> int:
    """How many decoders suit a machine of `cores`."""
    return max(1, min(largest, cores or 1))
