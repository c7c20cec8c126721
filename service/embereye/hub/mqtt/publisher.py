"""Keeps a broker up to date: what it does not hold yet is published, and all of it anew where the broker is.

There is no queue: what is to be retained is known at any time, and so is what the broker has acknowledged in this
connection. The difference is what is published next, zones first, so that a broker that was away gets what is true
now, in however many steps that came about.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable

import aiomqtt

from embereye.hub.coverage.book import CoverageBook
from embereye.hub.feeds.feed import Feed
from embereye.hub.mqtt.entities import OFFLINE, ONLINE, Message
from embereye.hub.mqtt.options import MqttOptions
from embereye.hub.mqtt.retained import RetainedTopics
from embereye.hub.zones import Zones
from embereye.process.connecting import connect_any
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside, first_of, raise_if_cancelled
from embereye.process.timing.backoff import Backoff

logger = logging.getLogger(__name__)
# The library would tell of every message that waits, and of answers to what was called off; what fails is told here.
library_logger = logging.getLogger(f"{__name__}.library")
library_logger.setLevel(logging.CRITICAL)

PAUSE_SECONDS = 1.0  # before the broker is dialled again the first time
MOST_PAUSE_SECONDS = 60.0
ANSWER_SECONDS = 10.0  # for the broker to acknowledge anything
KEEP_ALIVE_SECONDS = 15  # the broker tells our will when it has heard nothing for half as long again
BATCH = 64  # messages that are not acknowledged yet
PERIOD_SECONDS = 1.0  # between two looks at what is no event: that a device is watched for the first time
LEAST_SECONDS = 0.05  # between two looks
REST = 10.0  # times as long as a look took, which leaves the loop to the alarms
QUIET_SECONDS = 1.0  # without a further topic that the broker had retained: that was all
SWEEP_SECONDS = 30.0  # for the broker to name them
INCOMING = 50_000  # messages that wait to be read


class BrokerError(Exception):
    """The broker does not do what it is there for; says how."""


class MqttPublisher:
    """`run` it until cancelled, or until `stop`. Everything happens on the event loop's thread."""

    def __init__(
        self,
        options: MqttOptions,
        zones: Zones,
        book: CoverageBook,
        feed: Feed,
        *,
        backoff: Callable[[], Backoff] = lambda: Backoff(floor=PAUSE_SECONDS, cap=MOST_PAUSE_SECONDS),
    ) -> None:
        self._options = options
        self._wanted = RetainedTopics(options, zones, book)
        self._feed = feed
        self._backoff = backoff()
        self._told: dict[str, bytes] = {}  # what the broker has acknowledged in this connection
        self._found: set[str] = set()  # topics that it had retained
        self._proved = asyncio.Event()  # it hands out what we publish
        self._complete = asyncio.Event()  # it has had everything once
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self.behind = 0  # topics of which the broker has not acknowledged what is true now
        self.published = 0  # messages that it has acknowledged
        self.failures = 0  # connections that failed or broke
        self.failing = "it has not been reached yet"  # why the broker is not up to date; '': it is, or is being brought

    @property
    def connected(self) -> bool:
        """Whether the broker is connected and hands out what is published."""
        return self._proved.is_set()

    async def run(self) -> None:
        """Keep the broker up to date; where it is away, try again less and less often."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._connect()
                except (aiomqtt.MqttError, BrokerError, UserError, OSError, ValueError) as error:
                    self._note_failing(str(error) or type(error).__name__)
                raise_if_cancelled()
                self._proved.clear()
                await first_of(self._stopping.wait(), timeout=self._backoff.next())
        finally:
            self._proved.clear()
            self._stopped.set()

    async def stop(self, seconds: float) -> None:
        """Have the broker told that nobody keeps it up to date any more; wait up to `seconds` for that."""
        self._stopping.set()
        await first_of(self._stopped.wait(), timeout=seconds)

    def _note_failing(self, why: str) -> None:
        self.failures += 1
        self.behind = max(self.behind, len(self._told))
        if why != self.failing:
            logger.error("MQTT broker %s: %s; trying again", self._options.address, why)
        self.failing = why

    # One connection

    async def _connect(self) -> None:
        options, status = self._options, self._wanted.topics.status
        await self._reach()
        user, password = options.login() or (None, None)
        self._told, self._found = {}, set()
        self._complete.clear()
        client = aiomqtt.Client(
            options.host,
            options.port,
            username=user,
            password=password,
            identifier=options.client,
            will=aiomqtt.Will(status, OFFLINE, qos=1, retain=True),
            keepalive=KEEP_ALIVE_SECONDS,
            timeout=ANSWER_SECONDS,
            tls_context=self._context(),
            max_queued_incoming_messages=INCOMING,
            max_inflight_messages=BATCH,
            logger=library_logger,
        )
        async with client:
            await self._subscribe(client, status, 1)
            async with (
                beside(self._listen(client), name="mqtt-listen") as listening,
                beside(self._tell(client), name="mqtt-tell") as telling,
                beside(self._sweep(client), name="mqtt-sweep") as sweeping,
                beside(self._stopping.wait(), name="mqtt-stop") as stopping,
            ):
                working = {listening, telling, sweeping}
                done, _ = await asyncio.wait({*working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                failed = [error for task in done & working if (error := task.exception())]
                if failed:
                    raise failed[0]
            await client.publish(status, OFFLINE, qos=1, retain=True)

    async def _reach(self) -> None:
        """Raise OSError where nobody answers.

        The library dials in a thread, which nobody can call back: the hub's end would wait for it.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await connect_any(self._options.host, self._options.port)
        except TimeoutError:
            raise OSError(f"no answer within {ANSWER_SECONDS:g} s") from None
        connection.close()

    def _context(self) -> ssl.SSLContext | None:
        return self._options.client_tls().context() if self._options.tls else None

    async def _subscribe(self, client: aiomqtt.Client, topic: str, qos: int) -> None:
        (answer,) = await client.subscribe(topic, qos)
        raise_if_cancelled()
        if (answer if isinstance(answer, int) else answer.value) >= 0x80:
            raise BrokerError(f"it does not let this user read {topic}")

    async def _listen(self, client: aiomqtt.Client) -> None:
        status = self._wanted.topics.status
        async for message in client.messages:
            topic = message.topic.value
            if topic != status:
                if message.retain and len(self._found) < INCOMING:
                    self._found.add(topic)
            elif message.retain:
                continue  # from before
            elif message.payload == ONLINE:
                self._prove()
            elif self._proved.is_set():
                self._told.pop(status, None)  # the will of a connection that was lost: it is no longer true

    def _prove(self) -> None:
        if not self._proved.is_set():
            logger.info("MQTT broker %s is up to date", self._options.address)
        self._proved.set()
        self.failing = ""
        self._backoff.reset()

    async def _tell(self, client: aiomqtt.Client) -> None:
        while True:
            seen, began = self._feed.latest, time.monotonic()
            self._wanted.refresh()
            pending = self._pending()
            self.behind = len(pending)
            rest = max(LEAST_SECONDS, REST * (time.monotonic() - began))
            until = time.monotonic() + rest
            while pending and time.monotonic() < until:
                batch, pending = pending[:BATCH], pending[BATCH:]
                await asyncio.gather(*(self._publish(client, *message) for message in batch))
            self.behind = len(pending)
            if not pending:
                self._complete.set()
                if self._feed.latest == seen:
                    await first_of(self._feed.wait_for_events(), timeout=PERIOD_SECONDS)
            await asyncio.sleep(max(0.0, until - time.monotonic()))

    def _pending(self) -> list[Message]:
        """What the broker has not acknowledged as it is now, the most urgent first."""
        wanted: dict[str, bytes] = dict(self._wanted.urgent())
        # Not before what it speaks for: until then entities are unavailable, not old.
        wanted[self._wanted.topics.status] = ONLINE
        wanted.update(self._wanted.descriptions())
        told = self._told
        pending = [message for message in wanted.items() if told.get(message[0]) != message[1]]
        return [*pending, *((topic, b"") for topic in told if topic not in wanted)]

    async def _publish(self, client: aiomqtt.Client, topic: str, payload: bytes) -> None:
        await client.publish(topic, payload, qos=1, retain=True)
        raise_if_cancelled()
        self.published += 1
        if payload:
            self._told[topic] = payload
        else:
            self._told.pop(topic, None)  # an empty payload is how a broker forgets

    async def _sweep(self, client: aiomqtt.Client) -> None:
        """Have the broker prove itself, and forget zones and devices that went while the hub was away."""
        await self._complete.wait()
        status = self._wanted.topics.status
        if not await first_of(self._proved.wait(), timeout=ANSWER_SECONDS):
            raise BrokerError(f"it does not hand out what is published: this user has to write and read {status}")
        for wanted in (filters := self._wanted.topics.filters):
            try:
                await self._subscribe(client, wanted, 0)
            except BrokerError as error:
                logger.warning("MQTT broker %s: what is no longer there stays: %s", self._options.address, error)
        await self._await_quiet()
        await client.unsubscribe(filters)
        stale = self._found - self._told.keys()
        for topic in stale:
            await self._publish(client, topic, b"")  # one that has become true since then is told anew
        if stale:
            logger.info("MQTT broker %s: %d topics are removed: what they tell of is no longer there",
                        self._options.address, len(stale))  # fmt: skip
        self._found = set()
        await asyncio.Event().wait()

    async def _await_quiet(self) -> None:
        deadline, found = time.monotonic() + SWEEP_SECONDS, -1
        while found != len(self._found) and time.monotonic() < deadline:
            found = len(self._found)
            await asyncio.sleep(QUIET_SECONDS)
