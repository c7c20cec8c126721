"""Reads the stream in its order, from a position on; each message once for each time that it is asked to begin."""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nats.aio.msg import Msg

from embereye.hub.bus.connection import BusError, Connection
from embereye.hub.bus.options import BusOptions
from embereye.hub.bus.publisher import ORIGIN
from embereye.hub.bus.stream import MESSAGE_ID
from embereye.process.timing.silence import SilenceTimeout
from embereye.units import MIB, SECOND

logger = logging.getLogger(__name__)
BATCH = 500  # messages that are asked for at once
BATCH_BYTES = 16 * MIB
EXPIRES_SECONDS = 10.0  # that the server waits for them
HEARTBEAT_SECONDS = 1.0  # in which it says that it is there
SILENCE_SECONDS = 3.5  # without a word of it, after which it is given up
FORGOTTEN_SECONDS = 60.0  # after which it forgets a consumer that asks for nothing
HEARTBEAT, LEFT = "100", "503"  # of what a message without content says


@dataclass(frozen=True)
class Delivered:
    """One message of the stream."""

    sequence: int
    message: str  # its id
    origin: str  # whose timeline the report's times are on
    time_ns: int  # when the server took it, by the server's clock
    pending: int  # messages that come after it
    payload: bytes


class Consumer:
    """Of one connection, for one reader."""

    def __init__(self, connection: Connection, options: BusOptions) -> None:
        self._connection = connection
        self._options = options
        self._name = f"hub-{secrets.token_hex(6)}"
        self._inbox = connection.new_inbox()
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()
        self._number = 0  # of the last message that was delivered to this consumer

    async def begin(self, after: int) -> None:
        """Have the server ready to hand out the messages after sequence `after`; BusError."""
        stream = self._options.stream
        await self._connection.subscribe(self._inbox, self._arrived.put)
        config = {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            # What was consumed is in the hub's database. There is nothing that the server would have to remember.
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": self._options.subject,
            "inactive_threshold": int(FORGOTTEN_SECONDS * SECOND),
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": stream, "config": config}
        await self._connection.call(f"CONSUMER.CREATE.{stream}.{self._name}.{self._options.subject}", body)

    async def run(self, room: Callable[[], Awaitable[None]], take: Callable[[Delivered], None]) -> None:
        """Hand them to `take`, until cancelled or BusError. `room` is awaited before more are asked for."""
        next_ones = f"$JS.API.CONSUMER.MSG.NEXT.{self._options.stream}.{self._name}"
        ask = json.dumps({
            "batch": BATCH, "max_bytes": BATCH_BYTES, "expires": int(EXPIRES_SECONDS * SECOND),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * SECOND),
        }).encode()  # fmt: skip
        while True:
            await room()
            await self._connection.publish(next_ones, ask, reply=self._inbox)
            await self._receive(take)

    async def _receive(self, take: Callable[[Delivered], None]) -> None:
        """Until the server has given what it was asked for, or says that it gives no more."""
        left = BATCH
        while left:
            message = await self._next()
            if status := (message.headers or {}).get("Status"):
                if status == HEARTBEAT:
                    continue
                if status == LEFT:
                    raise BusError("the server no longer knows what it was asked for")
                return
            take(self._read(message))
            left -= 1

    async def _next(self) -> Msg:
        if not self._arrived.empty():
            return self._arrived.get_nowait()
        try:
            async with SilenceTimeout(SILENCE_SECONDS):
                return await self._arrived.get()
        except TimeoutError:
            raise BusError(f"{self._connection.server} says nothing") from None

    def _read(self, message: Msg) -> Delivered:
        # $JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.NUMBER.TIME.PENDING, or two more before the stream, and more behind.
        parts = message.reply.split(".")
        begin = 2 if len(parts) == 9 else 4
        try:
            sequence, number, time_ns, pending = map(int, parts[begin + 3 : begin + 7])
        except ValueError as error:
            raise BusError(f"{message.reply[:80]} is not where a message of a stream comes from") from error
        self._number += 1
        if number != self._number:
            raise BusError(f"message {self._number} of the stream was not delivered, {number} came instead")
        headers = message.headers or {}
        return Delivered(sequence, headers.get(MESSAGE_ID, ""), headers.get(ORIGIN, ""), time_ns, pending, message.data)
