"""Supervision of decoder processes: they are started, and replaced if they end.

A process that has loaded the libraries (`embereye.camera.decode.process`) forks the decoders. `Forker` runs it and owns
the memory that all of them share. A `DecoderProcess` is one decoder and its successors: it sends orders, reads replies
and notices the end. Its owner decides which frame to blame and when the successor starts.
"""

import asyncio
import logging
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from embereye.camera.decode.wire import (
    AT_NONE,
    MARK,
    MESSAGE_BYTES,
    READY,
    SHARE_BYTES,
    SLOT_BYTES,
    GarbledError,
    Reply,
    read_replies,
)
from embereye.process.condition import Condition
from embereye.process.timing.backoff import Backoff

logger = logging.getLogger(__name__)


class Forker:
    """The process that forks decoders, and the memory of `decoders` of them, one after the other."""

    def __init__(self, decoders: int) -> None:
        self._descriptor = os.memfd_create("embereye-frames")
        os.ftruncate(self._descriptor, decoders * SHARE_BYTES)
        self._memory = mmap.mmap(self._descriptor, decoders * SHARE_BYTES)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def share(self, number: int) -> memoryview:
        """The memory of decoder `number`."""
        begin = number * SHARE_BYTES
        return memoryview(self._memory)[begin : begin + SHARE_BYTES]

    def release(self, number: int, slots: Iterable[int]) -> None:
        """Free the memory of `slots` of decoder `number`; they read as zeros afterwards."""
        for slot in slots:
            self._memory.madvise(mmap.MADV_REMOVE, number * SHARE_BYTES + slot * SLOT_BYTES, SLOT_BYTES)

    def fork(self, number: int) -> socket.socket:
        """Fork decoder `number` and return the socket to it; raise OSError if that is impossible now."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._running_control(), [bytes([number])], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def _running_control(self) -> socket.socket:
        """The socket of the forking process. Starts the process if none runs."""
        if self._process is None or self._process.poll() is not None:
            self._control, theirs = socket.socketpair()
            with theirs:
                descriptors = theirs.fileno(), self._descriptor
                command = [sys.executable, "-m", "embereye.camera.decode.process", *map(str, descriptors)]
                self._process = subprocess.Popen(command, pass_fds=descriptors)
        assert self._control
        return self._control

    def stop(self) -> None:
        """End the process. Decoders end once their sockets are closed."""
        if self._process:
            assert self._control
            self._control.close()
            self._process.wait()
            self._process = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(eq=False)
class DecoderProcess:
    """One decoder process and its successors. It answers orders in the order in which they were sent.

    `on_replies` raises GarbledError if a reply answers no order.
    """

    number: int
    forker: Forker
    on_ready: Callable[[], None]
    on_start: Callable[[], None]  # orders that its predecessor did not finish can be sent again
    on_replies: Callable[[Iterator[Reply]], None]
    on_end: Callable[[bool], None]  # the process has ended; True: its replies were garbled
    link: socket.socket | None = None  # None: the process is starting
    _unsent: list[bytes] = field(default_factory=list)  # orders for the next message
    _backoff: Backoff = field(default_factory=lambda: Backoff(floor=0.05, cap=5.0))

    def __post_init__(self) -> None:
        self.memory = self.forker.share(self.number)
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._failing = Condition(logger, begin=logging.ERROR)  # the latest process was replaced

    @property
    def slot_in_work(self) -> int:
        """The slot on which the process works, or worked when it ended; AT_NONE: on none."""
        return self.memory[MARK]

    def start(self) -> None:
        """Fork a process; if that is impossible, try again later."""
        if self._closed:
            return
        try:
            link = self.forker.fork(self.number)
        except OSError as error:
            logger.warning("decoder %d: cannot be started; trying again (%s)", self.number, error)
            self.start_later()
            return
        self.link, self.memory[MARK] = link, AT_NONE
        self._unsent.clear()
        self._loop.add_reader(link, self.read)
        self.on_start()

    def start_later(self) -> None:
        """Fork a process after a pause, which grows with each attempt until a decoder replies."""
        self._loop.call_later(self._backoff.next(), self.start)

    def send(self, order: bytes) -> None:
        """Send `order` with the next `flush`."""
        self._unsent.append(order)

    def flush(self) -> None:
        """Send the waiting orders, in as few messages as possible. Those that do not fit wait for the next call."""
        while self._unsent and self.link:
            count = size = 0
            for order in self._unsent:
                size += len(order)
                if count and size > MESSAGE_BYTES:
                    break
                count += 1
            try:
                self.link.send(b"".join(self._unsent[:count]))
            except OSError:
                # Full: the decoder is late. Or it ended: reading detects that, and its successor gets the orders again.
                return
            del self._unsent[:count]

    def read(self) -> None:
        """Read one message of the process, or notice its end."""
        link = self.link
        if link is None:
            return
        try:
            message = link.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            # It died with orders unread. The kernel reports that once, before the replies that it did send.
            while self.link is link:
                self.read()
            return
        if not message:
            self._end(garbled=False)
        elif message == READY:
            self.on_ready()
        elif message.startswith(READY[:5]):
            self._report("it runs the code of another version of EmberEye. Restart this process")
            self.memory[MARK] = AT_NONE  # no frame is to blame
            self._end(garbled=False)
        else:
            try:
                self.on_replies(read_replies(message))
            except GarbledError as error:
                self._report(f"garbled reply: {error}")
                self._end(garbled=True)
            else:
                self._failing.clear()
                self._backoff.reset()

    def _report(self, reason: str) -> None:
        self._failing.fail(reason, "decoder %d: %s", self.number, reason)

    def _end(self, *, garbled: bool) -> None:
        self._disconnect()
        self.on_end(garbled)

    def close(self) -> None:
        """End the process and start no other one."""
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self.link:
            self._loop.remove_reader(self.link)
            # Not at once: its successor's socket would get the same number, and uvloop would miss its events.
            self._loop.call_soon(self.link.close)
            self.link = None
