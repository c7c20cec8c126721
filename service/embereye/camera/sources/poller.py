"""Polls the sockets of many cameras together."""

import asyncio
import logging
import select
from collections.abc import Callable

logger = logging.getLogger(__name__)

# Between two polls while sockets are busy: the packets of a picture come close together, and the pictures of many
# cameras that are handled together find code and data in the caches.
POLL_SECONDS = 0.008
PATIENT_SECONDS = 0.016  # the same where all sockets are patient
QUIET_POLLS = 2.0  # as much time without data, after which one picture that comes is probably alone
DATAGRAM = 65_536  # bytes of the largest datagram, and of the most that the kernel joins


class SocketPoller:
    """Calls the readers of all readable sockets of one event loop together, every POLL_SECONDS while they are busy.

    A wake-up for every packet would cost more than the packets; one for every camera's picture, more than the pictures.
    A socket is patient if its sender waits where its buffer is full. `polled` is called once all have been read.
    """

    def __init__(self, polled: Callable[[], None] = lambda: None) -> None:
        self._polled = polled
        self.buffer = memoryview(bytearray(8 * DATAGRAM))  # that sockets are read into, one at a time
        self._readers: dict[int, Callable[[], bool]] = {}
        self._patient: set[int] = set()  # those of them
        self._epoll: select.epoll | None = None  # while there are any
        self._timer: asyncio.TimerHandle | None = None  # while busy: the next poll
        self._settled = 0.0  # loop time of the latest poll after which no picture was incomplete

    def add(self, descriptor: int, read: Callable[[], bool], *, patient: bool = False) -> None:
        """Call `read` when `descriptor`, a `patient` one or not, has something to be read.

        `read` returns whether the rest of a picture is expected at once; it runs on the event loop.
        """
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll, self._poll)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = read
        if patient:
            self._patient.add(descriptor)

    def remove(self, descriptor: int) -> None:
        """Stop polling `descriptor`; call it before the descriptor is closed."""
        assert self._epoll
        self._epoll.unregister(descriptor)
        del self._readers[descriptor]
        self._patient.discard(descriptor)
        if self._readers:
            return
        if self._timer:
            self._timer.cancel()
            self._timer = None
        else:
            asyncio.get_running_loop().remove_reader(self._epoll)
        self._epoll.close()
        self._epoll = None

    @property
    def _period(self) -> float:
        """Seconds between two polls."""
        return PATIENT_SECONDS if len(self._patient) == len(self._readers) else POLL_SECONDS

    def _poll(self) -> None:
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
                logger.exception("what came by a socket could not be used")
        alone = now - self._settled > QUIET_POLLS * self._period
        if not awaited:
            self._settled = now
        if self._epoll is not epoll:
            return  # the last of those sockets was removed
        waiting = self._timer is not None
        if readable and (awaited or not alone):
            if not waiting:
                loop.remove_reader(epoll)
            self._timer = loop.call_later(self._period, self._poll)
        elif waiting:
            self._timer = None
            loop.add_reader(epoll, self._poll)
        self._polled()
