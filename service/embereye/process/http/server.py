"""An HTTP server for what people look at: the hub's console."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable

from aiohttp import web, web_protocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from prometheus_client import CollectorRegistry

from embereye.process.http.connections import Connections, LimitedSite
from embereye.process.http.pages import Page, all_interfaces, cannot_listen, metrics_pages
from embereye.process.tls.folder import ServerTls


def metrics_app(registry: CollectorRegistry, unhealthy: Callable[[], str] = str) -> web.Application:
    """An application that serves `registry` at /metrics and answers /healthz: 503 while `unhealthy()` says why."""
    app = web.Application()
    for path, page in metrics_pages(registry, unhealthy).items():
        app.router.add_get(path, _handler(page))
    return app


def _handler(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        status, content_type, body = page()
        return web.Response(body=body, status=status, headers={"Content-Type": content_type})

    return answer


def is_our_fault(record: logging.LogRecord) -> bool:
    """Whether a record of the server is news: that somebody sends what is no HTTP, any number of times, is not.

    Nor is a body that is not in the encoding which it names, of which the server reads on behind its answer.

    Nor is that a request ended in the moment at which the server, which stops, gave up to wait for it: aiohttp tells
    that to a future that is cancelled already.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, asyncio.InvalidStateError):
        return [frame.filename for frame in traceback.extract_tb(error.__traceback__)][-1:] != [web_protocol.__file__]
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


async def serve_http(
    app: web.Application,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    *,
    connections: Connections | None = None,
) -> web.AppRunner:
    """Serve `app` on `host:port`, over `tls` alone where it is given, to as many as `connections` admits, or to all.

    Stop it with `await runner.cleanup()`; the port is `bound_port(runner)`.
    """
    server_logger.addFilter(is_our_fault)  # a filter that is there already is not added again
    if tls is not None and connections is None:
        connections = Connections()  # handshakes are always bounded
    if connections is not None:
        app.middlewares.insert(0, connections.middleware)
        app.cleanup_ctx.append(connections.sweeping)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        if connections is not None:
            await LimitedSite(runner, connections, host, port, tls).start()
        else:
            await web.TCPSite(runner, all_interfaces(host), port).start()
    except OSError as error:
        await runner.cleanup()
        raise cannot_listen(host, port, error) from error
    return runner


def bound_port(runner: web.AppRunner) -> int:
    """The port that `runner` listens on."""
    return int(runner.addresses[0][1])
