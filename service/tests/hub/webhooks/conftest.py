"""A server that webhooks call."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from .receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{tail:.*}", receiver.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.port = int(runner.addresses[0][1])
    yield receiver
    await runner.cleanup()
