"""Wait in a test until something has happened."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

PAUSE_SECONDS = 0.005  # between two looks at the condition


async def eventually(condition: Callable[[], Any], seconds: float = 60.0, goal: str = "") -> Any:
    """Return the first true result of `condition`, which may be awaitable; AssertionError after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                result = condition()
                if inspect.isawaitable(result):
                    result = await result
                if result:
                    return result
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError as error:
        raise AssertionError(f"{goal or 'a condition does not hold'}: not within {seconds:g} s") from error
