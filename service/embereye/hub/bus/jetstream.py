"""The way of evidence through JetStream: kept up for as long as the hub runs, and told where it is not."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Protocol

from embereye.hub.bus.connection import BusError, Connection, dial, sentence
from embereye.hub.bus.consumer import Consumer, Delivered
from embereye.hub.bus.options import BusOptions
from embereye.hub.bus.outgoing import Outgoing
from embereye.hub.bus.publisher import Publisher
from embereye.hub.bus.records import Position
from embereye.hub.bus.stream import Stream, StreamState
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside, failure_of, raise_if_cancelled
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns

logger = logging.getLogger(__name__)
MOST_PAUSE_SECONDS = 2.0  # between two attempts to connect
TIDY_SECONDS = 30.0  # between two removals of what was consumed: what went since the last one stays for that long


class Reader(Protocol):
    """Who consumes the stream: the hub that owns the database."""

    @property
    def admitted(self) -> Position | None:
        """The last message that it took."""
        ...

    @property
    def committed(self) -> Position | None:
        """The last message that its database knows of."""
        ...

    async def room(self) -> None:
        """Wait until it can take more."""
        ...

    def take(self, delivered: Delivered, age_ns: int | None) -> None:
        """Take a message that has been in the stream for so long; None: its times are on the reader's own timeline."""
        ...


class JetStreamBus:
    """`run` it until cancelled. Everything happens on the event loop's thread."""

    def __init__(self, options: BusOptions, reader: Reader | None = None, *, clock: Callable[[], int] = now_ns) -> None:
        """Without a `reader` it publishes alone. `clock` is not set by anybody while the process runs."""
        self._options = options
        self._reader = reader
        self._clock = clock
        self._backoff = Backoff(floor=0.1, cap=MOST_PAUSE_SECONDS)
        self._publisher: Publisher | None = None
        self._broken = "it has not been reached yet"  # why there is no connection; '': there is one
        self._published = 0  # in connections before
        self.origin = secrets.token_hex(8)  # of the timeline that this hub's reports are on
        self.failures = 0  # connections that failed or broke
        self.pending = 0  # messages that were not consumed yet

    @property
    def failing(self) -> str:
        """Why the stream takes no reports; '' where it does."""
        if self._broken or self._publisher is None:
            return f"the stream {self._options.stream} in NATS cannot be used: {self._broken or 'not connected'}"
        if self._publisher.refused:
            return f"the stream {self._options.stream} in NATS takes no reports: {self._publisher.refused}"
        return ""

    @property
    def published(self) -> int:
        """Reports that the stream has taken since the start."""
        return self._published + (self._publisher.published if self._publisher else 0)

    async def offer(self, report: Outgoing, now_ns: int) -> bool:
        """As `EvidenceBus.offer`."""
        while (publisher := self._publisher) is not None:
            await publisher.room()
            if publisher is not self._publisher:
                continue
            try:
                await publisher.send(report, now_ns)
            except BusError:
                return False
            return True
        return False

    async def run(self) -> None:
        """Keep up a connection; where that fails, try again."""
        while True:
            try:
                connection = await dial(self._options)
                try:
                    await self._serve(connection)
                finally:
                    await connection.close()
            except (BusError, UserError) as error:
                self._note_broken(sentence(error))
            except Exception as error:  # alarms do not wait for NATS, whatever it says
                logger.exception("NATS: what was not foreseen")
                self._note_broken(sentence(error))
            raise_if_cancelled()
            await asyncio.sleep(self._backoff.next())

    def _note_broken(self, why: str) -> None:
        self.failures += 1
        if why != self._broken:
            logger.error("NATS: %s; trying again", why)
        self._broken = why

    async def _serve(self, connection: Connection) -> None:
        stream = Stream(connection, self._options, self._clock)
        state = await stream.prepare()
        consumer = Consumer(connection, self._options)
        if self._reader is not None:  # what nobody can read must not be acknowledged
            after = await self._begin(stream, self._reader.admitted)
            self.pending = max(0, state.last - max(after, state.first - 1))
            await consumer.begin(after)
        publisher = Publisher(connection, self._options, self.origin)
        await publisher.open()
        self._publisher, self._broken = publisher, ""
        self._backoff.reset()
        logger.info("NATS: connected to %s, stream %s", connection.server, self._options.stream)
        try:
            # A TaskGroup that is cancelled as one of its tasks fails forgets it, before Python 3.13.
            async with (
                beside(_end(connection), name="bus-lost") as lost,
                beside(publisher.watch(), name="bus-watch") as watching,
                beside(self._read(consumer, state), name="bus-read") as reading,
                beside(self._tidy(stream), name="bus-tidy") as tidying,
            ):
                serving = {lost, watching, reading, tidying}
                done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
                errors = [error for one in done if (error := failure_of(one))]
                raise min(errors, key=lambda error: isinstance(error, BusError))  # what was not foreseen first
        finally:
            self._broken = connection.why or "the connection is not used any more"
            self._publisher = None
            self._published += publisher.published
            publisher.give_back()

    async def _read(self, consumer: Consumer, state: StreamState) -> None:
        reader = self._reader
        if reader is None:
            await asyncio.Event().wait()
            return
        if state.ahead_ns is None:
            logger.info("NATS: the server does not tell its time: its clock is taken for ours")
        ahead_ns = state.ahead_ns or 0

        def take(delivered: Delivered) -> None:
            self.pending = delivered.pending
            ours = delivered.origin == self.origin
            reader.take(delivered, None if ours else max(0, self._clock() + ahead_ns - delivered.time_ns))

        await consumer.run(reader.room, take)

    async def _begin(self, stream: Stream, position: Position | None) -> int:
        """The sequence after which to read on."""
        if position is None or position.stream != self._options.stream:
            return 0
        if await stream.holds(position):
            return position.sequence
        # It lost its end, or was made anew. What is read again is known by the ids of the reports.
        logger.warning(
            "NATS: the stream %s no longer has message %d, which was the last to be consumed: reading all that it has",
            position.stream, position.sequence,
        )  # fmt: skip
        return 0

    async def _tidy(self, stream: Stream) -> None:
        """Remove what was consumed, some time after: a database that fails over may know a little less than before."""
        passed: Position | None = None
        told = ""
        while self._reader is not None:
            await asyncio.sleep(TIDY_SECONDS)
            if passed is not None:
                try:
                    if await stream.holds(passed):  # otherwise the number is another message's: it was made anew
                        await stream.forget_before(passed.sequence)
                except BusError as error:
                    if str(error) != told:
                        logger.error("NATS: what was consumed stays in the stream: %s", error)  # noqa: TRY400
                    told = str(error)
            passed = self._reader.committed


async def _end(connection: Connection) -> None:
    await connection.lost.wait()
    raise BusError(f"{connection.server}: {connection.why}")
