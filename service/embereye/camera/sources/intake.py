"""Reads the sockets of many cameras together, and keeps the interpreter while it does."""

import asyncio
import ctypes
import errno
import os
import select
import socket
import struct
from collections.abc import Callable

REST_SECONDS = 0.004  # from one look at all sockets to the next: a picture's packets come close together
DATAGRAM = 65_536  # bytes, the largest, and the largest that the kernel joins
_CONTROL = socket.CMSG_SPACE(4)
_SEGMENT = struct.Struct("=i")


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):  # struct msghdr of recvmsg(2)
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Room:
    """Memory that sockets are read into, one at a time.

    Python's own sockets let other threads run during every read. Reading what has arrived takes microseconds; to get
    the interpreter back from threads that decode takes a hundred times that.
    """

    def __init__(self, size: int) -> None:
        memory = (ctypes.c_char * size)()
        self.view = memoryview(memory).cast("B")
        self._address = ctypes.addressof(memory)
        self._control = (ctypes.c_char * _CONTROL)()
        self._vector = _Vector()
        self._message = _Message(
            vectors=ctypes.pointer(self._vector), vector_count=1, control=ctypes.addressof(self._control)
        )
        self._receive = ctypes.PyDLL(None, use_errno=True).recvmsg
        self._receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        self._receive.restype = ctypes.c_ssize_t
        self._pointer = ctypes.addressof(self._message)

    def receive(self, descriptor: int, start: int = 0) -> tuple[int, int]:
        """Read what one read gives to `view[start:]`: its bytes, and the size of all datagrams of them but the last.

        BlockingIOError where nothing waits, OSError as recv(2).
        """
        self._vector.base = self._address + start
        self._vector.length = len(self.view) - start
        self._message.control_length = _CONTROL
        size: int = self._receive(descriptor, self._pointer, socket.MSG_DONTWAIT)
        if size < 0:
            code = ctypes.get_errno()
            raise (BlockingIOError if code == errno.EAGAIN else OSError)(code, os.strerror(code))
        if self._message.control_length:  # UDP_GRO's
            return size, max(1, _SEGMENT.unpack_from(self._control, socket.CMSG_LEN(0))[0])
        return size, size


class Intake:
    """Looks at the sockets of all cameras of one event loop together, every REST_SECONDS while anything comes.

    A wake-up for every packet would cost more than the packets; one for every camera's picture, more than the pictures.
    """

    def __init__(self) -> None:
        self.room = Room(4 * DATAGRAM)
        self._readers: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None  # while there are any
        self._timer: asyncio.TimerHandle | None = None  # while anything comes

    def add(self, descriptor: int, read: Callable[[], None]) -> None:
        """Call `read`, which must not raise, when `descriptor` has something to be read."""
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll, self._look)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = read

    def remove(self, descriptor: int) -> None:
        """Look at `descriptor`, which is not closed yet, no more."""
        assert self._epoll
        self._epoll.unregister(descriptor)
        del self._readers[descriptor]
        if self._readers:
            return
        if self._timer:
            self._timer.cancel()
            self._timer = None
        else:
            asyncio.get_running_loop().remove_reader(self._epoll)
        self._epoll.close()
        self._epoll = None

    def _look(self) -> None:
        assert self._epoll
        loop = asyncio.get_running_loop()
        readable = self._epoll.poll(0)
        if readable:
            if self._timer is None:
                loop.remove_reader(self._epoll)
            self._timer = loop.call_later(REST_SECONDS, self._look)
        elif self._timer:
            self._timer = None
            loop.add_reader(self._epoll, self._look)
        for descriptor, _ in readable:
            if read := self._readers.get(descriptor):
                read()
