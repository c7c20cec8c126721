"""One connection to NATS, and JetStream's calls on it. It does not reconnect: its user dials a new one.

It wraps nats-py. Every error of the library becomes a BusError with one sentence, and a cancellation that the library
swallowed is raised again. Secrets are read at each dial, and with tls:// none is sent before the server speaks TLS.

`dial` tries the cluster's servers in random order. Two unanswered pings end a connection, which sets `lost`;
`JetStreamBus` then dials again.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from embereye.addons.nats.options import BusOptions
from embereye.process.lifecycle import UserError
from embereye.process.reason import reason_of
from embereye.process.tasks import raise_if_cancelled

DIAL_SECONDS = 3.0  # for connecting to one server
ANSWER_SECONDS = 3.0  # for a call
PING_SECONDS = 1.0  # a connection with two unanswered pings is lost
CLOSE_SECONDS = 0.5
MISSING = {10037, 10059}  # JetStream's error codes: no such message, no such stream

ERRORS = (nats.errors.Error, OSError, TimeoutError, UserError, ValueError, RuntimeError)


class BusError(Exception):
    """NATS cannot be used; the text says why."""


class MissingError(BusError):
    """The named stream or message does not exist."""


class Connection:
    """A connection to one server. `lost` is set when it ends."""

    def __init__(self, options: BusOptions, server: str) -> None:
        self.server = server
        self.lost = asyncio.Event()
        self.why = ""  # why it was lost, or could not be opened
        self._options = options
        self._client = Client()

    async def open(self) -> None:
        """Connect; BusError if that fails."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._dial()
        except TimeoutError:
            await self.close()
            raise BusError(f"{self.server} does not answer") from None
        except BusError:
            await self.close()
            raise
        except ERRORS as error:
            await self.close()
            raise BusError(f"{self.server}: {self.why or reason_of(error)}") from error

    async def _dial(self) -> None:
        options = self._options
        secrets = {name: self._over_tls(value) for name, value in options.secrets().items()}
        await self._client.connect(
            [self.server],
            name="embereye-hub",
            # Not by the library, which would reconnect with its first secrets.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=DIAL_SECONDS,  # type: ignore[arg-type]  # it is seconds, of any kind
            ping_interval=PING_SECONDS,  # type: ignore[arg-type]
            max_outstanding_pings=2,
            pending_size=0,  # with a larger one the library may wait forever for the server and ignore cancellation
            error_cb=self._note,
            closed_cb=self._end,
            tls=options.tls_context(),
            user=secrets.get("user"),
            password=secrets.get("password"),
            token=secrets.get("token"),
        )
        raise_if_cancelled()
        self._check_tls()

    def _over_tls(self, secret: str) -> Callable[[], str]:
        def checked_secret() -> str:
            self._check_tls()
            return secret

        return checked_secret

    def _check_tls(self) -> None:
        """Raise BusError if tls:// was requested and the server offers no TLS: the library does not check it."""
        if self._options.tls and not self._client._server_info.get("tls_required"):
            raise BusError(f"{self.server} does not speak TLS, which tls:// requires: no secrets are sent to it")

    async def _note(self, error: Exception) -> None:
        self.why = reason_of(error)

    async def _end(self) -> None:
        self.why = self.why or "the connection was closed"
        self.lost.set()

    @property
    def max_message_bytes(self) -> int:
        """The server's limit for one message."""
        return self._client.max_payload

    def new_inbox(self) -> str:
        """A new, random subject for answers."""
        return self._client.new_inbox()

    async def subscribe(self, subject: str, arrived: Callable[[Msg], Awaitable[None]]) -> None:
        """Call `arrived` with each message on `subject`. Raises BusError."""
        with translated():
            await self._client.subscribe(subject, cb=arrived)

    async def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message without waiting for an answer. Raises BusError."""
        with translated():
            await self._client.publish(subject, payload, reply=reply, headers=headers)

    async def call(self, call: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Call "$JS.API.`call`" and return the answer. Raises BusError, or MissingError if the object is missing."""
        payload = json.dumps(body).encode() if body is not None else b""
        try:
            answer = await self._client.request(f"$JS.API.{call}", payload, timeout=ANSWER_SECONDS)
        except nats.errors.NoRespondersError:
            raise BusError(
                "it has no JetStream, or this user is not allowed to use it: start nats-server with -js"
            ) from None
        except ERRORS as error:
            raise BusError(f"{call}: {reason_of(error)}") from error
        finally:
            raise_if_cancelled()
        return parse_answer(answer.data, call)

    async def close(self) -> None:
        """Close the connection."""
        # With a time limit, because the library waits for a frozen server.
        with contextlib.suppress(*ERRORS, BusError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()
        # The library leaves the socket open if it was still sending.
        writer = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


async def dial(options: BusOptions) -> Connection:
    """Connect to any of the servers, in random order; BusError if none can be reached."""
    failures = []
    for server in random.sample(options.servers, len(options.servers)):
        connection = Connection(options, server)
        try:
            await connection.open()
        except BusError as error:
            failures.append(str(error))
        else:
            return connection
    raise BusError("; ".join(sorted(failures)))


def parse_answer(answer: bytes, call: str) -> dict[str, Any]:
    """Parse JetStream's answer to `call`; BusError if it is an error."""
    try:
        parsed: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise BusError(f"{call}: the answer cannot be read: {answer[:80]!r}") from error
    if failure := parsed.get("error"):
        kind = MissingError if failure.get("err_code") in MISSING else BusError
        raise kind(f"{call}: {failure.get('description', failure)}")
    return parsed


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn the library's errors into BusError, and raise a cancellation that it swallowed."""
    try:
        yield
    except ERRORS as error:
        raise BusError(reason_of(error)) from error
    finally:
        raise_if_cancelled()
