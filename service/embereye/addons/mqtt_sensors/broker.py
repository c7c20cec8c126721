"""One connection to a broker, for the sensors of a shard that publish there.

The session is persistent: messages of QoS 1 that arrive while the shard restarts wait at the broker, and each message
is acknowledged only after it has been analysed. A hand-over loses nothing either, because the new owner subscribes
before the old one unsubscribes.

In a roll-out, two processes of a shard's name run at the same time. Each has its session, named after the shard and
its host, which is the pod. With one session, the two would disconnect each other again and again, and the last
unsubscription of the old one would silence the new one. The broker drops the session of a pod that is gone after
`SESSION_SECONDS`, if it knows MQTT 5.

A sleeping device says little, so a shard that has just begun does not know when it was heard last. Therefore each
check-in is also published, retained, below `CHECK_INS`: the next owner reads it there. If the broker does not allow
that, a device is dark after a restart until it reports again.
"""

import asyncio
import contextlib
import json
import logging
import re
import ssl
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from embereye.addons.mqtt_sensors.deliveries import Deliveries
from embereye.process.condition import Condition
from embereye.process.connecting import connect_any
from embereye.process.lifecycle import UserError
from embereye.process.login_folder import Pair, choose, read_pairs
from embereye.process.mqtt_client import MqttClient
from embereye.process.reason import reason_of
from embereye.process.tasks import beside, raise_if_cancelled
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.process.tls.client import ClientTls
from embereye.sensor.source import Owner
from embereye.units import MINUTE, SECOND, bracketed
from embereye.wire.readings.quantity import QUANTITIES, Reading, Report
from embereye.wire.readings.sparkplug import Births, rebirth
from embereye.wire.readings.templates import SensorMapping, read

logger = logging.getLogger(__name__)
library_logger = logging.getLogger(f"{__name__}.library")
library_logger.setLevel(logging.CRITICAL)  # this module logs failures itself

CHECK_INS = "embereye/check-ins"  # prefix of the topics with the latest check-in of each sleeping device
CHECK_IN_NS = MINUTE  # nanoseconds between two of them, unless a state changes
REBIRTH_NS = MINUTE  # nanoseconds between two requests for the births of a Sparkplug node
ANSWER_SECONDS = 10.0  # longest wait for the broker
KEEP_ALIVE_SECONDS = 5  # a lost connection is noticed after one and a half times this
SUBSCRIBED = 200  # topics in one request
REST_SECONDS = 0.1  # without a message, after which a broker that was left has delivered what it had queued
SESSION_SECONDS = 3600  # for which the broker keeps messages of a process that is gone
REFUSALS = {4, 5, 0x86, 0x87}  # codes of MQTT 3.1.1 and 5: bad user name or password, not authorized
UNSUPPORTED = 0x84  # reason code of MQTT 5: the broker knows only earlier versions
MAX_CLIENT = 120  # characters; names of pods are long
CLIENT = re.compile(r"[^A-Za-z0-9-]+")
_CERTIFICATES = ("ca.crt", "tls.crt")


class BrokerError(Exception):
    """The broker refuses what is needed; the text says what."""


@dataclass(frozen=True)
class Place:
    """A broker, and the folder with the login there, which is read for each connection."""

    host: str
    port: int
    tls: bool
    folder: Path | None  # with username and password, and perhaps ca.crt, tls.crt and tls.key; None: no login

    @property
    def address(self) -> str:
        """The address as people write it."""
        return f"{'mqtts' if self.tls else 'mqtt'}://{bracketed(self.host)}:{self.port}"

    def login(self, refused: Pair | None = None) -> Pair | None:
        """Read the user and the password, of two pairs the one that was not `refused`; None: there are none.

        OSError or ValueError if they cannot be read.
        """
        if self.folder is None or not (self.folder / "username").exists():
            return None
        return choose(read_pairs(self.folder), refused)

    def context(self) -> ssl.SSLContext | None:
        """The context of a connection with TLS; UserError if a file cannot be used."""
        if not self.tls:
            return None
        named = self.folder if self.folder and any((self.folder / name).exists() for name in _CERTIFICATES) else None
        return ClientTls.in_folder(named).context()


