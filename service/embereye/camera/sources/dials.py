"""How many sources are being connected at the same time: a storm of dials is avoided, and nobody waits for the dead."""

import asyncio

PATIENCE = 0.5  # seconds; a camera that lives answers in a tenth of it
STARTS = 8  # players that are being started at the same time: each takes a second of CPU


class Dials(asyncio.Semaphore):
    """Entered for a dial. One that takes longer than `patience` goes on, but holds up nobody behind it any more.

    `starts` is entered for the start of a player instead, which takes long because it costs much.
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
