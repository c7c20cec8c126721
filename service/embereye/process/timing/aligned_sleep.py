"""Sleep in step: a process does its periodic work together, because waking up costs more than most of the work."""

import asyncio
import random
import time

PHASE = random.random()  # seconds, random so that the processes of one machine are not in step with each other


def until_aligned(period: float) -> float:
    """Seconds until the next multiple of `period` on this process's clock, or the one after if that is very near.

    Sleeps whose periods are multiples of each other end together.
    """
    rest = period - (time.monotonic() + PHASE) % period
    return rest if rest > period / 8 else rest + period  # a timer may have fired early


async def aligned_sleep(period: float) -> None:
    """Sleep for about `period` seconds, in step with all other aligned sleeps."""
    await asyncio.sleep(until_aligned(period))
