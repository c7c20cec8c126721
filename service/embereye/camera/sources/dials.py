"""Limits how many sources are being connected at the same time, without waiting for those that never answer."""

import asyncio

PATIENCE = 0.5  # seconds; a camera that is up answers in a tenth of it
STARTS = 8  # players that are being started at the same time; each takes a second of CPU


class DialLimiter(asyncio.Semaphore):
    """An asynchronous context manager around a dial; enters wait while `count` dials are going on.

    A dial that takes longer than `patience` seconds goes on, but counts no more. `starts` is entered instead to start a
    player, which takes long because it costs much. Cancelling a dial releases its place.
    """

    def __init__(self, count: int, patience: float = PATIENCE) -> None:
        super().__init__(count)
        self.starts = asyncio.Semaphore(STARTS)
        self._patience = patience
        self._held: dict[asyncio.Task[object] | None, asyncio.TimerHandle] = {}

    async def __aenter__(self) -> None:
        await self.acquire()
        task = asyncio.current_task()
        self._held[task] = asyncio.get_running_loop().call_later(self._patience, self._leave, task)

    async def __aexit__(self, *_: object) -> None:
        self._leave(asyncio.current_task())

    def _leave(self, task: "asyncio.Task[object] | None") -> None:
        if timer := self._held.pop(task, None):
            timer.cancel()
            self.release()
