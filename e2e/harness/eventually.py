"""Wait in a test until something has happened: `eventually` on an event loop, `wait_for` without one."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PAUSE_SECONDS = 0.005  # between two looks at the condition
LONG_PAUSE_SECONDS = 0.05  # the same where a look asks another process
A_CONDITION = "a condition does not hold"
Goal = str | Callable[[], object]  # or what to say of it once it was missed


async def eventually(
    condition: Callable[[], Any], seconds: float = 60.0, goal: Goal = A_CONDITION, pause: float = PAUSE_SECONDS
) -> Any:
    """Return the first true result of `condition`, which may be awaitable; AssertionError after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                result = condition()
                if inspect.isawaitable(result):
                    result = await result
                if result:
                    return result
                await asyncio.sleep(pause)
    except TimeoutError as error:
        raise _missed(goal, seconds) from error


def wait_for(condition: Callable[[], Any], goal: Goal = A_CONDITION, seconds: float = 60.0) -> Any:
    """Return the first true result of `condition`, which may block the thread; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise _missed(goal, seconds)
        time.sleep(LONG_PAUSE_SECONDS)
    return result


def _missed(goal: Goal, seconds: float) -> AssertionError:
    return AssertionError(f"{goal if isinstance(goal, str) else goal()}: not within {seconds:g} s")
