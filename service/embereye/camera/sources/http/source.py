"""MJPEG over HTTP: one GET, then picture after picture (multipart/x-mixed-replace)."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator

import aiohttp

from embereye.camera.sources import tls
from embereye.camera.sources.credentials import Credentials
from embereye.camera.sources.declared import DeclaredSource, SourceError
from embereye.camera.sources.http.body import offer_pictures
from embereye.camera.sources.http.lenient import LenientConnector
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.source import Offer, SetState, refusal_reason
from embereye.wire.http.authorization import Challenge, authorize, strongest

DIAL_SECONDS = 5.0  # from connecting to the end of the response's headers
STALL_SECONDS = 5.0  # without one whole picture
CHUNK = 256 * 1024  # bytes read ahead of one camera
_REFUSED_TYPES = ("text/", "application/json", "video/")


class HttpSource:
    """A camera that answers a GET with MJPEG; Basic and Digest credentials. See `Source`."""

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
            connector = LenientConnector()
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=CHUNK) as session:
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
        await offer_pictures(response, offer, set_state, self._poller, stall=self._stall)
        if content_type.lower().startswith("image/"):
            raise SourceError(
                f'the server sends "{content_type}", one picture each time, not multipart/x-mixed-replace'
            )


async def get(
    session: aiohttp.ClientSession, url: str, user: str, password: str, *, proven: bool = True
) -> aiohttp.ClientResponse:
    """The answer to a GET, its body not read, with Basic or Digest credentials where the server asks for them.

    SourceError unless its status is 200. aiohttp's own DigestAuthMiddleware was tried in place of ours: it reads only
    the first WWW-Authenticate header, so that a camera which offers Basic before Digest, or first an algorithm that
    neither knows, answers it 401; and RTSP needs ours in any case.
    """
    trust = proven or tls.unproven()
    response = await session.get(url, max_redirects=3, ssl=trust)
    asked = (*response.history, response)[0].url
    # No other host gets them, and nobody on the way.
    same = response.url.host == asked.host and response.url.scheme in {asked.scheme, "https"}
    if response.status == 401 and user and same:
        challenge = strongest(response.headers.getall("WWW-Authenticate", ())) or Challenge("basic")
        response.close()
        authorization = authorize(
            challenge, "GET", response.url.raw_path_qs, user, password, client_nonce=secrets.token_hex(8)
        )
        response = await session.get(
            response.url, headers={"Authorization": authorization}, allow_redirects=False, ssl=trust
        )
    if response.status != 200:
        response.close()
        hint = ": check the credentials" if response.status in {401, 403} else ""
        raise SourceError(f"HTTP {response.status} {response.reason}{hint}")
    return response


@contextlib.contextmanager
def readable_errors(dial: float) -> Iterator[None]:
    """Turn aiohttp's errors into a SourceError with a sentence; `dial` is how many seconds a server has to answer."""
    try:
        yield
    except TimeoutError as error:
        raise SourceError(f"no answer within {dial:g} s") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise tls.refusal(error.certificate_error) from error
    except aiohttp.ClientPayloadError as error:
        raise SourceError("the connection broke in the middle of its answer") from error
    except aiohttp.ClientConnectorError as error:
        raise SourceError(f"cannot connect: {refusal_reason(error.os_error)}") from error
    except (aiohttp.ClientError, UnicodeError) as error:  # UnicodeError: of a host that can be no name
        raise SourceError(f"HTTP: {type(error).__name__}: {str(error)[:200]}") from error
