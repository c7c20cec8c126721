"""A limit on simultaneous connection attempts (dials) that does not wait for cameras that never answer."""

import asyncio

PATIENCE = 0.5  # seconds; a working camera answers in a tenth of it
STARTS = 8  # players that start at the same time; each takes a second of CPU


class DialLimiter(asyncio.Semaphore):
    """An asynchronous context manager around a dial. It waits while `count` dials are in progress.

    A dial that takes longer than `patience` seconds continues but no longer counts. Use `starts` instead for starting a
    player, which is slow because it costs CPU time. Cancelling a dial releases its place.
    """

    def __init__(self, count: int, patience: float = PATIENCE) -> None:
        super().__init__(count)
        self.starts = asyncio.Semaphore(STARTS)
        self._patience = patience
        self._timers: dict[asyncio.Task[object] | None, asyncio.TimerHandle] = {}

    async def __aenter__(self) -> None:
        await self.acquire()
        task = asyncio.current_task()
        self._timers[task] = asyncio.get_running_loop().call_later(self._patience, self._release_place, task)

    async def __aexit__(self, *_: object) -> None:
        self._release_place(asyncio.current_task())

    def _release_place(self, task: "asyncio.Task[object] | None") -> None:
        if timer := self._timers.pop(task, None):
            timer.cancel()
            self.release()
