"""A timeout for messages of a peer that does not expire because this process itself stalled."""

import asyncio
from types import TracebackType
from typing import Self

LATE_SECONDS = 1.0  # a timer that is later than this means that the process stalled


class SilenceTimeout:
    """`asyncio.timeout(seconds)` while waiting for a peer's messages; call `renew` for each message.

    After a stall (a suspended machine, a stopped process) it restarts once: messages have arrived meanwhile, but timers
    may run before they are read. Only once until the next message, because an overloaded loop is late every time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._since = 0.0  # loop time
        self._excused = False  # it was restarted since the last message
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self.renew()
        self._wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def renew(self) -> None:
        """Restart the timeout: a message has arrived."""
        self._since, self._excused = asyncio.get_running_loop().time(), False

    def _wait(self) -> None:
        due = self._since + self._seconds
        self._timer = asyncio.get_running_loop().call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        if now - due > LATE_SECONDS and not self._excused:
            self._since, self._excused = now, True
        if now - self._since < self._seconds:
            self._wait()
        else:
            self._timeout.reschedule(now)
