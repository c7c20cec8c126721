"""Serve a few pages over HTTP without a web framework, which would need 8 MB in each process.

A page is a function that returns status, type and body, and is called for each request. A connection gets one answer
and is closed; request and answer have limits in bytes and seconds. If there are too many connections, the client with
most of them loses its oldest, so that a kubelet's probe always gets through.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from embereye.process.addresses import place_of
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.series import exposition

logger = logging.getLogger(__name__)

REQUEST_BYTES = 16 * 1024  # most bytes of a request
REQUEST_SECONDS = 5.0  # for a request and its answer
CONNECTIONS = 64  # at once

Answer = tuple[int, str, bytes]  # status, content type, body
Page = Callable[[], Answer]


def metrics_pages(
    registry: CollectorRegistry, unhealthy: Callable[[], str] = str, not_ready: Callable[[], str] | None = None
) -> dict[str, Page]:
    """The pages /metrics, /healthz and, with `not_ready`, /readyz; 503 while the function returns a reason."""

    def health(why: str) -> Answer:
        return 503 if why else 200, "text/plain; charset=utf-8", f"{why or 'ok'}\n".encode()

    pages: dict[str, Page] = {
        "/metrics": lambda: (200, CONTENT_TYPE_LATEST, exposition(registry)),
        "/healthz": lambda: health(unhealthy()),
    }
    if not_ready:
        pages["/readyz"] = lambda: health(not_ready())
    return pages


def all_interfaces(host: str) -> str | None:
    """Convert a gRPC host for asyncio: "[::]" means all addresses of both families, but only IPv6 in asyncio."""
    return None if host in {"[::]", "::"} else host.strip("[]")


class _Open:
    """The connections of one server. If there are too many, the client with most of them loses its oldest.

    A kubelet's probe must not wait behind idle connections, or the kubelet would restart a healthy process.
    """

    def __init__(self) -> None:
        self._places: dict[asyncio.StreamWriter, str] = {}  # oldest first

    def enter(self, writer: asyncio.StreamWriter) -> None:
        """Add `writer`, and close another connection if there is no room."""
        self._places[writer] = place_of((writer.get_extra_info("peername") or ("",))[0])
        if len(self._places) > CONNECTIONS:
            ((greedy, _),) = Counter(self._places.values()).most_common(1)
            oldest = next(candidate for candidate, place in self._places.items() if place == greedy)
            del self._places[oldest]
            oldest.transport.abort()

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """Remove `writer`."""
        self._places.pop(writer, None)


async def serve_pages(pages: Mapping[str, Page], host: str, port: int) -> asyncio.Server:
    """Serve `pages` by path on `host:port` until the server is closed; UserError if the port cannot be opened."""
    open_connections = _Open()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.enter(writer)
        try:
            # An incomplete, too long or too slow request gets no answer.
            with contextlib.suppress(TimeoutError, ConnectionError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    writer.write(_answer(pages, await reader.readuntil(b"\r\n\r\n")))
                    writer.close()
                    await writer.wait_closed()
        finally:
            open_connections.leave(writer)
            writer.transport.abort()  # `close` alone would wait for a client that does not read

    try:
        return await asyncio.start_server(connected, all_interfaces(host), port, limit=REQUEST_BYTES)
    except OSError as error:
        raise cannot_listen(host, port, error) from error


def cannot_listen(host: str, port: int, error: OSError) -> UserError:
    """The error for a port that cannot be opened."""
    return UserError(f"cannot listen for HTTP on {host}:{port}: {error.strerror or error}")


def _answer(pages: Mapping[str, Page], request: bytes) -> bytes:
    words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
    method, path = (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")
    page = pages.get(path)
    if not method:
        answer = _refusal(HTTPStatus.BAD_REQUEST)
    elif method not in ("GET", "HEAD"):
        answer = _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
    elif page is None:
        answer = _refusal(HTTPStatus.NOT_FOUND)
    else:
        try:
            answer = page()
        except Exception:  # the next request may succeed
            logger.exception("page %s failed", path)
            answer = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
    status, content_type, body = answer
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == "HEAD" else body)


def _refusal(status: HTTPStatus) -> Answer:
    return status, "text/plain; charset=utf-8", f"{status.phrase.lower()}\n".encode()
