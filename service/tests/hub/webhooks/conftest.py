"""Somebody's server, which webhooks call."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from .receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/{tail:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.port = int(runner.addresses[0][1])
    yield found
    await runner.cleanup()
