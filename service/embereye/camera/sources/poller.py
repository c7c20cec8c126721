"""Polling of the sockets of many cameras together.

All sockets are in one epoll, which the event loop watches. If one is readable, all readable ones are read in one pass.
While data keeps coming, a timer replaces the event loop's watch, so that there is one wake-up per period instead of one
per packet. In a quiet moment the event loop watches again. All readers share one buffer, so each has to use the data
before it returns.
"""

import asyncio
import logging
import select
from collections.abc import Callable

logger = logging.getLogger(__name__)

# Between two polls while sockets are busy. The packets of a picture arrive close together, and handling many cameras'
# pictures together finds warm caches.
POLL_SECONDS = 0.008
PATIENT_SECONDS = 0.016  # the same if all sockets are patient
QUIET_POLLS = 2.0  # periods without an incomplete picture, after which the next picture is probably alone
DATAGRAM = 65_536  # bytes of the largest datagram, and of the most that the kernel joins


class SocketPoller:
    """Calls the readers of all readable sockets together, every POLL_SECONDS while they are busy.

    A wake-up per packet would cost more than the packets, and one per camera's picture more than the pictures. A socket
    is patient if its sender waits when the buffer is full. `polled` is called once all have been read.
    """

    def __init__(self, polled: Callable[[], None] = lambda: None) -> None:
        self._polled = polled
        self.buffer = memoryview(bytearray(8 * DATAGRAM))  # sockets are read into it, one at a time
        self._readers: dict[int, Callable[[], bool]] = {}
        self._patient: set[int] = set()  # descriptors of the patient sockets
        self._epoll: select.epoll | None = None  # exists while there are sockets
        self._timer: asyncio.TimerHandle | None = None  # next poll, while busy
        self._complete_at = 0.0  # loop time of the latest poll after which no picture was incomplete

    def add(self, descriptor: int, read: Callable[[], bool], *, patient: bool = False) -> None:
        """Call `read` when `descriptor` is readable; a `patient` one may be polled less often.

        `read` runs on the event loop and returns True if the rest of a picture is about to arrive.
        """
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll, self._poll)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = read
        if patient:
            self._patient.add(descriptor)

    def remove(self, descriptor: int) -> None:
        """Stop polling `descriptor`. Call it before closing the descriptor."""
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
            except Exception:  # an error of this socket must not stop the others
                logger.exception("the data read from a socket could not be used")
        alone = now - self._complete_at > QUIET_POLLS * self._period
        if not awaited:
            self._complete_at = now
        if self._epoll is not epoll:
            return  # the last socket was removed
        waiting = self._timer is not None
        if readable and (awaited or not alone):
            if not waiting:
                loop.remove_reader(epoll)
            self._timer = loop.call_later(self._period, self._poll)
        elif waiting:
            self._timer = None
            loop.add_reader(epoll, self._poll)
        self._polled()
