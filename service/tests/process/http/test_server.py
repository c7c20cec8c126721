import asyncio

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry

from embereye.process.addresses import free_port
from embereye.process.http.server import metrics_app, serve_http
from embereye.process.lifecycle import UserError


@pytest.mark.parametrize("host", ["[::]", "0.0.0.0"])
async def test_every_address_means_ipv4_too(host: str) -> None:
    port = free_port()
    runner = await serve_http(metrics_app(CollectorRegistry()), host, port)
    try:
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert await answer.text() == "ok\n"
    finally:
        await runner.cleanup()


async def test_a_taken_port_is_one_sentence() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(UserError, match=rf"cannot listen for HTTP on 127\.0\.0\.1:{port}"):
        await serve_http(metrics_app(CollectorRegistry()), "127.0.0.1", port)
    server.close()
