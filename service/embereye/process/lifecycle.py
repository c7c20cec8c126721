"""The life of a process: an event loop, a request to stop, an exit code."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from embereye.process import logs

logger = logging.getLogger(__name__)


# The id of a parent whose death is to end this process: nothing is left running behind a killed `embereye up`. The
# parent says who it is itself: it may be gone before this process can ask.
PARENT_VARIABLE = "EMBEREYE_FOLLOW_PARENT"


class UserError(Exception):
    """What a person can mend: printed as one sentence, without a traceback, with exit code 2."""


def configure_logging(level: str = "INFO") -> None:
    """Log to standard error, one line a record, as --log-format says."""
    logs.configure(level)


def run(main: Callable[[asyncio.Event], Awaitable[int | None]]) -> int:
    """Run `main(stop)` on a uvloop event loop; SIGTERM and SIGINT set `stop`; return the exit code.

    A second signal while stopping ends the process at once, as people expect of Ctrl-C pressed twice.
    """
    import uvloop

    async def guarded() -> int:
        stop = asyncio.Event()
        stop_on_signals(stop)
        async with Tasks() as tasks:
            if parent := os.environ.get(PARENT_VARIABLE):
                tasks.start(_follow_parent(int(parent), stop), name="follow-parent")
            return await main(stop) or 0

    try:
        return uvloop.run(guarded())
    except UserError as error:
        print(f"embereye: {error}", file=sys.stderr)
        return 2


def stop_on_signals(stop: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set `stop` on the running loop, and a second one end the process."""

    def request_stop() -> None:
        if stop.is_set():
            raise SystemExit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, request_stop)


async def _follow_parent(parent: int, stop: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    logger.warning("the process that started this one is gone: stopping")
    stop.set()


class Tasks:
    """The named background tasks of one owner: none is forgotten, a crash of one is the owner's crash.

    `async with Tasks() as tasks:` cancels and awaits what is left on the way out; `failed` is set, and logged, when a
    task ends with an exception that nobody else would see.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed = asyncio.Event()

    def start(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `coroutine` as a task that this owner looks after."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("task %s failed", task.get_name(), exc_info=error)
            self.failed.set()

    async def stop(self) -> None:
        """Cancel what still runs and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def first_of(*waits: Coroutine[Any, Any, Any], timeout: float | None = None) -> bool:
    """Wait until one of `waits` is over, and cancel the others; False if `timeout` seconds passed first."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
