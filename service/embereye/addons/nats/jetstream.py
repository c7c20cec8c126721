"""The JetStream bus: carries evidence through a stream in NATS, for as long as the hub runs.

Every replica publishes the reports that it receives; the stream acknowledges them, so that shards need not wait for the
database. The replica that owns the database also has a `Reader`, which consumes the stream from its stored position.

`run` maintains one connection at a time: it prepares the stream, starts the consumer, opens the publisher, and connects
again, with back-off, after any failure. Meanwhile `failing` says why, and reports go directly to the database.
Consumed messages are removed from the stream some time later.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Protocol

from embereye.addons.nats.connection import BusError, Connection, dial
from embereye.addons.nats.consumer import Consumer, Delivered
from embereye.addons.nats.options import BusOptions
from embereye.addons.nats.publisher import Publisher
from embereye.addons.nats.stream import Stream, StreamState
from embereye.hub.evidence_bus import Outgoing
from embereye.hub.tables.consumed import Position
from embereye.process.condition import Condition
from embereye.process.lifecycle import UserError
from embereye.process.reason import reason_of
from embereye.process.tasks import beside, failure_of, raise_if_cancelled
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns

logger = logging.getLogger(__name__)
MOST_PAUSE_SECONDS = 2.0  # longest pause between two attempts to connect
TIDY_SECONDS = 30.0  # between two removals of consumed messages; each message stays for at least that long


class Reader(Protocol):
    """The consumer of the stream's messages, in the hub that owns the database."""

    @property
    def admitted(self) -> Position | None:
        """The last message that it accepted."""

    @property
    def committed(self) -> Position | None:
        """The last message whose report is durable in the database."""

    async def wait_for_room(self) -> None:
        """Wait until it can accept more messages."""

    def accept(self, delivered: Delivered, age_ns: int | None) -> None:
        """Process a message that was published `age_ns` ago; None: its times are on the reader's own timeline."""


class JetStreamBus:
    """The bus for evidence. `run` it until cancelled, on the event loop's thread."""

    def __init__(self, options: BusOptions, reader: Reader | None = None, *, clock: Callable[[], int] = now_ns) -> None:
        """Without a `reader` it only publishes. `clock` must never be set while the process runs."""
        self._options = options
        self._reader = reader
        self._clock = clock
        self._backoff = Backoff(floor=0.1, cap=MOST_PAUSE_SECONDS)
        self._publisher: Publisher | None = None
        self._broken = Condition(logger, begin=logging.ERROR)  # there is no connection
        self._broken.why = "not connected yet"
        self._published = 0  # in earlier connections
        self.origin = secrets.token_hex(8)  # names the timeline of this hub's reports
        self.failures = 0  # connections that failed or broke
        self.pending = 0  # messages that are not consumed yet

    @property
    def failing(self) -> str:
        """The reason why the stream accepts no reports; '' if it does."""
        if self._broken or self._publisher is None:
            return f"the stream {self._options.stream} in NATS cannot be used: {self._broken.why or 'not connected'}"
        if self._publisher.refused:
            return f"the stream {self._options.stream} in NATS accepts no reports: {self._publisher.refused}"
        return ""

    @property
    def published(self) -> int:
        """The number of reports that the stream acknowledged since the start."""
        return self._published + (self._publisher.published if self._publisher else 0)

    async def offer(self, report: Outgoing, now_ns: int) -> bool:
        """Publish `report` if there is a connection; see `EvidenceBus.offer`."""
        while (publisher := self._publisher) is not None:
            await publisher.wait_for_room()
            if publisher is not self._publisher:
                continue
            try:
                await publisher.send(report, now_ns)
            except BusError:
                return False
            return True
        return False

    async def run(self) -> None:
        """Maintain a connection; after each failure, connect again."""
        while True:
            try:
                connection = await dial(self._options)
                try:
                    await self._serve(connection)
                finally:
                    await connection.close()
            except (BusError, UserError) as error:
                self._note_broken(reason_of(error))
            except Exception as error:  # an error in the library must not stop alarms
                logger.exception("NATS: unexpected error")
                self._note_broken(reason_of(error))
            raise_if_cancelled()
            await asyncio.sleep(self._backoff.next())

    def _note_broken(self, why: str) -> None:
        self.failures += 1
        self._broken.fail(why, "NATS: %s; trying again", why)

    async def _serve(self, connection: Connection) -> None:
        stream = Stream(connection, self._options, self._clock)
        state = await stream.prepare()
        consumer = Consumer(connection, self._options)
        if self._reader is not None:  # start reading first: an unreadable stream must not acknowledge reports
            after = await self._start_sequence(stream, self._reader.admitted)
            self.pending = max(0, state.last - max(after, state.first - 1))
            await consumer.begin(after)
        publisher = Publisher(connection, self._options, self.origin)
        await publisher.open()
        self._publisher = publisher
        self._broken.clear()
        self._backoff.reset()
        logger.info("NATS: connected to %s, stream %s", connection.server, self._options.stream)
        try:
            # No TaskGroup: before Python 3.13 it loses a cancellation that coincides with a failing task.
            async with (
                beside(_raise_when_lost(connection), name="bus-lost") as lost,
                beside(publisher.watch(), name="bus-watch") as watching,
                beside(self._read(consumer, state), name="bus-read") as reading,
                beside(self._tidy(stream), name="bus-tidy") as tidying,
            ):
                serving = {lost, watching, reading, tidying}
                done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
                errors = [error for task in done if (error := failure_of(task))]
                raise min(errors, key=lambda error: isinstance(error, BusError))  # unexpected errors first
        finally:
            self._broken.why = connection.why or "the connection was closed by the hub"
            self._publisher = None
            self._published += publisher.published
            publisher.fail_pending()

    async def _read(self, consumer: Consumer, state: StreamState) -> None:
        reader = self._reader
        if reader is None:
            await asyncio.Event().wait()
            return
        if state.ahead_ns is None:
            logger.info("NATS: the server does not report its time: its clock is assumed to equal the hub's")
        ahead_ns = state.ahead_ns or 0

        def accept(delivered: Delivered) -> None:
            self.pending = delivered.pending
            ours = delivered.origin == self.origin
            reader.accept(delivered, None if ours else max(0, self._clock() + ahead_ns - delivered.time_ns))

        await consumer.run(reader.wait_for_room, accept)

    async def _start_sequence(self, stream: Stream, position: Position | None) -> int:
        """The sequence after which reading continues; 0 reads the whole stream."""
        if position is None or position.stream != self._options.stream:
            return 0
        if await stream.has_message(position):
            return position.sequence
        # The stream lost its end, or was created again. Reports that are read twice are recognized by their ids.
        logger.warning(
            "NATS: the stream %s no longer has message %d, the last one that was consumed: reading all its messages",
            position.stream, position.sequence,
        )  # fmt: skip
        return 0

    async def _tidy(self, stream: Stream) -> None:
        """Remove consumed messages after some time, because a database that fails over may lose its latest commits."""
        consumed: Position | None = None
        failing = Condition(logger, begin=logging.ERROR)
        while self._reader is not None:
            await asyncio.sleep(TIDY_SECONDS)
            if consumed is not None:
                try:
                    if await stream.has_message(consumed):  # if not, the stream was created again with new numbers
                        await stream.forget_before(consumed.sequence)
                except BusError as error:
                    failing.fail(str(error), "NATS: consumed messages stay in the stream: %s", error)
            consumed = self._reader.committed


async def _raise_when_lost(connection: Connection) -> None:
    await connection.lost.wait()
    raise BusError(f"{connection.server}: {connection.why}")
