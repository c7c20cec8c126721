"""MJPEG over HTTP: one GET, then picture after picture (multipart/x-mixed-replace)."""

import asyncio
import os

import aiohttp

from embereye.camera.sources.declared import Declared, SourceError
from embereye.camera.sources.source import Offer, Tell
from embereye.wire.multipart import MultipartParser

DIAL_SECONDS = 5.0  # from connecting to the end of the response's headers
STALL_SECONDS = 5.0  # without one whole picture
CHUNK = 256 * 1024  # bytes read ahead per camera
_REFUSED_TYPES = ("text/", "application/json", "video/")


class HttpSource:
    """A camera that answers a GET with MJPEG. Basic credentials come from the URL's userinfo."""

    def __init__(
        self, what: Declared, dials: asyncio.Semaphore, *, dial: float = DIAL_SECONDS, stall: float = STALL_SECONDS
    ) -> None:
        self._what = what
        self._dials = dials
        self._dial = dial
        self._stall = stall

    async def play(self, offer: Offer, tell: Tell) -> None:
        """Read pictures until the server ends the stream."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._dial, sock_read=self._stall)
        headers = {}
        if self._what.user:
            headers["Authorization"] = aiohttp.encode_basic_auth(self._what.user, self._what.password)
        try:
            async with aiohttp.ClientSession(timeout=timeout, read_bufsize=CHUNK) as session:
                async with self._dials, asyncio.timeout(self._dial):
                    response = await session.get(self._what.address, headers=headers, max_redirects=3)
                try:
                    await self._stream(response, offer, tell)
                finally:
                    response.close()
        except TimeoutError as error:
            raise SourceError(f"no answer within {self._dial:g} s") from error
        except aiohttp.ClientConnectorError as error:
            reason = os.strerror(error.errno) if error.errno else str(error.os_error)
            raise SourceError(f"cannot connect: {reason}") from error
        except aiohttp.ClientError as error:
            raise SourceError(f"HTTP: {type(error).__name__}: {str(error)[:200]}") from error

    async def _stream(self, response: aiohttp.ClientResponse, offer: Offer, tell: Tell) -> None:
        if response.status != 200:
            hint = ": check the credentials in the source" if response.status in {401, 403} else ""
            raise SourceError(f"HTTP {response.status} {response.reason}{hint}")
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
                    parts = parser.feed(chunk)
                    if not parts:
                        continue
                    patience.reschedule(asyncio.get_running_loop().time() + self._stall)
                    if not streaming:
                        streaming = True
                        tell("streaming")
                    for part in parts:
                        offer(part)
        except TimeoutError as error:
            raise SourceError(f"no picture for {self._stall:g} s") from error
