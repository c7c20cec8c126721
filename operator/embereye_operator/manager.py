"""The parts of an operator process: the controller, its election, and the resources to close after them.

`start` runs the controller, waits until everything is listed, and only then joins the election. A task that fails ends
the whole operator, so that Kubernetes restarts it. `stop` works backwards: it stops the tasks, then releases the lease,
so that no other replica leads while this one still writes, and then closes the rest.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Self

from embereye.process.tasks import Tasks, first_of
from embereye_operator.controller import Controller
from embereye_operator.runtime.kubernetes.lease import Election

logger = logging.getLogger(__name__)


class Manager:
    """Starts and stops all parts once. kopf passes it to every handler as its memo."""

    def __init__(
        self, controller: Controller, election: Election | None, stopping: asyncio.Event, closing: AsyncExitStack
    ) -> None:
        """Store the parts: `stopping` ends the operator, and `closing` is closed last."""
        self.controller = controller
        self.stopping = stopping
        self.failed = False  # the operator ends because a part failed
        self._election = election
        self._tasks = Tasks()
        self._closing = closing
        closing.push_async_callback(self._release)

    def __copy__(self) -> Self:
        """Return the same object: kopf copies its memo for each object that it sees."""
        return self

    async def start(self) -> None:
        """Start all parts; returns once all objects have been listed, because kopf's watches rely on that.

        kopf searches for resources only once, after this. A replica joins the election only once it has listed
        everything.
        """
        self._tasks.start(self._end_on_failure(), name="end-on-failure")
        self._tasks.start(self.controller.run(), name="controller")
        await first_of(self.controller.synced(), self.stopping.wait())
        if self._election and not self.stopping.is_set():
            self._election.changed = self.controller.lead
            self._tasks.start(self._election.run(), name="election")

    async def stop(self) -> None:
        """Stop the tasks, then release the lease, then close; may be called repeatedly."""
        await self._closing.aclose()

    async def _end_on_failure(self) -> None:
        await self._tasks.failed.wait()
        self.failed = True
        self.stopping.set()

    async def _release(self) -> None:
        await self._tasks.stop()
        if self._election:
            await self._election.release()
