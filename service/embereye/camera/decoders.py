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
    BOX,
    HANG_SECONDS,
    MESSAGE,
    ORDER,
    READY,
    REPLY,
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
READ = 8  # replies at once: the event loop has other things to do


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

    async def start(self) -> None:
        """Start the processes, on the event loop they answer to; RuntimeError where none comes up."""
        self._loop = asyncio.get_running_loop()
        size = self.threads * SLOTS * SLOT_BYTES
        self._descriptor = os.memfd_create("embereye-frames")
        os.ftruncate(self._descriptor, size)
        memory = memoryview(mmap.mmap(self._descriptor, size))
        share = SLOTS * SLOT_BYTES
        for number in range(self.threads):
            self._decoders.append(_Decoder(number, memory[number * share : (number + 1) * share]))
            self._start(self._decoders[-1])
        try:
            await asyncio.wait_for(self._ready.wait(), START_SECONDS)
        except TimeoutError:
            self.stop()
            raise RuntimeError(f"no process that decodes pictures has come up within {START_SECONDS:g} s") from None

    def stop(self) -> None:
        """End the processes; frames in work are forgotten."""
        self._closed = True
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
        decoder.link = ours
        self._loop.add_reader(ours, self._replies, decoder)
        with contextlib.suppress(OSError):  # it has died already: reading tells
            for _, message, _, _ in decoder.given:
                ours.send(message)
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
        elif self._line.enter(customer, now, pause=customer.pause, urgent=customer.urgent):
            self._give()

    def withdraw(self, customer: Customer) -> None:
        """Take `customer` out of the line; a frame of its in work is still finished."""
        self._line.forget(customer)
        self._again.pop(customer, None)

    def _give(self) -> None:
        """Give decoders something to do as long as one has room and somebody is in line."""
        while len(self._line):
            decoder = max(self._decoders, key=lambda decoder: len(decoder.free) if decoder.link else 0)
            if not decoder.free or not decoder.link:
                return
            now = time.monotonic()
            picked = self._line.pick(now)
            if picked is None:
                return
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
                self._send(decoder, customer, work, order)

    def _send(self, decoder: _Decoder, customer: Customer, work: Work, order: Order) -> None:
        frame, boxes, slot = work.frame, order.still or (), decoder.free.pop()
        size, header = len(frame.data), frame.header
        begin = slot * SLOT_BYTES
        decoder.memory[begin : begin + size] = frame.data
        wanted = order.still is not None
        message = ORDER.pack(slot, order.scale, len(boxes), wanted, size, header.width, header.height)
        message += b"".join(BOX.pack(*box) for box in boxes)
        decoder.given.append((slot, message, customer, work))
        assert decoder.link
        with contextlib.suppress(OSError):  # it has died: reading tells, and its successor is told again
            decoder.link.send(message)

    def _replies(self, decoder: _Decoder) -> None:
        for _ in range(READ):
            try:
                reply = decoder.link.recv(MESSAGE) if decoder.link else b""
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # it died with orders unread: told once, and before what it has answered
            if not reply:
                self._lost(decoder)
                return
            if reply == READY:
                self._ready.set()
                continue
            decoder.backoff.reset()
            self._answered(decoder, reply)

    def _answered(self, decoder: _Decoder, reply: bytes) -> None:
        slot, decoded, rows, columns, size, began, ended, cpu_seconds = REPLY.unpack_from(reply)
        _, _, customer, work = decoder.given.popleft()
        self.cpu_seconds += cpu_seconds
        work.waited += began - work.began
        work.began = began
        if decoded:
            still = still_of(decoder.memory, slot, rows, columns, size) if size else b""
            work.result = Decoded(picture_of(decoder.memory, slot, rows, columns), still, cpu_seconds)
        else:
            work.result = UndecodableError(reply[REPLY.size :].decode())
        self._finish(customer, work, ended)
        decoder.free.append(slot)
        self._give()

    def _lost(self, decoder: _Decoder) -> None:
        """The process of `decoder` has ended."""
        self._cut(decoder)
        self.died += 1
        if not decoder.given:
            self._loop.call_later(decoder.backoff.next(), self._start, decoder)
            return
        # There is a culprit: its camera waits behind the others next time, and these go on at once.
        slot, _, customer, work = decoder.given.popleft()
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
        finally:
            del self._running[customer]
            self._line.charge(customer, work.seconds + time.monotonic() - now)
            since = self._again.pop(customer, None)
            if since is not None and self._line.enter(customer, since, pause=customer.pause, urgent=customer.urgent):
                self._give()


def thread_count(cores: int | None, largest: int = 4) -> int:
    """How many decoders suit a machine of `cores`."""
    return max(1, min(largest, cores or 1))