async def reach(place: Place) -> None:
    """Raise OSError if the broker does not answer: the library dials in a thread that cannot be cancelled."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            (await connect_any(place.host, place.port)).close()
    except TimeoutError:
        raise OSError(f"no answer within {ANSWER_SECONDS:g} s") from None


async def subscribe(client: aiomqtt.Client, topics: list[str]) -> None:
    """Subscribe to `topics`, at most `SUBSCRIBED`; BrokerError if the user is not allowed to read them."""
    if client._client.protocol == MQTTProtocolVersion.MQTTv5:
        answers = await client.subscribe([(topic, SubscribeOptions(qos=1)) for topic in topics])
    else:
        answers = await client.subscribe([(topic, 1) for topic in topics])
    raise_if_cancelled()
    codes = [answer if isinstance(answer, int) else answer.value for answer in answers]
    refused = [topic for topic, code in zip(topics, codes, strict=True) if code >= 0x80]
    if any(not topic.startswith(CHECK_INS) for topic in refused):
        raise BrokerError(f"this user is not allowed to read {refused[0]}")


@dataclass
class Subscriber:
    """A device of this shard, and what is known of its check-ins."""

    device: str
    mapping: SensorMapping
    sleeps: bool  # it has its separate deadline
    fleet: str
    published_ns: int = 0
    values: dict[str, float] = field(default_factory=dict)
    heard_ns: int = 0
    births: Births | None = None  # of Sparkplug B; None: its messages are JSON or text
    asked_ns: int = 0  # when its births were requested last

    @property
    def check_in(self) -> str:
        """The topic of its check-ins."""
        return f"{CHECK_INS}/{self.fleet}/{self.device}"


class Broker:
    """Call `run` until cancelled, and `replace` when the devices change."""

    def __init__(self, place: Place, client: str, owner: Owner, *, backoff: Backoff | None = None) -> None:
        self.wanted: Mapping[str, Subscriber] = {}
        self.changed = asyncio.Event()
        self.connected = False
        self.failing = Condition(logger, begin=logging.ERROR, end=logging.INFO)
        self.received = 0  # messages
        self._place = place
        self._client_id = CLIENT.sub("-", client)[:MAX_CLIENT]
        self._version = aiomqtt.ProtocolVersion.V5
        self._owner = owner
        self._backoff = backoff or Backoff(floor=1.0, cap=30.0)
        self._by_topic: dict[str, list[Subscriber]] = {}
        self._outgoing: dict[str, tuple[str | bytes, bool]] = {}  # topic → latest payload, and whether it is retained
        self._has_outgoing = asyncio.Event()
        self._refused: Pair | None = None  # the login that the broker refused last
        self._sent: Pair | None = None
        self._is_leaving = False

    def leave(self) -> None:
        """Unsubscribe from all, and end `run`: the broker shall store nothing for devices that others read now."""
        self._is_leaving = True
        self.replace({})

    def replace(self, wanted: Mapping[str, Subscriber]) -> None:
        """Read exactly `wanted` from now on; what is known of a device stays known."""
        for device, subscriber in wanted.items():
            if known := self.wanted.get(device):
                subscriber.values, subscriber.heard_ns = known.values, known.heard_ns
                subscriber.published_ns, subscriber.asked_ns = known.published_ns, known.asked_ns
                if known.births and known.mapping == subscriber.mapping:
                    subscriber.births = known.births
        self.wanted = wanted
        self.changed.set()
        if self.failing:
            for device in wanted:
                self._owner.note_link(device, self.failing.why)

    async def run(self) -> None:
        """Receive until `leave` or cancelled; connect again, less and less often, while the broker is unreachable."""
        try:
            while not self._is_leaving:
                try:
                    await self._connect()
                except (aiomqtt.MqttError, BrokerError, UserError, OSError, ValueError) as error:
                    if self._is_too_new(error):
                        self._version = aiomqtt.ProtocolVersion.V311
                        continue
                    if self._is_refusal(error):
                        self._refused = self._sent  # if the Secret has another one, that is sent next
                    self._note_failing(reason_of(error))
                raise_if_cancelled()
                self.connected = False
                if not self._is_leaving:
                    await asyncio.sleep(self._backoff.next())
        finally:
            self.connected = False

    def _is_refusal(self, error: Exception) -> bool:
        """True if the broker refused user and password."""
        code = error.rc if isinstance(error, aiomqtt.MqttCodeError) else None
        return getattr(code, "value", code) in REFUSALS

    def _is_too_new(self, error: Exception) -> bool:
        """True if the broker refused MQTT 5."""
        code = error.rc if isinstance(error, aiomqtt.MqttCodeError) else None
        is_five = self._version == aiomqtt.ProtocolVersion.V5
        return is_five and isinstance(code, ReasonCode) and code.value == UNSUPPORTED

    def _session(self) -> dict[str, Any]:
        """The arguments of a connection for its persistent session."""
        if self._version == aiomqtt.ProtocolVersion.V311:
            return {"protocol": self._version, "clean_session": False}
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = SESSION_SECONDS
        return {"protocol": self._version, "clean_start": False, "properties": properties}

    def _note_failing(self, why: str) -> None:
        problem = f"MQTT broker {self._place.address}: {why}"
        self.failing.fail(problem, "%s; trying again", problem)
        for device in self.wanted:
            self._owner.note_link(device, problem)

    def _note_working(self) -> None:
        self.connected = True
        self._backoff.reset()
        self.failing.clear("MQTT broker %s: receiving", self._place.address)
        for device in self.wanted:
            self._owner.note_link(device, "")

    async def _connect(self) -> None:
        place = self._place
        await reach(place)
        self._sent = login = place.login(self._refused)
        user, password = login or (None, None)
        client = MqttClient(
            place.host, place.port, username=user, password=password, identifier=self._client_id,
            **self._session(), keepalive=KEEP_ALIVE_SECONDS, timeout=ANSWER_SECONDS,
            tls_context=place.context(), logger=library_logger,
        )  # fmt: skip
        Deliveries(client, self._receive)
        self._by_topic = self._topics()  # messages of the session arrive before the connection is known to be made
        async with (
            client,
            beside(_await_end(client), name="mqtt-sensors-listen") as listening,
            beside(self._subscribe(client), name="mqtt-sensors-subscribe") as subscribing,
            beside(self._publish(client), name="mqtt-sensors-publish") as publishing,
        ):
            tasks = {listening, subscribing, publishing}
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if failed := next((error for task in done if (error := task.exception())), None):
                raise failed

    async def _subscribe(self, client: aiomqtt.Client) -> None:
        """Keep the subscriptions equal to the wanted topics, until `leave`."""
        subscribed: set[str] = set()
        while True:
            self.changed.clear()
            by_topic = self._topics()
            fresh, gone = sorted(by_topic.keys() - subscribed), sorted(subscribed - by_topic.keys())
            self._by_topic = {**self._by_topic, **by_topic}  # until the broker has heard what is gone
            for start in range(0, len(fresh), SUBSCRIBED):
                await subscribe(client, fresh[start : start + SUBSCRIBED])
            for start in range(0, len(gone), SUBSCRIBED):
                await client.unsubscribe(gone[start : start + SUBSCRIBED])
            subscribed = set(by_topic)
            raise_if_cancelled()
            if self._is_leaving:
                await self._receive_rest()
                return
            self._by_topic = by_topic
            self._note_working()
            await self.changed.wait()

    async def _receive_rest(self) -> None:
        """Wait until nothing more arrives: the broker may have queued messages before it heard the unsubscription."""
        known = -1
        while known != self.received:
            known = self.received
            await asyncio.sleep(REST_SECONDS)

    def _topics(self) -> dict[str, list[Subscriber]]:
        """The wanted topics, and who reads each."""
        by_topic: dict[str, list[Subscriber]] = defaultdict(list)
        for subscriber in self.wanted.values():
            for topic in (*subscriber.mapping.topics, *([subscriber.check_in] if subscriber.sleeps else [])):
                by_topic[topic].append(subscriber)
        return by_topic

    async def _publish(self, client: aiomqtt.Client) -> None:
        """Publish what is outgoing. A broker that does not allow it changes nothing."""
        while True:
            self._has_outgoing.clear()
            while self._outgoing:
                topic = next(iter(self._outgoing))
                payload, retain = self._outgoing.pop(topic)
                with contextlib.suppress(aiomqtt.MqttError):
                    await client.publish(topic, payload, qos=0, retain=retain)
            raise_if_cancelled()
            await self._has_outgoing.wait()

    def _send(self, topic: str, payload: str | bytes, *, retain: bool = False) -> None:
        """Have `payload` published soon; a later one of the same topic replaces it."""
        self._outgoing[topic] = payload, retain
        self._has_outgoing.set()

    def _receive(self, topic: str, payload: bytes, *, retained: bool) -> None:
        """Analyse a message; it is acknowledged afterwards."""
        self.received += 1
        for subscriber in self._by_topic.get(topic, ()):
            try:
                self._handle(subscriber, topic, payload, retained=retained)
            except Exception:
                logger.exception("device %s: a message could not be handled", subscriber.device)

    def _handle(self, subscriber: Subscriber, topic: str, payload: bytes, *, retained: bool) -> None:
        if topic == subscriber.check_in:
            if retained:
                self._restore(subscriber, payload)
            return
        try:
            if subscriber.births:
                payload = subscriber.births.document(topic, payload)
                self._request_births(subscriber)
            report = read(subscriber.mapping, topic, payload, retained=retained)
        except ValueError as error:
            self._owner.refuse(subscriber.device, "unreadable message")
            logger.debug("device %s: %s: %s", subscriber.device, topic, error)
            return
        now = now_ns()
        heard_ns = min(report.seen_ns, now) if retained and report.is_check_in else now if report.is_check_in else 0
        self._owner.receive(subscriber.device, report, heard_ns)
        if subscriber.sleeps and report.is_check_in and not self._is_leaving:  # the next owner has newer ones
            self._publish_check_in(subscriber, report, heard_ns)

    def _request_births(self, subscriber: Subscriber) -> None:
        """Have a node send its births again, if it uses an alias that is unknown here."""
        assert subscriber.births
        now = now_ns()
        if not subscriber.births.incomplete or now - subscriber.asked_ns < REBIRTH_NS:
            return
        subscriber.asked_ns = now
        _, group, _, node, *_ = subscriber.mapping.main.split("/")
        self._send(f"spBv1.0/{group}/NCMD/{node}", rebirth())

    def _publish_check_in(self, subscriber: Subscriber, report: Report, heard_ns: int) -> None:
        known, changed = subscriber.values, False
        for reading in report.readings:
            if known.get(reading.quantity) != reading.value:
                known[reading.quantity], changed = reading.value, True
        subscriber.heard_ns = max(subscriber.heard_ns, heard_ns)
        if not changed and heard_ns - subscriber.published_ns < CHECK_IN_NS:
            return
        subscriber.published_ns = heard_ns
        text = json.dumps({"heard": subscriber.heard_ns // SECOND, "values": known})
        self._send(subscriber.check_in, text, retain=True)

    def _restore(self, subscriber: Subscriber, payload: bytes) -> None:
        """Take over what the previous owner knew, unless this shard has heard the device since."""
        try:
            known = json.loads(payload)
            heard_ns = min(int(known["heard"]) * SECOND, now_ns())
            values = {str(name): float(value) for name, value in known["values"].items() if name in QUANTITIES}
        except (ValueError, KeyError, TypeError, AttributeError):
            logger.warning("device %s: its stored check-in cannot be read", subscriber.device)
            return
        if heard_ns <= subscriber.heard_ns or heard_ns <= 0:
            return
        subscriber.values, subscriber.heard_ns = values | subscriber.values, heard_ns
        readings = tuple(Reading(name, value) for name, value in values.items() if name != "test")
        self._owner.receive(subscriber.device, Report(readings, is_check_in=True), heard_ns)


async def _await_end(client: aiomqtt.Client) -> None:
    """Wait until the connection is lost; MqttError says why."""
    async for _ in client.messages:  # none is queued, see `Deliveries`
        pass
