"""ONVIF snapshots: a camera that offers no stream we can take is asked for one JPEG after another."""

import asyncio
import secrets
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import aiohttp

from embereye.camera.scheduling.mailbox import MAX_BYTES
from embereye.camera.sources.credentials import Credentials
from embereye.camera.sources.declared import DeclaredSource, SourceError, redact
from embereye.camera.sources.http.source import DIAL_SECONDS, get, readable_errors
from embereye.camera.sources.source import Offer, SetState
from embereye.wire.http import soap

FRAME_RATE = 5.0  # pictures/s at most: cameras are slow at making snapshots
MAX_ANSWER = 1024 * 1024  # bytes of a SOAP answer
SERVICE = "/onvif/device_service"


class OnvifSource:
    """A camera's snapshots at `frame_rate` (frames/s; 0: any), or as fast as FRAME_RATE allows; see `Source`."""

    def __init__(
        self, what: DeclaredSource, credentials: Credentials, dials: asyncio.Semaphore, frame_rate: float,
        *, dial: float = DIAL_SECONDS,
    ) -> None:  # fmt: skip
        parts = urlsplit(what.address)
        self._service = f"http://{parts.netloc}{parts.path if len(parts.path) > 1 else SERVICE}"
        self._credentials = credentials
        self._proven = what.proven
        self._dials = dials
        self._period = 1.0 / min(FRAME_RATE, frame_rate or FRAME_RATE)
        self._dial = dial
        self._ahead = timedelta()  # of the camera's clock: its digests are only valid around its own time

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Ask where the snapshots are, then fetch one after another until one fails; SourceError says why."""
        timeout = aiohttp.ClientTimeout(total=self._dial)
        loop = asyncio.get_running_loop()
        with readable_errors(self._dial):
            async with aiohttp.ClientSession(timeout=timeout) as session:
                user, password = self._credentials()
                async with self._dials:
                    address = await self._find(session, user, password)
                due = loop.time()
                while True:
                    response = await get(session, address, user, password, proven=self._proven)
                    offer(await _body(response, MAX_BYTES))
                    set_state("streaming snapshots")
                    due = max(due + self._period, loop.time())
                    await asyncio.sleep(due - loop.time())

    async def _find(self, session: aiohttp.ClientSession, user: str, password: str) -> str:
        clock = soap.camera_clock(await self._ask(session, self._service, soap.CLOCK))
        self._ahead = clock - datetime.now(UTC) if clock else timedelta()
        answer = await self._ask(session, self._service, soap.CAPABILITIES, user, password)
        media = self._here(soap.media_address(answer) or self._service)
        profile = soap.first_profile(await self._ask(session, media, soap.PROFILES, user, password))
        if not profile:
            raise SourceError("ONVIF: the camera names no media profile")
        answer = await self._ask(session, media, soap.snapshot_request(profile), user, password)
        address = soap.snapshot_address(answer)
        if not address:
            raise SourceError("ONVIF: the camera names no snapshot address")
        return self._here(address)

    def _here(self, address: str) -> str:
        """`address` on the host that was declared: behind address translation cameras name one that nobody reaches."""
        try:
            own, named = urlsplit(self._service), urlsplit(address)
            host = own.hostname or ""
            port = named.port if named.hostname == host else own.port
        except ValueError as error:
            raise SourceError(f'ONVIF: "{redact(address)}" is not a URL') from error
        if named.scheme not in {"http", "https"}:
            raise SourceError(f'ONVIF: "{redact(address)}" is not an HTTP address')
        host = f"[{host}]" if ":" in host else host
        return named._replace(netloc=f"{host}:{port}" if port else host).geturl()

    async def _ask(
        self, session: aiohttp.ClientSession, service: str, body: str, user: str = "", password: str = ""
    ) -> str:
        data = soap.envelope(
            body, user, password, secrets.token_bytes(16), soap.created(datetime.now(UTC), self._ahead)
        )
        headers = {"Content-Type": "application/soap+xml; charset=utf-8"}
        async with session.post(service, data=data, headers=headers, allow_redirects=False) as response:
            answer = (await _body(response, MAX_ANSWER)).decode("utf-8", "replace")
            if response.status == 200:
                return answer
            said = soap.fault(answer) or f"HTTP {response.status} {response.reason}"
            hint = ": check the credentials" if response.status in {400, 401, 403} and user else ""
            raise SourceError(f"ONVIF: {said}{hint}")


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body; SourceError where it is longer than `limit`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            response.close()
            raise SourceError(f"an answer of more than {limit} bytes")
    response.release()
    return bytes(body)
