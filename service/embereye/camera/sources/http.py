"""MJPEG over HTTP: one GET, then picture after picture (multipart/x-mixed-replace)."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp

from embereye.camera.sources.credentials import Credentials
from embereye.camera.sources.declared import Declared, SourceError
from embereye.camera.sources.source import Offer, Tell
from embereye.wire.authorization import Challenge, authorize, strongest
from embereye.wire.multipart import MultipartParser

DIAL_SECONDS = 5.0  # from connecting to the end of the response's headers
STALL_SECONDS = 5.0  # without one whole picture
CHUNK = 256 * 1024  # bytes read ahead per camera
_REFUSED_TYPES = ("text/", "application/json", "video/")


class HttpSource:
    """A camera that answers a GET with MJPEG; Basic and Digest credentials."""

    def __init__(
        self, what: Declared, credentials: Credentials, dials: asyncio.Semaphore,
        *, dial: float = DIAL_SECONDS, stall: float = STALL_SECONDS,
    ) -> None:  # fmt: skip
        self._what = what
        self._credentials = credentials
        self._dials = dials
        self._dial = dial
        self._stall = stall

    async def play(self, offer: Offer, tell: Tell) -> None:
        """Read pictures until the server ends the stream."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._dial)
        with in_sentences(self._dial):
            async with aiohttp.ClientSession(timeout=timeout, read_bufsize=CHUNK) as session:
                async with self._dials, asyncio.timeout(self._dial):
                    response = await get(session, self._what.address, *self._credentials())
                try:
                    await self._stream(response, offer, tell)
                finally:
                    response.close()

    async def _stream(self, response: aiohttp.ClientResponse, offer: Offer, tell: Tell) -> None:
        content_type = response.headers.get("Content-Type", "")
        if content_type.lower().startswith(_REFUSED_TYPES):
            raise SourceError(f'the server sends "{content_type}", not multipart/x-mixed-replace')
        loop = asyncio.get_running_loop()
        pictures = _Pictures(MultipartParser(content_type), offer, tell)
        tell("connected, no picture yet")
        if (transport := _bare(response)) is not None:
            pictures.attach(transport, response)
            ended: asyncio.Future[None] = pictures.ended
        else:
            ended = asyncio.ensure_future(_read(response, pictures))
        try:
            # A server that dribbles bytes without ever ending a picture is as silent as one that sends nothing.
            while (wait := pictures.latest + self._stall - loop.time()) > 0 and not ended.done():
                await asyncio.wait([ended], timeout=wait)
            if not ended.done():
                raise SourceError(f"no picture for {self._stall:g} s")
            await ended
        finally:
            ended.cancel()


class _Pictures(asyncio.Protocol):
    """Takes the body of a response and offers the pictures in it."""

    def __init__(self, parser: MultipartParser, offer: Offer, tell: Tell) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = parser
        self._offer = offer
        self._tell = tell
        self._streaming = False
        self._former: asyncio.BaseProtocol | None = None
        self.latest = self._loop.time()  # when a picture came
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def attach(self, transport: asyncio.Transport, response: aiohttp.ClientResponse) -> None:
        """Take what `transport` brings in place of aiohttp, which would spend as long on it as all the rest."""
        while data := response.content.read_nowait():
            self.data_received(data)
        self._former = transport.get_protocol()
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the body."""
        parts = self._parser.feed(data)
        if not parts:
            return
        self.latest = self._loop.time()
        if not self._streaming:
            self._streaming = True
            self._tell("streaming")
        for part in parts:
            self._offer(part)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; aiohttp, which waits for its connections when it is closed, learns it, too."""
        if self._former:
            self._former.connection_lost(exc)
        if self.ended.done():
            return
        if exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(SourceError(f"the connection broke: {exc}"))


def _bare(response: aiohttp.ClientResponse) -> asyncio.Transport | None:
    """The transport that brings nothing but the body of `response`, until it is closed; None: it is coded somehow."""
    if any(name in response.headers for name in ("Transfer-Encoding", "Content-Encoding", "Content-Length")):
        return None
    return response.connection.transport if response.connection else None


async def _read(response: aiohttp.ClientResponse, pictures: _Pictures) -> None:
    async for chunk in response.content.iter_any():
        pictures.data_received(chunk)


async def get(session: aiohttp.ClientSession, url: str, user: str, password: str) -> aiohttp.ClientResponse:
    """The answer to a GET, its body not read; asked who we are, we say so. SourceError unless it is 200."""
    response = await session.get(url, max_redirects=3)
    if response.status == 401 and user and response.url.host == urlsplit(url).hostname:  # nobody else learns them
        challenge = strongest(response.headers.getall("WWW-Authenticate", ())) or Challenge("basic")
        response.close()
        authorization = authorize(
            challenge, "GET", response.url.raw_path_qs, user, password, client_nonce=secrets.token_hex(8)
        )
        response = await session.get(response.url, headers={"Authorization": authorization}, allow_redirects=False)
    if response.status != 200:
        response.close()
        hint = ": check the credentials" if response.status in {401, 403} else ""
        raise SourceError(f"HTTP {response.status} {response.reason}{hint}")
    return response


@contextlib.contextmanager
def in_sentences(dial: float) -> Iterator[None]:
    """Turn what goes wrong while asking a server into sentences; `dial` is the time it has, in seconds."""
    try:
        yield
    except TimeoutError as error:
        raise SourceError(f"no answer within {dial:g} s") from error
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.errno) if error.errno else str(error.os_error)
        raise SourceError(f"cannot connect: {reason}") from error
    except aiohttp.ClientError as error:
        raise SourceError(f"HTTP: {type(error).__name__}: {str(error)[:200]}") from error
