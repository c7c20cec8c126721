"""Client that asks an ONVIF camera for its profiles and the addresses of its streams.

Credentials go only to the declared host, even if the camera names other addresses: as a WS-UsernameToken, or by HTTP
Digest if the camera requests it. Answers are bounded in size and time, and redirects are not followed.

`connect` comes first. It reads the camera's clock, because credentials are accepted only around its time, and the
addresses of its services, which the later requests go to.
"""

import secrets
from datetime import UTC, datetime, timedelta
from urllib.parse import SplitResult, urlsplit

import aiohttp

from embereye.camera.sources import tls
from embereye.camera.sources.declared import DeclaredSource, RefusedCredentialsError, SourceError, redact
from embereye.process.http.resolver import RememberingResolver
from embereye.units import bracketed
from embereye.wire.http.authorization import Challenge, authorize, strongest
from embereye.wire.onvif import device, media, soap
from embereye.wire.onvif.device import MEDIA, MEDIA2
from embereye.wire.onvif.media import Profile
from embereye.wire.onvif.xml import Element, XmlError, parse

SERVICE = "/onvif/device_service"
MAX_ANSWER = 1024 * 1024  # bytes; the profiles of a recorder with 64 channels have 300 KB
_RTSP = {"rtsp", "rtsps"}
# Of a single request: others may succeed. Not TimeoutError, because a camera that is off would take far longer.
FAILURES = (
    SourceError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError, aiohttp.ServerDisconnectedError,
)  # fmt: skip


class RefusedError(SourceError):
    """The camera answered with a fault or with nothing readable: it does not know the request, or refuses it."""


class UnauthorizedError(RefusedCredentialsError):
    """The camera refuses the credentials, or needs some. Further requests with them could lock the account."""


