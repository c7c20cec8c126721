"""Tasks with an owner: every task of the service is started here or by an `asyncio.TaskGroup`.

The failure of a bare task is noticed only when it is garbage-collected, if at all. Here it is noticed by the owner
(`Tasks`), in the log (`start_task`), or by the block that the task runs alongside (`beside`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Tasks:
    """The named background tasks of one owner.

    `async with Tasks() as tasks:` cancels and awaits the remaining tasks at its end. If a task fails, that is logged
    and `failed` is set, on which the owner should end.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed = asyncio.Event()

    def start(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `coroutine` as a task of this owner."""
        task = start_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if failure_of(task) is not None:
            self.failed.set()

    async def stop(self) -> None:
        """Cancel all tasks, also those that they start as they end, and wait for them. Cancelling ends the wait."""
        while tasks := set(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._tasks -= tasks

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def run_together(subject: str, *runs: tuple[str, Coroutine[Any, Any, None]]) -> None:
    """Run coroutines as tasks with these names until cancelled; RuntimeError that names `subject` if a task fails."""
    async with Tasks() as tasks:
        for name, run in runs:
            tasks.start(run, name=name)
        await tasks.failed.wait()
    raise RuntimeError(f"a task of {subject} failed")


async def first_of(*waits: Coroutine[Any, Any, Any], timeout: float | None = None) -> bool:
    """Wait until one of `waits` ends, and cancel the others; False if `timeout` seconds passed first."""
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
    """Run `coroutine` as a task that the caller stores and cancels; a failure is logged at once."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_log_failure)
    return task


def failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """The exception of a finished task; None if it succeeded or was cancelled by request.

    A cancellation without a request is a failure: a library ended the task from within.
    """
    if not task.cancelled():
        return task.exception()
    return (
        None
        if task.cancelling()
        else UnrequestedCancellationError(f"task {task.get_name()}: cancelled without a request")
    )


def _log_failure(task: asyncio.Task[Any]) -> None:
    if (error := failure_of(task)) is not None:
        logger.error("task %s failed", task.get_name(), exc_info=error)


class UnrequestedCancellationError(Exception):
    """An awaited operation was cancelled, but nothing requested that."""


@contextmanager
def no_stray_cancellation(operation: str) -> Iterator[None]:
    """Convert a cancellation in the block to UnrequestedCancellationError, unless the running task is being cancelled.

    gRPC cancels a call whose requests cannot be made, and raises the cancellation in the task that awaits the call.
    A call that fails at the same moment as the task is cancelled may raise its error instead: then the cancellation is
    raised at the end of the block.
    """
    try:
        yield
        raise_if_cancelled()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UnrequestedCancellationError(f"{operation}: cancelled without a request") from error
    except Exception:
        raise_if_cancelled()
        raise


def raise_if_cancelled() -> None:
    """Raise the running task's cancellation again if a library has swallowed it.

    Before Python 3.12, `asyncio.wait_for` swallows it if its awaitable ends at the same moment; the task would then
    never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def beside(coroutine: Coroutine[Any, Any, T], *, name: str) -> AsyncIterator[asyncio.Task[T]]:
    """Run `coroutine` alongside the block; at the block's end, cancel the task and wait for it.

    The block may read the task's result or exception; the event loop logs an exception that was not read.
    """
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
