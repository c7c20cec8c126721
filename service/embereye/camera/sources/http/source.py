"""MJPEG over HTTP: one GET, then picture after picture (multipart/x-mixed-replace)."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp

from embereye.camera.sources import tls
from embereye.camera.sources.credentials import Credentials
from embereye.camera.sources.declared import DeclaredSource, SourceError
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.source import Offer, SetState, read_pause
from embereye.wire.http.authorization import Challenge, authorize, strongest
from embereye.wire.http.multipart import MAX_STEPS, MultipartParser

DIAL_SECONDS = 5.0  # from connecting to the end of the response's headers
STALL_SECONDS = 5.0  # without one whole picture
CHUNK = 256 * 1024  # bytes read ahead per camera
_REFUSED_TYPES = ("text/", "application/json", "video/")


class HttpSource:
    """A camera that answers a GET with MJPEG; Basic and Digest credentials."""

    def __init__(
        self, what: DeclaredSource, credentials: Credentials, dials: asyncio.Semaphore, poller: SocketPoller,
        *, dial: float = DIAL_SECONDS, stall: float = STALL_SECONDS,
    ) -> None:  # fmt: skip
        self._what = what
        self._credentials = credentials
        self._dials = dials
        self._poller = poller
        self._dial = dial
        self._stall = stall

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Read pictures until the server ends the stream."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._dial)
        with readable_errors(self._dial):
            async with aiohttp.ClientSession(timeout=timeout, read_bufsize=CHUNK) as session:
                async with self._dials, asyncio.timeout(self._dial):
                    response = await get(session, self._what.address, *self._credentials(), proven=self._what.proven)
                try:
                    await self._stream(response, offer, set_state)
                finally:
                    response.close()

    async def _stream(self, response: aiohttp.ClientResponse, offer: Offer, set_state: SetState) -> None:
        content_type = response.headers.get("Content-Type", "")
        if content_type.lower().startswith(_REFUSED_TYPES):
            raise SourceError(f'the server sends "{content_type}", not multipart/x-mixed-replace')
        pictures = _Pictures(MultipartParser(content_type), offer, set_state)
        set_state("connected, no picture yet")
        loop = asyncio.get_running_loop()
        with _bare(response, pictures, self._poller) as bare:
            ended = bare or asyncio.ensure_future(_read(response, pictures))  # noqa: TID251 -- awaited below
            try:
                # A server that dribbles bytes without ever ending a picture is as silent as one that sends nothing.
                while not ended.done() and (wait := pictures.latest + self._stall - loop.time()) > 0:
                    await asyncio.wait([ended], timeout=wait)
                if not ended.done():
                    raise SourceError(f"no picture for {self._stall:g} s")
                await ended
            finally:
                ended.cancel()


class _Pictures:
    """Takes the body of a response and offers the pictures in it."""

    def __init__(self, parser: MultipartParser, offer: Offer, set_state: SetState) -> None:
        self._time = asyncio.get_running_loop().time
        self._parser = parser
        self._offer = offer
        self._set_state = set_state
        self._streaming = False
        self.latest = self._time()  # when a picture came

    def feed(self, data: bytes | memoryview) -> float:
        """Take a piece of the body; returns the seconds to leave the rest of it unread for."""
        began = time.thread_time()
        parts = self._parser.feed(data)
        if self._parser.astray:
            raise SourceError(f"no picture in {MAX_STEPS} lines of what it sends, which is no MJPEG")
        if parts:
            self.latest = self._time()
        if parts and not self._streaming:
            self._streaming = True
            self._set_state("streaming")
        for part in parts:
            self._offer(part)
        return read_pause(time.thread_time() - began)


async def _read(response: aiohttp.ClientResponse, pictures: _Pictures) -> None:
    async for chunk in response.content.iter_any():
        if pause := pictures.feed(chunk):
            await asyncio.sleep(pause)


@contextlib.contextmanager
def _bare(
    response: aiohttp.ClientResponse, pictures: _Pictures, poller: SocketPoller
) -> Iterator[asyncio.Future[None] | None]:
    """Read a body that is all that its connection brings, and not coded, past aiohttp; the future ends with it.

    aiohttp spends more on a picture than all the rest of its way. None: the body has to be read from the response.
    """
    transport = response.connection.transport if response.connection else None
    coded = any(name in response.headers for name in ("Transfer-Encoding", "Content-Encoding", "Content-Length"))
    if coded or transport is None or transport.is_closing() or transport.get_extra_info("ssl_object"):
        yield None
        return
    while data := response.content.read_nowait():
        pictures.feed(data)
    transport.pause_reading()
    descriptor: int = transport.get_extra_info("socket").fileno()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    resuming: list[asyncio.TimerHandle] = []  # the latest is the one that counts

    def read_on() -> None:
        resuming.clear()
        poller.add(descriptor, read)

    def read() -> bool:
        if ended.done():
            return False
        try:
            size = os.readv(descriptor, [poller.buffer])
            if not size:
                ended.set_result(None)
            if pause := pictures.feed(poller.buffer[:size]):
                poller.remove(descriptor)
                resuming.append(loop.call_later(pause, read_on))
        except BlockingIOError:
            pass
        except OSError as error:
            ended.set_exception(SourceError(f"the connection broke: {error.strerror}"))
        except Exception as error:
            ended.set_exception(error)
        return False

    poller.add(descriptor, read)
    try:
        yield ended
    finally:
        if resuming:
            resuming[0].cancel()
        else:
            poller.remove(descriptor)


async def get(
    session: aiohttp.ClientSession, url: str, user: str, password: str, *, proven: bool = True
) -> aiohttp.ClientResponse:
    """The answer to a GET, its body not read; asked who we are, we say so. SourceError unless it is 200."""
    response = await session.get(url, max_redirects=3, ssl=proven)
    asked = urlsplit(url)
    # Nobody else learns them, and nobody on the way.
    same = response.url.host == asked.hostname and response.url.scheme in {asked.scheme, "https"}
    if response.status == 401 and user and same:
        challenge = strongest(response.headers.getall("WWW-Authenticate", ())) or Challenge("basic")
        response.close()
        authorization = authorize(
            challenge, "GET", response.url.raw_path_qs, user, password, client_nonce=secrets.token_hex(8)
        )
        response = await session.get(
            response.url, headers={"Authorization": authorization}, allow_redirects=False, ssl=proven
        )
    if response.status != 200:
        response.close()
        hint = ": check the credentials" if response.status in {401, 403} else ""
        raise SourceError(f"HTTP {response.status} {response.reason}{hint}")
    return response


@contextlib.contextmanager
def readable_errors(dial: float) -> Iterator[None]:
    """Turn what goes wrong while asking a server into sentences; `dial` is the time it has, in seconds."""
    try:
        yield
    except TimeoutError as error:
        raise SourceError(f"no answer within {dial:g} s") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise tls.refusal(error.certificate_error) from error
    except aiohttp.ClientPayloadError as error:
        raise SourceError("the connection broke in the middle of its answer") from error
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.errno) if error.errno else str(error.os_error)
        raise SourceError(f"cannot connect: {reason}") from error
    except aiohttp.ClientError as error:
        raise SourceError(f"HTTP: {type(error).__name__}: {str(error)[:200]}") from error
