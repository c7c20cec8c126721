"""Sleeping in step. What a process does now and then it does together: to wake up costs more than most of it."""

import asyncio
import time


def until_beat(period: float) -> float:
    """Seconds until the monotonic clock shows a multiple of `period`, the next one or, where that is near, the second.

    Those of periods that are multiples of each other fall together.
    """
    rest = period - time.monotonic() % period
    return rest if rest > period / 2 else rest + period  # a timer may have fired early


async def beat(period: float) -> None:
    """Sleep for about `period` seconds, in step with all others who do."""
    await asyncio.sleep(until_beat(period))
