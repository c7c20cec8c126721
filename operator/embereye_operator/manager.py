"""What an operator process runs: the controller, its bid for the lease, and what is to be closed after them."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Self

from embereye.process.tasks import Tasks, first_of
from embereye_operator.controller import Controller
from embereye_operator.runtime.kubernetes.lease import Election

logger = logging.getLogger(__name__)


class Manager:
    """Starts and stops everything once. It is kopf's memo: what kopf hands to every handler."""

    def __init__(
        self, controller: Controller, election: Election | None, stopping: asyncio.Event, closing: AsyncExitStack
    ) -> None:
        """`stopping` ends the operator, whoever sets it; `closing` is what is closed last."""
        self.controller = controller
        self.stopping = stopping
        self.failed = False  # whether it ends because something here failed
        self._election = election
        self._tasks = Tasks()
        self._closing = closing
        closing.push_async_callback(self._let_go)

    def __copy__(self) -> Self:
        """Kopf copies its memo for each object that it sees; this is one for all of them."""
        return self

    async def start(self) -> None:
        """Begin to work; over once all that there is has been listed, which kopf's watches build on.

        kopf looks for the resources only once: they have been listed before it does. Whoever cannot see the world
        yet does not stand for election.
        """
        self._tasks.start(self._end_on_failure(), name="end-on-failure")
        self._tasks.start(self.controller.run(), name="controller")
        await first_of(self.controller.synced(), self.stopping.wait())
        if self._election and not self.stopping.is_set():
            self._election.changed = self.controller.lead
            self._tasks.start(self._election.run(), name="election")

    async def stop(self) -> None:
        """Let everything end, then let somebody else lead, then close; what is over already stays over."""
        await self._closing.aclose()

    async def _end_on_failure(self) -> None:
        await self._tasks.failed.wait()
        self.failed = True
        self.stopping.set()

    async def _let_go(self) -> None:
        await self._tasks.stop()
        if self._election:
            await self._election.release()
