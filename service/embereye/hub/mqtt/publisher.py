"""Publishes the present state of zones and devices to an MQTT broker.

There is no queue. The publisher knows the topics and payloads that the broker should retain, and those that it has
acknowledged in this connection. It publishes the difference, zones first. After an outage the broker therefore gets
the present state only, not the changes in between. After a new connection it gets everything.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import aiomqtt

from embereye.hub.coverage.book import CoverageBook
from embereye.hub.feeds.feed import Feed
from embereye.hub.mqtt.entities import OFFLINE, ONLINE, Message
from embereye.hub.mqtt.options import MqttOptions
from embereye.hub.mqtt.retained import RetainedTopics
from embereye.hub.switches import MAX_MESSAGE, ZoneSwitch
from embereye.hub.tables.zones import ZoneKey
from embereye.hub.zones import Zones
from embereye.process.condition import Condition
from embereye.process.connecting import connect_any
from embereye.process.lifecycle import UserError
from embereye.process.mqtt_client import MqttClient
from embereye.process.reason import reason_of
from embereye.process.tasks import beside, first_of, raise_if_cancelled
from embereye.process.timing.backoff import Backoff

logger = logging.getLogger(__name__)
# The library logs every waiting message and answers to cancelled requests; this module logs failures itself.
library_logger = logging.getLogger(f"{__name__}.library")
library_logger.setLevel(logging.CRITICAL)

PAUSE_SECONDS = 1.0  # before the first new attempt to connect
MAX_PAUSE_SECONDS = 60.0
ANSWER_SECONDS = 10.0  # longest wait for the broker's acknowledgement
KEEP_ALIVE_SECONDS = 15  # the broker publishes our will after one and a half times this silence
BATCH = 64  # unacknowledged messages
PERIOD_SECONDS = 1.0  # between two passes without events, for instance to notice a newly watched device
MIN_SECONDS = 0.05  # between two passes
REST = 10.0  # pause after a pass, in multiples of its duration: it leaves the event loop to the alarms
QUIET_SECONDS = 1.0  # without another retained topic for this time, the broker has sent all of them
SWEEP_SECONDS = 30.0  # longest wait for all retained topics
INCOMING = 50_000  # received messages that wait


class BrokerError(Exception):
    """The broker does not work as needed; the message says how."""


class MqttPublisher:
    """Call `run` until cancelled, or until `stop`. Everything happens on the event loop's thread."""

    def __init__(
        self,
        options: MqttOptions,
        zones: Zones,
        book: CoverageBook,
        feed: Feed,
        *,
        switches: Sequence[ZoneSwitch] = (),
        backoff: Callable[[], Backoff] = lambda: Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS),
    ) -> None:
        self._options = options
        self._wanted = RetainedTopics(options, zones, book, switches)
        self._switches = {switch.name: switch for switch in switches}
        self._feed = feed
        self._backoff = backoff()
        self._acknowledged: dict[str, bytes] = {}  # messages that the broker has acknowledged in this connection
        self._retained: set[str] = set()  # topics that the broker had retained before
        self._proved = asyncio.Event()  # the broker delivers what is published
        self._complete = asyncio.Event()  # the broker has received everything once
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self.behind = 0  # topics whose present state the broker has not acknowledged
        self.published = 0  # acknowledged messages
        self.failures = 0  # failed or broken connections
        self.failing = Condition(logger, begin=logging.ERROR)  # the broker is not up to date, and will not soon be
        self.failing.why = "not connected yet"

    @property
    def connected(self) -> bool:
        """True if the broker is connected and delivers what is published."""
        return self._proved.is_set()

    async def run(self) -> None:
        """Publish until cancelled or stopped; try again less and less often while the broker is unreachable."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._connect()
                except (aiomqtt.MqttError, BrokerError, UserError, OSError, ValueError) as error:
                    self._note_failing(reason_of(error))
                raise_if_cancelled()
                self._proved.clear()
                await first_of(self._stopping.wait(), timeout=self._backoff.next())
        finally:
            self._proved.clear()
            self._stopped.set()

    async def stop(self, seconds: float) -> None:
        """Publish that the hub is offline; wait up to `seconds` for that."""
        self._stopping.set()
        await first_of(self._stopped.wait(), timeout=seconds)

    def _note_failing(self, why: str) -> None:
        self.failures += 1
        self.behind = max(self.behind, len(self._acknowledged))
        self.failing.fail(why, "MQTT broker %s: %s; trying again", self._options.address, why)

    # One connection

    async def _connect(self) -> None:
        options, status = self._options, self._wanted.topics.status
        await self._reach()
        user, password = options.login() or (None, None)
        self._acknowledged, self._retained = {}, set()
        self._complete.clear()
        client = MqttClient(
            options.host,
            options.port,
            username=user,
            password=password,
            identifier=options.client,
            will=aiomqtt.Will(status, OFFLINE, qos=1, retain=True),
            keepalive=KEEP_ALIVE_SECONDS,
            timeout=ANSWER_SECONDS,
            tls_context=options.tls_context(),
            max_queued_incoming_messages=INCOMING,
            max_inflight_messages=BATCH,
            logger=library_logger,
        )
        async with client:
            await self._subscribe(client, status, 1)
            for name in self._switches:
                await self._subscribe(client, self._wanted.topics.switches(name), 1)
            async with (
                beside(self._listen(client), name="mqtt-listen") as listening,
                beside(self._publish_changes(client), name="mqtt-publish") as publishing,
                beside(self._sweep(client), name="mqtt-sweep") as sweeping,
                beside(self._stopping.wait(), name="mqtt-stop") as stopping,
            ):
                working = {listening, publishing, sweeping}
                done, _ = await asyncio.wait({*working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                failed = [error for task in done & working if (error := task.exception())]
                if failed:
                    raise failed[0]
            await client.publish(status, OFFLINE, qos=1, retain=True)

    async def _reach(self) -> None:
        """Raise OSError if the broker does not answer.

        The library dials in a thread that cannot be cancelled: without this test the hub's stop would wait for it.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await connect_any(self._options.host, self._options.port)
        except TimeoutError:
            raise OSError(f"no answer within {ANSWER_SECONDS:g} s") from None
        connection.close()

    async def _subscribe(self, client: aiomqtt.Client, topic: str, qos: int) -> None:
        (answer,) = await client.subscribe(topic, qos)
        raise_if_cancelled()
        if (answer if isinstance(answer, int) else answer.value) >= 0x80:
            raise BrokerError(f"this user is not allowed to read {topic}")

    async def _listen(self, client: aiomqtt.Client) -> None:
        status = self._wanted.topics.status
        async for message in client.messages:
            topic = message.topic.value
            if switched := self._wanted.topics.switched(topic):
                await self._switch(*switched, message)
            elif topic != status:
                if message.retain and len(self._retained) < INCOMING:
                    self._retained.add(topic)
            elif message.retain:
                continue  # published before this connection
            elif message.payload == ONLINE:
                self._prove()
            elif self._proved.is_set():
                self._acknowledged.pop(status, None)  # the will of a lost connection: publish our status again

    async def _switch(self, name: str, key: ZoneKey, message: aiomqtt.Message) -> None:
        """Make the choice of a message. The writer sees the outcome in the zone's payload."""
        if name not in self._switches or not message.payload:
            return  # an empty payload removes what was retained
        payload = message.payload
        refusal = "it is retained. Send it without the retain flag."
        if not message.retain:
            text = payload.decode(errors="replace") if isinstance(payload, bytes) else str(payload)
            refusal = "it is too long" if len(text) > MAX_MESSAGE else await self._switches[name].switch(key, text)
        if refusal:
            logger.warning("MQTT broker %s: the %s of zone %s is not changed: %s",
                           self._options.address, name, "/".join(key), refusal)  # fmt: skip

    def _prove(self) -> None:
        if not self._proved.is_set():
            logger.info("MQTT broker %s is up to date", self._options.address)
        self._proved.set()
        self.failing.clear()
        self._backoff.reset()

    async def _publish_changes(self, client: aiomqtt.Client) -> None:
        while True:
            seen, began = self._feed.latest, time.monotonic()
            self._wanted.refresh()
            pending = self._pending()
            self.behind = len(pending)
            rest = max(MIN_SECONDS, REST * (time.monotonic() - began))
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
        """The messages that the broker has not acknowledged, the most urgent first."""
        wanted: dict[str, bytes] = dict(self._wanted.urgent())
        # The status follows the states: until then entities are unavailable, not outdated.
        wanted[self._wanted.topics.status] = ONLINE
        wanted.update(self._wanted.descriptions())
        known = self._acknowledged
        pending = [message for message in wanted.items() if known.get(message[0]) != message[1]]
        return [*pending, *((topic, b"") for topic in known if topic not in wanted)]

    async def _publish(self, client: aiomqtt.Client, topic: str, payload: bytes) -> None:
        await client.publish(topic, payload, qos=1, retain=True)
        raise_if_cancelled()
        self.published += 1
        if payload:
            self._acknowledged[topic] = payload
        else:
            self._acknowledged.pop(topic, None)  # an empty payload removes a topic from the broker

    async def _sweep(self, client: aiomqtt.Client) -> None:
        """Check that the broker delivers, and remove topics of zones and devices that went while the hub was down."""
        await self._complete.wait()
        status = self._wanted.topics.status
        if not await first_of(self._proved.wait(), timeout=ANSWER_SECONDS):
            raise BrokerError(f"it does not deliver what is published. Allow this user to write and read {status}.")
        for wanted in (filters := self._wanted.topics.filters):
            try:
                await self._subscribe(client, wanted, 0)
            except BrokerError as error:
                logger.warning("MQTT broker %s: outdated topics are not removed: %s", self._options.address, error)
        await self._await_quiet()
        await client.unsubscribe(filters)
        stale = self._retained - self._acknowledged.keys()
        for topic in stale:
            await self._publish(client, topic, b"")  # a topic that exists again is published again
        if stale:
            logger.info("MQTT broker %s: removed %d topics of zones and devices that no longer exist",
                        self._options.address, len(stale))  # fmt: skip
        self._retained = set()
        await asyncio.Event().wait()

    async def _await_quiet(self) -> None:
        deadline, known = time.monotonic() + SWEEP_SECONDS, -1
        while known != len(self._retained) and time.monotonic() < deadline:
            known = len(self._retained)
            await asyncio.sleep(QUIET_SECONDS)
