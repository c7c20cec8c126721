"""A few pages over HTTP for processes that serve nothing else by it: a web framework takes 8 MB in each."""

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

REQUEST_BYTES = 16 * 1024  # of a request, at most
REQUEST_SECONDS = 5.0  # for a request and its answer
CONNECTIONS = 64  # at once

Answer = tuple[int, str, bytes]  # status, content type, body
Page = Callable[[], Answer]


def metrics_pages(
    registry: CollectorRegistry, unhealthy: Callable[[], str] = str, not_ready: Callable[[], str] | None = None
) -> dict[str, Page]:
    """`registry` at /metrics, /healthz and, with `not_ready`, /readyz: 503 while the function says why."""

    def told(why: str) -> Answer:
        return 503 if why else 200, "text/plain; charset=utf-8", f"{why or 'ok'}\n".encode()

    pages: dict[str, Page] = {
        "/metrics": lambda: (200, CONTENT_TYPE_LATEST, exposition(registry)),
        "/healthz": lambda: told(unhealthy()),
    }
    if not_ready:
        pages["/readyz"] = lambda: told(not_ready())
    return pages


def all_interfaces(host: str) -> str | None:
    """`host` for asyncio's servers: gRPC's "[::]" means every address of both families, asyncio's "::" only IPv6."""
    return None if host in {"[::]", "::"} else host.strip("[]")


class _Open:
    """The connections of one server. Where there are too many, the address that has most of them loses its oldest.

    A kubelet's probe must not wait behind connections that ask for nothing: it would end a process that is well.
    """

    def __init__(self) -> None:
        self._places: dict[asyncio.StreamWriter, str] = {}  # oldest first

    def enter(self, writer: asyncio.StreamWriter) -> None:
        """Count `writer` in, and end another where there is no room for it."""
        self._places[writer] = place_of((writer.get_extra_info("peername") or ("",))[0])
        if len(self._places) > CONNECTIONS:
            ((greedy, _),) = Counter(self._places.values()).most_common(1)
            oldest = next(one for one, place in self._places.items() if place == greedy)
            del self._places[oldest]
            oldest.transport.abort()

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """Count it out."""
        self._places.pop(writer, None)


async def serve_pages(pages: Mapping[str, Page], host: str, port: int) -> asyncio.Server:
    """Serve `pages`, by their path, on `host:port` until the server is closed; UserError where that cannot be had."""
    open_ones = _Open()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.enter(writer)
        try:
            # What is cut short, too long or too slow gets no answer.
            with contextlib.suppress(TimeoutError, ConnectionError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    writer.write(_answer(pages, await reader.readuntil(b"\r\n\r\n")))
                    writer.close()
                    await writer.wait_closed()
        finally:
            open_ones.leave(writer)
            writer.transport.abort()  # closed alone, it would stay for as long as the other end reads nothing

    try:
        return await asyncio.start_server(connected, all_interfaces(host), port, limit=REQUEST_BYTES)
    except OSError as error:
        raise cannot_listen(host, port, error) from error


def cannot_listen(host: str, port: int, error: OSError) -> UserError:
    """What a person is told of a port that cannot be had."""
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
        except Exception:  # whoever asks is told, and the next one may have more luck
            logger.exception("%s cannot be answered", path)
            answer = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
    status, content_type, body = answer
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == "HEAD" else body)


def _refusal(status: HTTPStatus) -> Answer:
    return status, "text/plain; charset=utf-8", f"{status.phrase.lower()}\n".encode()
