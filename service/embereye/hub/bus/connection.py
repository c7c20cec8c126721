"""One connection to NATS, and JetStream's calls on it. It is never mended: who uses it dials anew."""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from embereye.hub.bus.options import BusOptions
from embereye.process.lifecycle import UserError
from embereye.process.tasks import raise_if_cancelled

DIAL_SECONDS = 3.0  # for one server to answer
ANSWER_SECONDS = 3.0  # for a call
PING_SECONDS = 1.0  # a server that leaves two pings without an answer is given up
CLOSE_SECONDS = 0.5
MISSING = {10037, 10059}  # of JetStream's errors: there is no such message, no such stream

ERRORS = (nats.errors.Error, OSError, TimeoutError, UserError, ValueError, RuntimeError)


class BusError(Exception):
    """NATS does not do what it is there for; says how."""


class MissingError(BusError):
    """It knows nothing of what was asked for."""


class Connection:
    """To one server. Whoever waits for `lost` learns of its end."""

    def __init__(self, options: BusOptions, server: str) -> None:
        self.server = server
        self.lost = asyncio.Event()
        self.why = ""  # it was lost, or could not be had
        self._options = options
        self._client = Client()

    async def open(self) -> None:
        """Dial; BusError where that fails."""
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
            raise BusError(f"{self.server}: {self.why or sentence(error)}") from error

    async def _dial(self) -> None:
        options = self._options
        secrets = {name: self._over_tls(value) for name, value in options.secrets().items()}
        await self._client.connect(
            [self.server],
            name="embereye-hub",
            # The library would go on with the secrets that it was given first.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=DIAL_SECONDS,  # type: ignore[arg-type]  # it is seconds, of any kind
            ping_interval=PING_SECONDS,  # type: ignore[arg-type]
            max_outstanding_pings=2,
            pending_size=0,  # past which the library waits for the server, for good and deaf to cancellation
            error_cb=self._note,
            closed_cb=self._end,
            tls=options.client_tls().context() if options.tls else None,
            user=secrets.get("user"),
            password=secrets.get("password"),
            token=secrets.get("token"),
        )
        raise_if_cancelled()
        self._check_tls()

    def _over_tls(self, secret: str) -> Callable[[], str]:
        def give() -> str:
            self._check_tls()
            return secret

        return give

    def _check_tls(self) -> None:
        """BusError where a connection that has to be TLS is none: the library leaves that to the server."""
        if self._options.tls and not self._client._server_info.get("tls_required"):
            raise BusError(f"{self.server} does not speak TLS, and tls:// asks for it: it is told nothing")

    async def _note(self, error: Exception) -> None:
        self.why = sentence(error)

    async def _end(self) -> None:
        self.why = self.why or "the connection was closed"
        self.lost.set()

    @property
    def max_message_bytes(self) -> int:
        """That the server takes in one message."""
        return self._client.max_payload

    def new_inbox(self) -> str:
        """A subject that nobody else knows."""
        return self._client.new_inbox()

    async def subscribe(self, subject: str, arrived: Callable[[Msg], Awaitable[None]]) -> None:
        """Have `arrived` called with each message; BusError."""
        with translated():
            await self._client.subscribe(subject, cb=arrived)

    async def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message, without knowing what becomes of it; BusError."""
        with translated():
            await self._client.publish(subject, payload, reply=reply, headers=headers)

    async def call(self, call: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """What JetStream answers to "$JS.API.`call`". BusError, MissingError where it does not know what is named."""
        payload = json.dumps(body).encode() if body is not None else b""
        try:
            answer = await self._client.request(f"$JS.API.{call}", payload, timeout=ANSWER_SECONDS)
        except nats.errors.NoRespondersError:
            raise BusError("it has no JetStream, or this user may not use it: start nats-server with -js") from None
        except ERRORS as error:
            raise BusError(f"{call}: {sentence(error)}") from error
        finally:
            raise_if_cancelled()
        return checked(answer.data, call)

    async def close(self) -> None:
        """Let go of it."""
        # One that is frozen would be waited for.
        with contextlib.suppress(*ERRORS, BusError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()
        # The library leaves the socket open where it was waiting to be rid of what is to be sent.
        writer = getattr(getattr(self._client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


async def dial(options: BusOptions) -> Connection:
    """A connection to any of the servers; BusError where there is none to be had now."""
    refused = []
    for server in random.sample(options.servers, len(options.servers)):
        connection = Connection(options, server)
        try:
            await connection.open()
        except BusError as error:
            refused.append(str(error))
        else:
            return connection
    raise BusError("; ".join(sorted(refused)))


def checked(answer: bytes, what: str) -> dict[str, Any]:
    """What JetStream answered to `what`; BusError where that is an error."""
    try:
        told: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise BusError(f"{what}: the answer cannot be read: {answer[:80]!r}") from error
    if failure := told.get("error"):
        kind = MissingError if failure.get("err_code") in MISSING else BusError
        raise kind(f"{what}: {failure.get('description', failure)}")
    return told


def sentence(error: BaseException) -> str:
    """What `error` says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Make the library's errors BusError, and raise a cancellation that it has swallowed."""
    try:
        yield
    except ERRORS as error:
        raise BusError(sentence(error)) from error
    finally:
        raise_if_cancelled()
