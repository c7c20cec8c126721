"""Tasks that somebody answers for: every task of the service is started here or by an `asyncio.TaskGroup`.

A bare task that fails is noticed when the garbage collector finds it, or never. Each of these says how its failure is
noticed: `Tasks` by its owner, `start_task` in the log, `beside` by the block that it runs beside.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


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
        task = start_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if failure_of(task) is not None:
            self.failed.set()

    async def stop(self) -> None:
        """Cancel what still runs, with what that starts as it ends, and wait for it. Cancelling this ends the wait."""
        while tasks := set(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._tasks -= tasks

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def first_of(*waits: Coroutine[Any, Any, Any], timeout: float | None = None) -> bool:
    """Wait until one of `waits` is over, and cancel the others; False if `timeout` seconds passed first."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def start_task(coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Run `coroutine` as a task that the caller keeps and cancels; where it fails, that is logged at once."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_log_failure)
    return task


def failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Why a task that is over failed; None where it did not.

    A cancellation that nobody asked for is a failure: a library ended the task from within, and nobody would notice.
    """
    if not task.cancelled():
        return task.exception()
    return None if task.cancelling() else CalledOffError(f"task {task.get_name()} was cancelled by nobody")


def _log_failure(task: asyncio.Task[Any]) -> None:
    if (error := failure_of(task)) is not None:
        logger.error("task %s failed", task.get_name(), exc_info=error)


class CalledOffError(Exception):
    """What was awaited was cancelled, and nobody had asked for it."""


@contextmanager
def no_stray_cancellation(what: str) -> Iterator[None]:
    """Within the block a cancellation of the running task goes through; any other becomes CalledOffError.

    gRPC cancels a call whose requests cannot be made, and raises that where the call is awaited.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CalledOffError(f"{what} was called off") from error


def raise_if_cancelled() -> None:
    """Raise the cancellation of the running task that a library, called before this, has swallowed.

    Before Python 3.12 `asyncio.wait_for` does where what it waits for is over in the same moment, and whoever cancelled
    the task waits for its end for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def beside(coroutine: Coroutine[Any, Any, T], *, name: str) -> AsyncIterator[asyncio.Task[T]]:
    """Run `coroutine` while the block runs; at its end the task is cancelled and waited for.

    Its result and its exception are the block's to ask for. What nobody asked for, the event loop logs.
    """
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
