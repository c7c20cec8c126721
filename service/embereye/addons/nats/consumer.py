"""The consumer: reads the stream's messages in order, starting after a given position.

It requests one batch after the other, and only when its reader has room. The server remembers no position: the hub's
database has it, and a new connection makes a new consumer that starts there. Messages are numbered, and a gap or a
silence raises BusError, so none is skipped.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nats.aio.msg import Msg

from embereye.addons.nats.connection import BusError, Connection
from embereye.addons.nats.options import BusOptions
from embereye.addons.nats.publisher import ORIGIN
from embereye.addons.nats.stream import MESSAGE_ID
from embereye.process.timing.silence import SilenceTimeout
from embereye.units import MIB, SECOND

logger = logging.getLogger(__name__)
BATCH = 500  # messages per request
BATCH_BYTES = 16 * MIB
EXPIRES_SECONDS = 10.0  # how long the server waits to complete a batch
HEARTBEAT_SECONDS = 1.0  # between the server's heartbeats while a request is open
SILENCE_SECONDS = 3.5  # without a message or heartbeat, the connection is lost
FORGOTTEN_SECONDS = 60.0  # after which the server removes an unused consumer
HEARTBEAT, NO_CONSUMER = "100", "503"  # status of a message without content


@dataclass(frozen=True)
class Delivered:
    """One message of the stream."""

    sequence: int
    message: str  # its id, which is its report's key
    origin: str  # names the timeline of the report's times
    time_ns: int  # when the server stored it, on the server's clock
    pending: int  # messages that follow it
    payload: bytes


class Consumer:
    """Reads messages on one connection, for one reader."""

    def __init__(self, connection: Connection, options: BusOptions) -> None:
        self._connection = connection
        self._options = options
        self._name = f"hub-{secrets.token_hex(6)}"
        self._inbox = connection.new_inbox()
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()
        self._number = 0  # of the last message delivered to this consumer

    async def begin(self, after: int) -> None:
        """Create the consumer on the server, starting after sequence `after`. Raises BusError."""
        stream = self._options.stream
        await self._connection.subscribe(self._inbox, self._arrived.put)
        config = {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            # The hub's database has the consumed position; the server need not remember it.
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": self._options.subject,
            "inactive_threshold": int(FORGOTTEN_SECONDS * SECOND),
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": stream, "config": config}
        await self._connection.call(f"CONSUMER.CREATE.{stream}.{self._name}.{self._options.subject}", body)

    async def run(self, wait_for_room: Callable[[], Awaitable[None]], accept: Callable[[Delivered], None]) -> None:
        """Pass messages to `accept` until cancelled or BusError; awaits `wait_for_room` before each request."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._options.stream}.{self._name}"
        request = json.dumps({
            "batch": BATCH, "max_bytes": BATCH_BYTES, "expires": int(EXPIRES_SECONDS * SECOND),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * SECOND),
        }).encode()  # fmt: skip
        while True:
            await wait_for_room()
            await self._connection.publish(subject, request, reply=self._inbox)
            await self._receive(accept)

    async def _receive(self, accept: Callable[[Delivered], None]) -> None:
        """Receive messages until the batch is complete, or the server ends the request."""
        remaining = BATCH
        while remaining:
            message = await self._next()
            if status := (message.headers or {}).get("Status"):
                if status == HEARTBEAT:
                    continue
                if status == NO_CONSUMER:
                    raise BusError("the server no longer knows this consumer")
                return
            accept(self._read(message))
            remaining -= 1

    async def _next(self) -> Msg:
        if not self._arrived.empty():
            return self._arrived.get_nowait()
        try:
            async with SilenceTimeout(SILENCE_SECONDS):
                return await self._arrived.get()
        except TimeoutError:
            raise BusError(f"{self._connection.server} is silent") from None

    def _read(self, message: Msg) -> Delivered:
        # $JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.NUMBER.TIME.PENDING; newer servers add two parts before STREAM and
        # some after PENDING.
        parts = message.reply.split(".")
        begin = 2 if len(parts) == 9 else 4
        try:
            sequence, number, time_ns, pending = map(int, parts[begin + 3 : begin + 7])
        except ValueError as error:
            raise BusError(f"{message.reply[:80]}: is not the reply subject of a stream's message") from error
        self._number += 1
        if number != self._number:
            raise BusError(f"message {self._number} of the stream was not delivered, but {number} was")
        headers = message.headers or {}
        return Delivered(sequence, headers.get(MESSAGE_ID, ""), headers.get(ORIGIN, ""), time_ns, pending, message.data)
