"""Waiting for something to arrive, but not giving up because this process itself stood still."""

import asyncio
from types import TracebackType
from typing import Self

LATE_SECONDS = 1.0  # that a timer is late, from which on its process is taken to have stood still


class SilenceTimeout:
    """`asyncio.timeout(seconds)` for who waits for what others send; `renew` begins it anew.

    So does a suspended machine or a stopped process as it goes on: what came meanwhile is there, but nobody has read
    it yet, as timers may be called first. Once, until something has come: a loop that has too much to do is late each
    time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._since = 0.0  # loop time
        self._excused = False  # it stood still since something came
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
        """Something has come."""
        self._since, self._excused = asyncio.get_running_loop().time(), False

    def _wait(self) -> None:
        due = self._since + self._seconds
        self._timer = asyncio.get_running_loop().call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        if now - due > LATE_SECONDS and not self._excused:
            self._since, self._excused = now, True
        if now - self._since < self._seconds:
            self._wait()
        else:
            self._timeout.reschedule(now)
