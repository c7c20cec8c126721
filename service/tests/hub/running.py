"""A hub in this process on a test's database, without servers or other processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from harness.stored import Stored

from embereye.hub.hub import Hub


@contextlib.asynccontextmanager
async def running(stored: Stored, retention_ns: int = 10**15) -> AsyncIterator[Hub]:
    """Run a hub that decides and stores; everything is stored when the block ends."""
    threads = stored.threads()
    hub = Hub(threads, retention_ns=retention_ns)
    await hub.open()
    task = asyncio.ensure_future(hub.run())
    try:
        yield hub
    finally:
        await hub.committer.flush(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await threads.close()
