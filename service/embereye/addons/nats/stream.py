"""The hub's stream in JetStream: creates it if missing, refuses one that could lose reports, and keeps it short.

`JetStreamBus` calls `prepare` at each connection, before any report is published. A stream whose configuration could
lose acknowledged messages is refused; it may have been made by an administrator. Only `forget_before` removes messages;
the bus calls it for messages that the database has.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from embereye.addons.nats.connection import BusError, Connection, MissingError
from embereye.addons.nats.options import BusOptions
from embereye.hub.tables.consumed import Position
from embereye.units import MINUTE

MESSAGE_ID = "Nats-Msg-Id"  # header with the key of a message's report
DUPLICATE_NS = 2 * MINUTE  # how long the stream itself recognizes a duplicate; the database always does


@dataclass(frozen=True)
class StreamState:
    """The stream's state on the server."""

    first: int  # sequence of the oldest message
    last: int  # sequence of the newest message ever
    messages: int
    ahead_ns: int | None  # how far the server's clock is ahead of ours; None: not known

    @classmethod
    def read(cls, info: dict[str, Any], now_ns: int) -> "StreamState":
        """Read the answer to STREAM.INFO, which arrived at `now_ns`."""
        state = info["state"]
        server_time = info.get("ts")  # since nats-server 2.10
        ahead = _nanoseconds(server_time) - now_ns if server_time else None
        return cls(int(state["first_seq"]), int(state["last_seq"]), int(state["messages"]), ahead)


class Stream:
    """The stream, through one connection."""

    def __init__(self, connection: Connection, options: BusOptions, clock: Callable[[], int]) -> None:
        """`clock` is compared with the server's."""
        self._connection = connection
        self._options = options
        self._clock = clock

    async def prepare(self) -> StreamState:
        """Create the stream if it is missing. BusError if its configuration could lose acknowledged evidence."""
        name = self._options.stream
        try:
            info = await self._connection.call(f"STREAM.INFO.{name}")
        except MissingError:
            info = await self._connection.call(f"STREAM.CREATE.{name}", self._wanted())
        now_ns = self._clock()
        if why := unfitness(info["config"], self._options.subject):
            raise BusError(f"the stream {name} {why}")
        return StreamState.read(info, now_ns)

    def _wanted(self) -> dict[str, object]:
        return {
            "name": self._options.stream,
            "description": "Evidence on its way into a hub of EmberEye",
            "subjects": [self._options.subject],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": self._options.copies,
            "duplicate_window": DUPLICATE_NS,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_consumers": -1,
            "max_age": 0,
        }

    async def has_message(self, position: Position) -> bool:
        """True if the message of `position` still has its sequence; later messages are then not consumed yet."""
        call = f"STREAM.MSG.GET.{self._options.stream}"
        try:
            answer = await self._connection.call(call, {"seq": position.sequence})
        except MissingError:
            return False
        headers = base64.b64decode(answer["message"].get("hdrs", ""))
        return f"{MESSAGE_ID}: {position.message}\r\n".encode() in headers

    async def forget_before(self, sequence: int) -> None:
        """Remove the messages before `sequence`."""
        await self._connection.call(f"STREAM.PURGE.{self._options.stream}", {"seq": sequence})


def unfitness(config: dict[str, Any], subject: str) -> str:
    """The reason why a stream with this configuration could lose acknowledged evidence; '' if it cannot."""
    bounded = any(int(config.get(name, -1)) > 0 for name in ("max_msgs", "max_bytes", "max_msgs_per_subject"))
    for wrong, why in (
        (subject not in config.get("subjects", ()), f"does not accept {subject}, it has another purpose: name another"),
        (config.get("storage") != "file", "is stored in memory, which a restart of the server loses: set storage=file"),
        (config.get("retention") != "limits", "removes delivered messages: set retention=limits"),
        (config.get("no_ack"), "does not acknowledge messages: create it without no_ack"),
        (config.get("deny_purge"), "cannot be purged: create it without deny_purge"),
        (config.get("max_age"), "removes old messages: set max_age=0"),
        (bounded and config.get("discard") != "new", "removes old messages when it is full: set discard=new"),
    ):
        if wrong:
            return why
    return ""


def _nanoseconds(time_text: str) -> int:
    """Parse an RFC 3339 time in UTC with up to nine fractional digits, which `datetime` cannot parse."""
    seconds, _, fraction = time_text.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp())
    return whole * 10**9 + int(fraction.ljust(9, "0")[:9] or 0)