class OnvifClient:
    """Client of one camera. `session` must not decompress, see `open_session`. Call `connect` first.

    Every call raises SourceError for people, or errors of aiohttp and asyncio if there is no answer.
    """

    def __init__(self, session: aiohttp.ClientSession, declared: DeclaredSource, user: str, password: str) -> None:
        parts = urlsplit(declared.address)
        scheme = "https" if parts.port == 443 else "http"
        self._device = f"{scheme}://{parts.netloc}{parts.path if len(parts.path) > 1 else SERVICE}"
        self._session = session
        self._user, self._password = user, password
        self._trust = declared.verified or tls.unverified()
        self._ahead = timedelta()  # camera's clock minus ours: the camera accepts digests only around its time
        self._services: dict[str, str] = {}
        self._challenge: Challenge | None = None  # of HTTP Digest, once the camera has requested it
        self._uses = 0  # count of uses of its nonce

    async def connect(self) -> None:
        """Read the camera's clock and the addresses of its services. Some cameras do not know these requests."""
        answer = await self._try(self._device, device.CLOCK, open_to_all=True)
        clock = device.read_clock(answer, datetime.now(UTC))
        self._ahead = clock - datetime.now(UTC) if clock else timedelta()
        named = device.read_services(await self._try(self._device, device.SERVICES))
        if MEDIA not in named and MEDIA2 not in named:
            named = device.read_capabilities(await self._try(self._device, device.CAPABILITIES))
        self._services = {
            name: self._http_address(address) for name, address in named.items() if name in {MEDIA, MEDIA2}
        }
        if not self._services:
            self._services = {MEDIA: self._device}

    async def profiles(self) -> list[Profile]:
        """Read the camera's profiles, from Media2 if possible because it knows H.265."""
        profiles: list[Profile] = []
        problem: Exception | None = None
        for service in (MEDIA2, MEDIA):
            if service not in self._services:
                continue
            try:
                profiles = media.read_profiles(
                    await self._ask(self._services[service], media.profiles_request(service))
                )
            except UnauthorizedError:
                raise
            except FAILURES as error:
                problem = error
            if profiles:
                self._services = {service: self._services[service]}  # the profiles' tokens are valid for this service
                return profiles
        if problem:
            raise problem
        raise SourceError("ONVIF: the camera names no media profile")

    async def stream_address(self, profile: Profile) -> str:
        """Return the RTSP address of `profile` on the declared host, without credentials; '' if there is none."""
        ((service, address),) = self._services.items()
        uri = media.read_uri(await self._ask(address, media.stream_request(service, profile.token)))
        return self._on_declared_host(uri, _RTSP) if uri else ""

    async def snapshot_address(self, profile: Profile) -> str:
        """Return the HTTP address of a snapshot of `profile` on the declared host; '' if there is none."""
        ((service, address),) = self._services.items()
        uri = media.read_uri(await self._ask(address, media.snapshot_request(service, profile.token)))
        return self._http_address(uri) if uri else ""

    async def information(self) -> device.Information:
        """Read the camera's maker, model and serial number."""
        return device.read_information(await self._ask(self._device, device.INFORMATION))

    def _http_address(self, address: str) -> str:
        return self._on_declared_host(address, {"http", "https"})

    def _on_declared_host(self, address: str, schemes: set[str]) -> str:
        """Replace the host in `address` by the declared one: behind address translation cameras name unreachable hosts.

        Credentials in it are dropped; only declared ones are used.
        """
        try:
            declared, named = urlsplit(self._device), urlsplit(address)
            port = named.port
            if named.scheme not in _RTSP and named.hostname != declared.hostname:
                port = declared.port
        except ValueError as error:
            raise SourceError(f'ONVIF: "{redact(address)}": not a URL') from error
        if named.scheme not in schemes:
            raise SourceError(f'ONVIF: "{redact(address)}": not an address of {" or ".join(sorted(schemes))}')
        return named._replace(netloc=_netloc(declared, port)).geturl()

    async def _try(self, address: str, body: str, *, open_to_all: bool = False) -> Element:
        """Return the answer to a request that is not necessary, or an empty element if it fails."""
        try:
            return await self._ask(address, body, open_to_all=open_to_all)
        except UnauthorizedError:
            raise
        except FAILURES:
            return Element("")

    async def _ask(self, address: str, body: str, *, open_to_all: bool = False) -> Element:
        for _ in range(2):
            status, challenge, answer = await self._exchange(address, body, open_to_all=open_to_all)
            if status != 401 or open_to_all or not self._user:
                break
            asked = strongest(challenge)
            # Basic would send the password unencrypted, and no camera needs it here.
            if asked is None or asked.scheme != "digest":
                break
            self._challenge, self._uses = asked, 0
        if status == 200 and answer is not None and soap.read_fault(answer) is None:
            return answer
        fault = soap.read_fault(answer) if answer is not None else None
        unauthorized = status in {401, 403} or (fault is not None and fault.unauthorized)
        if status == 200 and fault is None:
            raise RefusedError("ONVIF: its answer is not XML. Check that this is the address of an ONVIF camera")
        hint = ""
        if unauthorized or (status == 400 and self._user):
            hint = ". Check the credentials" if self._user else ". Set credentialsRef: the camera requires credentials"
        reason = fault.reason if fault else f"HTTP {status}"
        if unauthorized and not open_to_all:
            raise UnauthorizedError(f"ONVIF: {reason}{hint}")
        raise RefusedError(f"ONVIF: {reason}{hint}")

    async def _exchange(self, address: str, body: str, *, open_to_all: bool) -> tuple[int, list[str], Element | None]:
        """Exchange one request. Returns status, challenges and answer; None if it is not XML."""
        try:
            return await self._post(address, body, open_to_all=open_to_all)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # Some cameras close a connection after an answer without notice. Repeating is safe, as all requests only
            # read.
            return await self._post(address, body, open_to_all=open_to_all)

    async def _post(self, address: str, body: str, *, open_to_all: bool) -> tuple[int, list[str], Element | None]:
        headers, header = {"Content-Type": soap.content_type(body), "Accept-Encoding": "identity"}, ""
        if self._user and not open_to_all:
            if self._challenge:
                parts = urlsplit(address)
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                self._uses += 1
                headers["Authorization"] = authorize(
                    self._challenge, "POST", path, self._user, self._password,
                    count=self._uses, client_nonce=secrets.token_hex(8),
                )  # fmt: skip
            else:
                created = soap.created(datetime.now(UTC), self._ahead)
                header = soap.username_token(self._user, self._password, secrets.token_bytes(16), created)
        async with self._session.post(
            address, data=soap.envelope(body, header), headers=headers, allow_redirects=False, ssl=self._trust
        ) as response:
            data = await read_body(response, MAX_ANSWER)
            challenges = response.headers.getall("WWW-Authenticate", [])
        try:
            return response.status, challenges, parse(data)
        except XmlError as error:
            if "document type" in str(error):
                raise SourceError(f"ONVIF: its answer cannot be read: {error}") from error
            return response.status, challenges, None


def open_session(seconds: float) -> aiohttp.ClientSession:
    """Open a session for ONVIF in which every answer has to be complete within `seconds`."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls.verified(), resolver=RememberingResolver()),
        timeout=aiohttp.ClientTimeout(total=seconds),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read the whole body; raise SourceError if it is longer than `limit` bytes."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            response.close()
            raise SourceError(f"the answer has more than {limit} bytes")
    response.release()
    return bytes(body)


def _netloc(declared: SplitResult, port: int | None) -> str:
    host = bracketed(declared.hostname or "")
    return f"{host}:{port}" if port else host
