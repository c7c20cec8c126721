"""Serve an aiohttp application: the hub's, the operator's, or a simulated camera's.

`serve_http` sets what is the same for all: no access log, bodies as they were sent, a limit for headers, and the answer
to bodies that nobody reads (`unread.py`). With `Connections`, or with TLS, connections are limited before a handler
sees them. aiohttp's log records about clients' mistakes are dropped.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable

from aiohttp import web, web_protocol, web_response
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from prometheus_client import CollectorRegistry

from embereye.process.http.connections import Connections, LimitedSite
from embereye.process.http.pages import Page, all_interfaces, cannot_listen, metrics_pages
from embereye.process.http.unread import LINGER_SECONDS, discard_rest
from embereye.process.tls.folder import ServerTls

# Bytes of one header. Browsers send the cookies of all programs on a host, up to 32 kB.
MAX_FIELD = 33 * 1024

# The header Server, also of answers to what is no request. aiohttp names its version and Python's, and has no option.
web_response.SERVER_SOFTWARE = "EmberEye"  # type: ignore[attr-defined]


def metrics_app(registry: CollectorRegistry, unhealthy: Callable[[], str] = str) -> web.Application:
    """An application with `registry` at /metrics, and /healthz: 503 while `unhealthy()` returns a reason."""
    app = web.Application()
    for path, page in metrics_pages(registry, unhealthy).items():
        app.router.add_get(path, _handler(page))
    return app


def _handler(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return page_response(page)

    return answer


def page_response(page: Page) -> web.Response:
    """Answer with `page`."""
    status, content_type, body = page()
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})


def is_our_fault(record: logging.LogRecord) -> bool:
    """True if a log record of aiohttp is worth logging.

    Three kinds are not: requests that are not HTTP; bodies that are cut or not framed as they declare, which the
    server notices after its answer; and requests that end just as the stopping server gives up on them, when aiohttp
    sets the result of a cancelled future.
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
    shared: bool = False,
) -> web.AppRunner:
    """Serve `app` on `host:port`, with TLS if `tls` is given, limited by `connections` if given.

    Handlers get bodies as they were sent, even compressed. Stop it with `await runner.cleanup()`; the port is
    `bound_port(runner)`. `shared`, with `connections`: other processes may listen on the port, too.
    """
    server_logger.addFilter(is_our_fault)  # has no effect if the filter is already installed
    if tls is not None and connections is None:
        connections = Connections()  # handshakes are always limited
    if connections is not None:
        app.middlewares.insert(0, connections.middleware)
        app.cleanup_ctx.append(connections.sweeping)
    app.on_response_prepare.append(discard_rest)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=0.5,
        auto_decompress=False,
        lingering_time=LINGER_SECONDS,
        max_field_size=MAX_FIELD,
    )
    await runner.setup()
    try:
        if connections is not None:
            await LimitedSite(runner, connections, host, port, tls, shared=shared).start()
        else:
            await web.TCPSite(runner, all_interfaces(host), port).start()
    except OSError as error:
        await runner.cleanup()
        raise cannot_listen(host, port, error) from error
    return runner


def bound_port(runner: web.AppRunner) -> int:
    """The port that `runner` listens on."""
    return int(runner.addresses[0][1])
