"""Fetch the readings of one device: a URL that answers with its message."""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from embereye.addons.http_sensors.metrics import Counts
from embereye.process.condition import Condition
from embereye.process.http.retry_after import retry_seconds
from embereye.process.lifecycle import UserError
from embereye.process.login_folder import choose, read_pairs
from embereye.process.tasks import raise_if_cancelled
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.process.tls.client import ClientTls
from embereye.sensor.source import Owner
from embereye.units import SECOND
from embereye.wire.readings.templates import SensorMapping, read

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 2.0  # between two readings, unless the device declares its interval
ANSWER_SECONDS = 5.0  # for an answer
MAX_PAUSE_SECONDS = 60.0  # between two attempts while a device does not answer
MAX_ANSWER = 256 * 1024  # bytes
_CERTIFICATES = ("ca.crt", "tls.crt")


class PollError(Exception):
    """A device cannot be read; the text says why."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        """`pause` is the time in seconds that the device asks to be left alone."""
        super().__init__(why)
        self.pause = pause


@dataclass(frozen=True)
class Login:
    """The folder of a Secret, which is read for each request; None: no login."""

    folder: Path | None

    def authorization(self, refused: str) -> str:
        """The header that authenticates: a token, or user and password; '' without a login.

        Of two that are valid while one replaces the other, it is the one that was not `refused`. PollError if the
        Secret has none.
        """
        if self.folder is None:
            return ""
        tokens = [f"Bearer {token}" for name in ("token", "token-next") if (token := self._read(name))]
        if tokens:
            return choose(tokens, refused)
        if (self.folder / "username").exists():
            pairs = read_pairs(self.folder)
            return choose([aiohttp.encode_basic_auth(*pair) for pair in pairs], refused)
        if any((self.folder / name).exists() for name in _CERTIFICATES):
            return ""
        raise PollError(f'Secret "{self.folder.name}" has neither token nor username, or is not mounted')

    def tls(self) -> ssl.SSLContext:
        """The context of a connection with TLS; UserError if a file cannot be used."""
        named = self.folder if self.folder and any((self.folder / name).exists() for name in _CERTIFICATES) else None
        return ClientTls.in_folder(named).context()

    def _read(self, name: str) -> str:
        assert self.folder is not None
        try:
            return (self.folder / name).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""


@dataclass(frozen=True)
class Polled:
    """A device that is read, and the way to read it."""

    device: str
    url: str
    mapping: SensorMapping
    interval: float  # seconds between two readings
    login: Login


class Poller:
    """Reads one device. Call `run` until cancelled."""

    def __init__(self, polled: Polled, owner: Owner, counts: Counts) -> None:
        self.failing = Condition(logger, end=logging.INFO)
        self._polled = polled
        self._owner = owner
        self._counts = counts
        self._refused = ""  # the login that the device refused last
        parts = urlsplit(polled.url)
        self._place = f"{parts.scheme}://{parts.netloc}{parts.path}"  # without the query, which may contain a key

    async def run(self) -> None:
        """Read again and again; less and less often while the device does not answer."""
        loop, backoff = asyncio.get_running_loop(), Backoff(floor=self._polled.interval, cap=MAX_PAUSE_SECONDS)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(
            timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            due = loop.time()
            while True:
                try:
                    await self._read(session)
                except PollError as error:
                    self._counts.polls["failed"] += 1
                    self.failing.fail(str(error), "device %s: %s", self._polled.device, error)
                    self._owner.note_link(self._polled.device, str(error))
                    raise_if_cancelled()
                    due = loop.time() + min(max(backoff.next(), error.pause), MAX_PAUSE_SECONDS)
                else:
                    self._counts.polls["read"] += 1
                    self.failing.clear("device %s: answers again", self._polled.device)
                    self._owner.note_link(self._polled.device, "")
                    backoff.reset()
                    due = max(due + self._polled.interval, loop.time())
                await asyncio.sleep(due - loop.time())

    async def _read(self, session: aiohttp.ClientSession) -> None:
        """Read the device once; PollError."""
        polled = self._polled
        try:
            body = await self._body(session)
            report = read(polled.mapping, polled.mapping.main, body)
        except TimeoutError:
            raise PollError(f"{self._place}: no answer within {ANSWER_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError, UserError) as error:
            raise PollError(f"{self._place}: {error}") from error
        except ValueError as error:
            self._owner.refuse(polled.device, "unreadable message")
            raise PollError(f"{self._place}: {error}") from error
        if not report.readings:
            self._owner.refuse(polled.device, "unreadable message")
            raise PollError(f"{self._place}: the answer has none of the quantities in `fields` or of the template")
        now = now_ns()
        # An answer of a gateway proves only that it heard the device at the time that it names.
        self._owner.receive(polled.device, report, min(report.seen_ns or now, now))

    async def _body(self, session: aiohttp.ClientSession) -> bytes:
        login = self._polled.login
        tls = login.tls() if self._polled.url.startswith("https:") else True
        authorization = login.authorization(self._refused)
        headers = {"Accept": "application/json"} | ({"Authorization": authorization} if authorization else {})
        # Redirects are not followed, because the login would go to another host.
        async with session.get(self._polled.url, headers=headers, ssl=tls, allow_redirects=False) as response:
            if response.status == 401:
                self._refused = authorization
            if response.status != 200:
                raise self._refusal(response)
            body = await response.content.read(MAX_ANSWER + 1)
            while len(body) <= MAX_ANSWER and (more := await response.content.read(MAX_ANSWER + 1 - len(body))):
                body += more
            if len(body) > MAX_ANSWER:
                raise PollError(f"{self._place}: the answer has more than {MAX_ANSWER} bytes")
            return body

    def _refusal(self, response: aiohttp.ClientResponse) -> PollError:
        why = f"{self._place}: answers {response.status} {response.reason}"
        if response.status in (301, 302, 303, 307, 308):
            target = urlsplit(response.headers.get("Location", ""))
            why += f": it has moved to {target.scheme}://{target.netloc}{target.path}. Declare that address"
        elif response.status in (401, 403):
            why += ": name a Secret with token, or username and password, in credentialsRef"
        pause = retry_seconds(response.headers.get("Retry-After", ""), now_ns() / SECOND)
        return PollError(why, pause)
