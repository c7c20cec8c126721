"""Liveness checks of processes, as a kubelet does for containers: a process that hangs neither works nor ends."""

import asyncio

import aiohttp

PERIOD_SECONDS = 10.0  # these three equal those in the chart and in the shards' manifests
TIMEOUT_SECONDS = 10.0  # long, because a process that works may answer late on a busy machine
FAILURES = 3  # in a row
ANSWER_CHARACTERS = 200  # of an answer in a message


async def until_hung(page: str) -> str:
    """Check `page`, an http URL, periodically; return the reason once its process hangs.

    A process that has never answered is starting, however long that takes; others see that it is not ready.
    """
    lived, failures, why = False, 0, ""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        while failures < FAILURES:
            why, _ = await asyncio.gather(_check(session, page), asyncio.sleep(PERIOD_SECONDS))
            lived = lived or not why
            failures = failures + 1 if why and lived else 0
    return why


async def _check(session: aiohttp.ClientSession, page: str) -> str:
    """Return why `page` does not confirm that its process is alive; '' if it does."""
    try:
        async with session.get(page) as response:
            answer = (await response.content.read(ANSWER_CHARACTERS)).decode(errors="replace")
            return "" if response.ok else f"it reported a failure: {answer.strip()}"
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError among them
        slow = isinstance(error, TimeoutError)
        return f"it did not answer within {TIMEOUT_SECONDS:g} s" if slow else f"it could not be reached: {error}"
