"""MJPEG over HTTP: one GET, then picture after picture (multipart/x-mixed-replace).

Each `play` opens a connection, and `body` reads its pictures until it ends. `get` sends the request, repeats it with
credentials if the server demands them, and follows redirects on the declared host only. `readable_errors` converts
aiohttp's errors to sentences for people. `OnvifSource` uses the same functions for snapshots.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

import aiohttp
from yarl import URL

from embereye.camera.sources import tls
from embereye.camera.sources.declared import RefusedCredentialsError, SourceError, redact
from embereye.camera.sources.http.body import offer_pictures
from embereye.camera.sources.http.lenient import LenientConnector
from embereye.camera.sources.source import NetworkSource, Offer, SetState, refusal_reason
from embereye.wire.http.authorization import Challenge, authorize, strongest
from embereye.wire.rtsp.messages import printable

STALL_SECONDS = 5.0  # without one whole picture
CHUNK = 256 * 1024  # bytes read ahead of one camera
REDIRECTS = 3  # followed, at most
_REDIRECTING = {301, 302, 303, 307, 308}
_REFUSED_TYPES = ("text/", "application/json", "video/")


@dataclass(eq=False)
class HttpSource(NetworkSource):
    """A camera that answers a GET with MJPEG, with Basic and Digest credentials. See `Source`."""

    _: KW_ONLY
    stall: float = STALL_SECONDS

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Read pictures until the server ends the stream."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.dial)
        with readable_errors(self.dial):
            connector = LenientConnector()
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=CHUNK) as session:
                async with self.dials, asyncio.timeout(self.dial):
                    response = await get(
                        session, self.declared.address, *self.credentials(), verified=self.declared.verified
                    )
                try:
                    await self._stream(response, offer, set_state)
                finally:
                    response.close()

    async def _stream(self, response: aiohttp.ClientResponse, offer: Offer, set_state: SetState) -> None:
        content_type = response.headers.get("Content-Type", "")
        if content_type.lower().startswith(_REFUSED_TYPES):
            raise SourceError(f'the server sends "{content_type}", not multipart/x-mixed-replace')
        await offer_pictures(response, offer, set_state, self.poller, stall=self.stall)
        if content_type.lower().startswith("image/"):
            raise SourceError(f'the server sends "{content_type}", a single picture, not multipart/x-mixed-replace')


async def get(
    session: aiohttp.ClientSession, url: str, user: str, password: str, *, verified: bool = True
) -> aiohttp.ClientResponse:
    """Send a GET, with Basic or Digest credentials if the server requests them. The body is not read.

    Redirects are followed to the same host only: a camera must not lead us to other services. Credentials go to the
    declared port, or to the port of HTTPS. Raises SourceError unless the status is 200, RefusedCredentialsError if the
    server refuses the credentials. aiohttp's DigestAuthMiddleware does not suffice: it reads only the first
    WWW-Authenticate header, so it fails if a camera offers Basic, or an unknown algorithm, before Digest. RTSP needs
    our implementation anyway.
    """
    trust = verified or tls.unverified()
    asked = target = URL(url)
    for _ in range(REDIRECTS + 1):
        response = await session.get(target, allow_redirects=False, ssl=trust)
        if response.status not in _REDIRECTING or "Location" not in response.headers:
            break
        response.close()
        target = _redirect_target(asked, target, response.headers["Location"])
    else:
        raise SourceError(f"redirected more than {REDIRECTS} times")
    proved = False
    same = response.url.origin() == asked.origin() or (response.url.scheme, response.url.port) == ("https", 443)
    if response.status == 401 and user and same:
        challenge = strongest(response.headers.getall("WWW-Authenticate", ())) or Challenge("basic")
        response.close()
        authorization = authorize(
            challenge, "GET", response.url.raw_path_qs, user, password, client_nonce=secrets.token_hex(8)
        )
        proved = True
        response = await session.get(
            response.url, headers={"Authorization": authorization}, allow_redirects=False, ssl=trust
        )
    if response.status != 200:
        response.close()
        hint = ". Check the credentials" if response.status in {401, 403} else ""
        kind = RefusedCredentialsError if proved and response.status == 401 else SourceError
        raise kind(f"HTTP {response.status} {_phrase(response.status)}".rstrip() + hint)
    return response


def _redirect_target(declared: URL, current: URL, location: str) -> URL:
    """Return the URL that `location` means. Raises SourceError if it is not on the declared host."""
    try:
        target = current.join(URL(location))
    except ValueError as error:
        raise SourceError("redirected to an invalid URL") from error
    if target.scheme not in {"http", "https"} or target.host != declared.host:
        place = printable(redact(str(target)))
        raise SourceError(
            f'redirected to "{place}", which is not its host. If that is the camera, declare that address'
        )
    return target.with_user(None)


def _phrase(status: int) -> str:
    """The usual text of `status`. A server's own text is not shown, because it could come from anywhere."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


@contextlib.contextmanager
def readable_errors(dial: float) -> Iterator[None]:
    """Convert aiohttp's errors to a SourceError; `dial` is the seconds that a server has to answer."""
    try:
        yield
    except TimeoutError as error:
        raise SourceError(f"no answer within {dial:g} s") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise tls.refusal(error.certificate_error) from error
    except aiohttp.ClientPayloadError as error:
        raise SourceError("the connection broke before the end of the answer") from error
    except aiohttp.ClientConnectorError as error:
        raise SourceError(f"cannot connect: {refusal_reason(error.os_error)}") from error
    except aiohttp.ClientResponseError as error:  # its text quotes the answer
        raise SourceError(f"HTTP: {type(error).__name__}: the answer is malformed") from error
    except UnicodeError as error:
        raise SourceError("its host name is invalid") from error
    except aiohttp.ClientError as error:
        raise SourceError(f"HTTP: {type(error).__name__}: {str(error)[:200]}") from error
