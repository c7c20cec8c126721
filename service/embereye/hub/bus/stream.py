"""The hub's stream: made where there is none, refused where it would lose what was acknowledged, and kept short."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from embereye.hub.bus.connection import BusError, Connection, MissingError
from embereye.hub.bus.options import BusOptions
from embereye.hub.bus.records import Position
from embereye.units import MINUTE

MESSAGE_ID = "Nats-Msg-Id"
DUPLICATE_NS = 2 * MINUTE  # for which the stream itself knows a report again; the database always does


def message_id(report: str) -> str:
    """What a report's message is known by: its id may be anything, a header's value may not."""
    return hashlib.blake2b(report.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class StreamState:
    """What the server says of the stream."""

    first: int  # sequence of the oldest message that it has
    last: int  # of the newest one there ever was
    messages: int
    ahead_ns: int | None  # how far the server's clock is ahead of ours; None: it does not say

    @classmethod
    def read(cls, info: dict[str, Any], now_ns: int) -> "StreamState":
        """Of an answer to STREAM.INFO that came at `now_ns`."""
        state = info["state"]
        told = info.get("ts")  # since nats-server 2.10
        ahead = _nanoseconds(told) - now_ns if told else None
        return cls(int(state["first_seq"]), int(state["last_seq"]), int(state["messages"]), ahead)


class Stream:
    """One connection's view of it."""

    def __init__(self, connection: Connection, options: BusOptions, clock: Callable[[], int]) -> None:
        """`clock` is held against the server's."""
        self._connection = connection
        self._options = options
        self._clock = clock

    async def prepare(self) -> StreamState:
        """Make it where there is none. BusError where it is none that evidence may be acknowledged by."""
        name = self._options.stream
        try:
            info = await self._connection.call(f"STREAM.INFO.{name}")
        except MissingError:
            info = await self._connection.call(f"STREAM.CREATE.{name}", self._wanted())
        now_ns = self._clock()
        if why := unfit(info["config"], self._options.subject):
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

    async def state(self) -> StreamState:
        """As it is now."""
        info = await self._connection.call(f"STREAM.INFO.{self._options.stream}")
        return StreamState.read(info, self._clock())

    async def holds(self, position: Position) -> bool:
        """Whether the message of `position` is where it was: what comes after it has not been consumed then."""
        call = f"STREAM.MSG.GET.{self._options.stream}"
        try:
            found = await self._connection.call(call, {"seq": position.sequence})
        except MissingError:
            return False
        headers = base64.b64decode(found["message"].get("hdrs", ""))
        return f"{MESSAGE_ID}: {position.message}\r\n".encode() in headers

    async def forget_before(self, sequence: int) -> None:
        """Remove what comes before `sequence`."""
        await self._connection.call(f"STREAM.PURGE.{self._options.stream}", {"seq": sequence})


def unfit(config: dict[str, Any], subject: str) -> str:
    """Why evidence may not be acknowledged by a stream of this configuration; '' where it may."""
    bounded = any(int(config.get(name, -1)) > 0 for name in ("max_msgs", "max_bytes", "max_msgs_per_subject"))
    for wrong, why in (
        (subject not in config.get("subjects", ()), f"does not take {subject}: it is somebody else's, name another"),
        (config.get("storage") != "file", "is kept in memory, which a restart of the server loses: make it of files"),
        (config.get("retention") != "limits", "forgets by itself what was delivered: its retention has to be limits"),
        (config.get("no_ack"), "acknowledges nothing: make it without no_ack"),
        (config.get("deny_purge"), "cannot be kept short: make it without deny_purge"),
        (config.get("max_age"), "forgets by itself what is old: its maximum age has to be 0"),
        (
            bounded and config.get("discard") != "new",
            "forgets by itself what is old where it is full: it has to discard what is new",
        ),
    ):
        if wrong:
            return why
    return ""


def _nanoseconds(time_text: str) -> int:
    """Of an RFC 3339 time in UTC with up to nine digits of a second, which `datetime` does not read."""
    seconds, _, fraction = time_text.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp())
    return whole * 10**9 + int(fraction.ljust(9, "0")[:9] or 0)
