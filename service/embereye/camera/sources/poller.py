"""Reads the sockets of many cameras together."""

import asyncio
import logging
import select
from collections.abc import Callable

logger = logging.getLogger(__name__)

REST_SECONDS = 0.004  # from one look at all sockets to the next: a picture's packets come close together
ALONE_SECONDS = 0.016  # without anything, after which what comes is all there is for a while
DATAGRAM = 65_536  # bytes, the largest, and the largest that the kernel joins


class Intake:
    """Looks at the sockets of all cameras of one event loop together, every REST_SECONDS while they are busy.

    A wake-up for every packet would cost more than the packets; one for every camera's picture, more than the pictures.
    """

    def __init__(self) -> None:
        self.room = memoryview(bytearray(8 * DATAGRAM))  # that sockets are read into, one at a time
        self._readers: dict[int, Callable[[], bool]] = {}
        self._epoll: select.epoll | None = None  # while there are any
        self._timer: asyncio.TimerHandle | None = None  # while it rests
        self._whole = 0.0  # the loop's time when it had looked, and no picture was in part there

    def add(self, descriptor: int, read: Callable[[], bool]) -> None:
        """Call `read` when `descriptor` has something to be read.

        It returns whether the rest of something that it has read is to come at once.
        """
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
        epoll = self._epoll
        assert epoll
        loop = asyncio.get_running_loop()
        readable = epoll.poll(0)
        now = loop.time()
        awaited = False
        for descriptor, _ in readable:
            try:
                if read := self._readers.get(descriptor):
                    awaited |= read()
            except Exception:  # this socket's own, and others wait behind it
                logger.exception("what came could not be taken")
        alone = now - self._whole > ALONE_SECONDS
        if not awaited:
            self._whole = now
        if self._epoll is not epoll:
            return  # there is none of those sockets any more
        resting = self._timer is not None
        if readable and (awaited or not alone):
            if not resting:
                loop.remove_reader(epoll)
            self._timer = loop.call_later(REST_SECONDS, self._look)
        elif resting:
            self._timer = None
            loop.add_reader(epoll, self._look)
