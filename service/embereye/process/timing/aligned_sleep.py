"""Sleeping in step. What a process does now and then it does together: to wake up costs more than most of it."""

import asyncio
import random
import time

PHASE = random.random()  # seconds: processes of one machine are not in step with each other


def until_aligned(period: float) -> float:
    """Seconds until the next multiple of `period` on this process' clock, or the second one where that is very near.

    Those of periods that are multiples of each other fall together.
    """
    rest = period - (time.monotonic() + PHASE) % period
    return rest if rest > period / 8 else rest + period  # a timer may have fired early


async def aligned_sleep(period: float) -> None:
    """Sleep for about `period` seconds, in step with all others who do."""
    await asyncio.sleep(until_aligned(period))
