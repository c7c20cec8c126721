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
from embereye.camera.sources.declared import Declared, SourceError
from embereye.camera.sources.source import Offer, Tell, rest
from embereye.wire.authorization import Challenge, authorize, strongest
from embereye.wire.multipart import MAX_STEPS, MultipartParser

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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._dial, sock_read=self._stall)
        with in_sentences(self._dial):
            async with aiohttp.ClientSession(timeout=timeout, read_bufsize=CHUNK) as session:
                async with self._dials, asyncio.timeout(self._dial):
                    response = await get(session, self._what.address, *self._credentials(), proven=self._what.proven)
                try:
                    await self._stream(response, offer, tell)
                finally:
                    response.close()

    async def _stream(self, response: aiohttp.ClientResponse, offer: Offer, tell: Tell) -> None:
        content_type = response.headers.get("Content-Type", "")
        if content_type.lower().startswith(_REFUSED_TYPES):
            raise SourceError(f'the server sends "{content_type}", not multipart/x-mixed-replace')
        parser = MultipartParser(content_type)
        tell("connected, no picture yet")
        streaming = False
        try:
            # A server that dribbles bytes without ever ending a picture is as silent as one that sends nothing.
            async with asyncio.timeout(self._stall) as patience:
                async for chunk in response.content.iter_any():
                    began = time.thread_time()
                    parts = parser.feed(chunk)
                    if parser.astray:
                        raise SourceError(f"no picture in {MAX_STEPS} lines of what it sends, which is no MJPEG")
                    if parts:
                        patience.reschedule(asyncio.get_running_loop().time() + self._stall)
                    if parts and not streaming:
                        streaming = True
                        tell("streaming")
                    for part in parts:
                        offer(part)
                    if pause := rest(time.thread_time() - began):
                        await asyncio.sleep(pause)
        except TimeoutError as error:
            raise SourceError(f"no picture for {self._stall:g} s") from error


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
def in_sentences(dial: float) -> Iterator[None]:
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
