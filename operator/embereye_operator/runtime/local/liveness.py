"""Asks processes whether they live, as a kubelet asks containers: one that hangs neither works nor ends by itself."""

import asyncio

import aiohttp

PERIOD_SECONDS = 10.0  # these three as in the chart and in the shards' manifests
TIMEOUT_SECONDS = 3.0
FAILURES = 3  # in a row
SAID_CHARACTERS = 200  # of an answer, at most


async def until_hung(page: str) -> str:
    """Ask the page at `page`, an http URL, again and again; return why its process hangs, once it is seen to.

    What has never answered is starting, however long that takes, and whoever waits for it sees that it is not ready.
    """
    lived, failures, why = False, 0, ""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        while failures < FAILURES:
            await asyncio.sleep(PERIOD_SECONDS)
            why = await _ask(session, page)
            lived = lived or not why
            failures = failures + 1 if why and lived else 0
    return why


async def _ask(session: aiohttp.ClientSession, page: str) -> str:
    """Why `page` does not say that its process lives; '' where it does."""
    try:
        async with session.get(page) as response:
            said = (await response.content.read(SAID_CHARACTERS)).decode(errors="replace")
            return "" if response.ok else f"it said that it does not live: {said.strip()}"
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError among them
        slow = isinstance(error, TimeoutError)
        return f"it did not answer within {TIMEOUT_SECONDS:g} s" if slow else f"it could not be asked: {error}"
