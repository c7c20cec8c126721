import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession, web
from prometheus_client import CollectorRegistry

from embereye.process.addresses import free_port
from embereye.process.http.server import bound_port, metrics_app, serve_http
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


@pytest.mark.parametrize("ours", [False, True], ids=["aiohttp's", "ours"])
async def test_only_faults_of_ours_are_logged_by_the_server(ours: bool, caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        begun.set()
        protocol: Any = request.protocol
        while protocol._handler_waiter is None:  # until the server stops
            await asyncio.sleep(0)
        if ours:
            done = asyncio.get_running_loop().create_future()
            done.set_result(None)
            done.set_result(None)
        protocol._handler_waiter.cancel()  # as the end of its patience does
        return web.Response()

    app = web.Application()
    app.router.add_get("/", answer)
    runner = await serve_http(app, "127.0.0.1", 0)
    async with ClientSession() as session:
        asking = asyncio.ensure_future(session.get(f"http://127.0.0.1:{bound_port(runner)}/"))
        await begun.wait()
        await runner.cleanup()
        await asyncio.gather(asking, return_exceptions=True)
    assert bool(caplog.records) == ours


@pytest.mark.parametrize(("size", "status"), [(32 * 1024, 200), (64 * 1024, 400)])
async def test_cookies_of_other_programs_on_the_host_may_have_32_kb(size: int, status: int) -> None:
    runner = await serve_http(metrics_app(CollectorRegistry()), "127.0.0.1", 0)
    cookie = "; ".join(f"c{number}={'x' * 4000}" for number in range(20))[:size]
    async with (
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{bound_port(runner)}/healthz", headers={"Cookie": cookie}) as answer,
    ):
        assert answer.status == status
    await runner.cleanup()


@pytest.mark.parametrize(
    "request_text", ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /nothing HTTP/1.0\r\n\r\n", "\0\r\n\r\n"]
)
async def test_no_answer_tells_the_versions_of_our_libraries(request_text: str) -> None:
    runner = await serve_http(metrics_app(CollectorRegistry()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", bound_port(runner))
    writer.write(request_text.encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await runner.cleanup()
    assert head.startswith(b"HTTP/1.")
    assert b"aiohttp" not in head
    assert b"Python" not in head
