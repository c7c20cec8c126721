"""Periodic work that survives its failures."""

import asyncio
from collections.abc import Awaitable, Callable

from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.tasks import first_of


async def repeat(
    work: Callable[[], Awaitable[object]],
    pause: float | Callable[[], float],
    failing: Condition,
    sentence: str,
    *,
    wake: asyncio.Event,
    expected: tuple[type[Exception], ...] = (),
) -> None:
    """Run `work` until cancelled; again after `pause` seconds, or as soon as `wake` is set.

    An error sets `failing`, which logs it by `sentence`, with a %s for the error. Errors that are `expected` do not.
    """
    while True:
        wake.clear()
        try:
            await work()
            failing.clear()
        except expected:
            pass
        except Exception as error:
            reason = reason_of(error)
            failing.fail(reason, sentence, reason)
        await first_of(wake.wait(), timeout=pause() if callable(pause) else pause)
