"""Attempts to deliver events to a webhook.

A `Sender` makes one attempt and judges it: None if the receiver accepted the event, else a `Refusal` that says if
another attempt may succeed. `Webhooks` decides about repetition. URL, secrets and CA are read from their files at each
attempt, so a correction takes effect without a restart.

The address is checked when it is dialled, and no redirect is followed: a webhook reaches only the declared host.
"""

import ipaddress
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from embereye.hub.webhooks.formats import EMPTY, body_of
from embereye.hub.webhooks.guard import GuardedResolver, RefusedAddressError, check_address
from embereye.hub.webhooks.options import WebhookOptions, check_url
from embereye.hub.webhooks.signing import delivery_id, headers, key_of
from embereye.process.http.retry_after import retry_seconds
from embereye.process.tls.trust import trusting
from embereye.v1.alarms_pb2 import AlarmEvent

# Answers after which an attempt is repeated. Proxies use other numbers beyond 504.
PASSING = frozenset({408, 425, 429, *range(500, 600)})
MAX_WAIT_SECONDS = 300.0  # longest wait that a receiver can request


@dataclass(frozen=True)
class Refusal:
    """The failure of an attempt."""

    why: str  # one sentence
    final: bool = False  # another attempt would fail too
    wait: float = 0.0  # seconds that the receiver requests


class Sender:
    """Sends the events of one webhook. Call `close` at the end."""

    def __init__(self, options: WebhookOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._ca = b""  # content of the CA file that the session trusts

    def is_relevant(self, event: AlarmEvent) -> bool:
        """True if the webhook's format has a form for `event`, and no silence covers it."""
        if event.HasField("silence") and event.type != AlarmEvent.TYPE_SILENCE:
            return False
        return bool(body_of(self._options.format, self._options.name, event))

    async def attempt(self, event: AlarmEvent) -> Refusal | None:
        """Send `event` once; None if the receiver accepted it."""
        options = self._options
        body = body_of(options.format, options.name, event) or EMPTY[options.format]
        try:
            url = _secret(options.url_file, "urlFile") if options.url_file else options.url
            check_url(url)
            _check_literal(url, options)
            return await self._post(url, body, self._headers(event, body))
        except RefusedAddressError as error:
            return Refusal(str(error), final=True)
        except (ValueError, OSError) as error:
            return Refusal(str(error))  # somebody may correct it while attempts continue

    async def _post(self, url: str, body: bytes, all_headers: Mapping[str, str]) -> Refusal | None:
        """Post `body`; return why that failed. RefusedAddressError."""
        try:
            # No redirect is followed: it could lead to an address that nobody has declared.
            session = await self._open_session()
            async with session.post(url, data=body, headers=all_headers, allow_redirects=False) as response:
                wait = retry_seconds(response.headers.get("Retry-After", ""), self._clock())
                return _judge(response.status, min(wait, MAX_WAIT_SECONDS))
        except TimeoutError:
            return Refusal(f"no answer within {self._options.timeout:g} s")
        except aiohttp.ClientConnectorError as error:
            if isinstance(refused := error.os_error, RefusedAddressError):
                raise refused from error
            return Refusal(f"it cannot be reached: {error.os_error.strerror or error.os_error}")
        except aiohttp.ClientError as error:
            return Refusal(f"it cannot be reached: {type(error).__name__}")

    def _headers(self, event: AlarmEvent, body: bytes) -> dict[str, str]:
        options = self._options
        key = key_of(_secret(options.secret_file, "secretFile")) if options.secret_file else None
        all_headers = {"Content-Type": "application/json", "User-Agent": "EmberEye"}
        if options.token_file:
            all_headers["Authorization"] = f"Bearer {_secret(options.token_file, 'tokenFile')}"
        return {**all_headers, **headers(delivery_id(event), int(self._clock()), body, key)}

    async def _open_session(self) -> aiohttp.ClientSession:
        """Open the session, or a new one if the CA file has changed. ValueError if that cannot be used."""
        options = self._options
        ca = _read_ca(options.ca_file) if options.ca_file else b""
        if self._session is None or ca != self._ca:
            trust = _trusting(options.ca_file)
            await self.close()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=GuardedResolver(options.allow), limit=2, ssl=trust),
                timeout=aiohttp.ClientTimeout(total=options.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # no answer's body is read
            )
            self._ca = ca
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


def _check_literal(url: str, options: WebhookOptions) -> None:
    """Check an address that is not resolved, as it is dialled: "①②⑦.⓪.⓪.①" is 127.0.0.1."""
    host = urlsplit(url).hostname or ""
    try:
        host = host.encode("idna").decode()
        ipaddress.ip_address(host)
    except ValueError:
        return
    check_address(host, options.allow)


def _read_ca(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"caFile {path} cannot be read: {error.strerror or error}") from error


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        return trusting(ca)
    except OSError as error:  # ssl.SSLError too
        raise ValueError(f"caFile {ca} has no certificates in PEM format ({error})") from error


def _secret(path: Path, option: str) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be read: {error.strerror or error}") from error
    if not text or not text.isprintable():
        raise ValueError(f"{option} {path} is empty, or has more than one line")
    return text


def _judge(status: int, wait: float) -> Refusal | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return Refusal(f"it answers {status}: redirects are not followed", final=True)
    return Refusal(f"it answers {status}", final=status not in PASSING, wait=wait)
