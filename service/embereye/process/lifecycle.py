"""The life of a process: an event loop, a request to stop, an exit code.

`run(main)` starts uvloop and awaits `main(stop)`. SIGTERM and SIGINT set the event `stop`; `main` then cleans up and
returns the exit code. A second signal ends the process at once. A `UserError` from anywhere in `main`, even from a
concurrent task, ends the process with one sentence and the exit code of the error's class. A process that `embereye up`
started also stops when its parent has ended.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import NoReturn

from embereye.process.heap import share_heap
from embereye.process.tasks import Tasks
from embereye.process.telemetry import logs

logger = logging.getLogger(__name__)


# The id of a parent whose death ends this process, so that a killed `embereye up` leaves no processes behind. The
# parent sets it, because it may be gone before this process can ask.
PARENT_VARIABLE = "EMBEREYE_FOLLOW_PARENT"
STACKS_SIGNAL = signal.SIGUSR1  # makes a process write the stacks of all threads to standard error


class UserError(Exception):
    """A mistake that a person can correct: printed as one sentence, without a traceback."""

    exit_code = 2  # usage: an option, a value or a file is wrong

    def __init__(self, sentence: str, hint: str = "") -> None:
        """Carry a sentence about what is wrong; `hint` says on a second line what to do."""
        super().__init__(sentence)
        self.hint = hint


@contextlib.contextmanager
def value_errors(problem: str) -> Iterator[None]:
    """Raise a UserError, PROBLEM and the reason, instead of a ValueError of the block."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{problem}{error}") from error


class CheckFailedError(UserError):
    """The answer to a question is no: a check, a test or a measurement failed."""

    exit_code = 1


class UnreachableError(UserError):
    """The hub, a shard or the cluster does not answer."""

    exit_code = 3


class RefusedError(UserError):
    """The hub, a shard or the cluster refuses the request."""

    exit_code = 4


class NotFoundError(UserError):
    """There is no such zone, alarm, device, fleet, clip or file."""

    exit_code = 5


def configure_logging(level: str = "INFO") -> None:
    """Log to standard error, one line per record, in the format of --log-format; UserError for an unknown `level`."""
    if level.upper() not in (known := logging.getLevelNamesMapping()):
        raise UserError(f'EMBEREYE_LOG_LEVEL "{level}" is not one of {", ".join(known)}')
    logs.configure(level)


def run(main: Callable[[asyncio.Event], Awaitable[int | None]]) -> int:
    """Run `main(stop)` on a uvloop event loop; SIGTERM and SIGINT set `stop`; return the exit code.

    A second signal ends the process at once.
    """
    import uvloop
    from grpc.aio import init_grpc_aio

    from embereye.process.event_loop import EventLoop

    share_heap()
    raise_descriptor_limit()
    enable_stack_dumps()

    async def guarded() -> int:
        # Otherwise gRPC ends its engine with the last server or channel, and sometimes waits for that forever.
        init_grpc_aio()
        stop = asyncio.Event()
        stop_on_signals(stop)
        async with Tasks() as tasks:
            if parent := os.environ.get(PARENT_VARIABLE):
                tasks.start(_follow_parent(int(parent), stop), name="follow-parent")
            return await main(stop) or 0

    code = 2
    try:
        code = uvloop.run(guarded(), loop_factory=EventLoop)
    except* UserError as errors:  # also those of concurrent tasks
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, UserError)
        code = print_error(error)
    return code


def print_error(error: UserError, program: str = "embereye") -> int:
    """Print what is wrong, and its hint, to standard error; return the exit code."""
    print(f"{program}: {logs.visible(str(error))}", file=sys.stderr)
    if error.hint:
        print(logs.visible(error.hint), file=sys.stderr)
    return error.exit_code


def leave(code: int) -> NoReturn:
    """End the process at once, without the 0.1 s of the interpreter's shutdown. Close everything important first."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def raise_descriptor_limit() -> int:
    """Raise this process's limit of descriptors as far as the system allows; return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def enable_stack_dumps() -> None:
    """Write the stacks of all threads to standard error on a crash, and at STACKS_SIGNAL even if the process hangs."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # no standard error
        if not faulthandler.is_enabled():
            faulthandler.enable()
        faulthandler.register(STACKS_SIGNAL)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Have SIGTERM and SIGINT set `stop` on the running loop, and a second signal end the process."""

    def request_stop() -> None:
        if stop.is_set():
            raise SystemExit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, request_stop)


def stop_thread_on_signals(stop: threading.Event) -> None:
    """Do the same as `stop_on_signals` without an event loop."""

    def request_stop(_: int, __: object) -> None:
        if stop.is_set():
            raise SystemExit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)


async def _follow_parent(parent: int, stop: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    logger.warning("the parent process has ended: stopping")
    stop.set()
