"""A hub and a real Mosquitto: topics of zones and devices, also through failures of either."""

import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.need import MOSQUITTO
from harness.servers.certificates import SiteAuthority
from harness.servers.mosquitto import PASSWORD, Mosquitto
from harness.stored import Stored

from embereye.hub.actions import Action
from embereye.hub.hub import Hub
from embereye.hub.mqtt.options import MqttOptions, read_broker
from embereye.hub.mqtt.publisher import MqttPublisher
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.process.tasks import beside
from embereye.process.timing.backoff import Backoff
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

pytestmark = pytest.mark.needs(MOSQUITTO)
FLEET = "default/sensors/hall"
ZONE, STATUS, DEVICE = "embereye/zones/default/hall", "embereye/status", f"embereye/devices/{FLEET}/s-01"
PERSON = Principal("anna", Role.OPERATOR, "anna")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path / "mosquitto")
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()


def options_for(broker: Mosquitto, **more: Any) -> MqttOptions:
    return read_broker(f"mqtt://127.0.0.1:{broker.port}", **more)


@contextlib.asynccontextmanager
async def opened(folder: Path, devices: tuple[str, ...] = ("s-01",)) -> AsyncIterator[Hub]:
    """Run a hub with one fleet in zone hall."""
    folder.mkdir(exist_ok=True)
    store = Stored(folder).threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()
    async with beside(hub.run(), name="hub"):
        declared = [Device(id=name, zone="hall") for name in devices]
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=1, deadline_ns=10**9, devices=declared))
        yield hub
    await store.close()


@contextlib.asynccontextmanager
async def publishing(hub: Hub, options: MqttOptions) -> AsyncIterator[MqttPublisher]:
    publisher = MqttPublisher(
        options, hub.zones, hub.coverage.book, hub.feed, backoff=lambda: Backoff(floor=0.05, cap=0.1)
    )
    async with beside(publisher.run(), name="mqtt") as running:
        yield publisher
        assert not running.done()
        await publisher.stop(5)


class Reader:
    """Another client of the broker, which records the last message of every topic."""

    def __init__(self) -> None:
        self.last: dict[str, bytes] = {}
        self.order: list[str] = []

    async def follow(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            self.order.append(message.topic.value)
            self.last[message.topic.value] = message.payload

    def json(self, topic: str) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.last.get(topic) or b"{}")
        return payload

    @property
    def topics(self) -> set[str]:
        return {topic for topic, payload in self.last.items() if payload}


@contextlib.asynccontextmanager
async def reading(broker: Mosquitto, **more: Any) -> AsyncIterator[Reader]:
    reader = Reader()
    async with aiomqtt.Client("127.0.0.1", broker.port, **more) as client:
        await client.subscribe("#", 1)
        async with beside(reader.follow(client), name="read"):
            yield reader


def smoke(number: int = 1, level: Level = Level.ALARM) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=f"smoke-{number}", episode="smoke", fleet=FLEET, device="s-01", zone="hall", kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire, level=level.wire, score=1, since_ns=now, until_ns=now,
    )  # fmt: skip


def covered(time_ns: int, *, covered: bool = True) -> Coverage:
    devices = [DeviceStatus(id="s-01", zone="hall", covered=covered, reason="" if covered else "silent", heard_ns=1)]
    return Coverage(fleet=FLEET, shard="hall-0", epoch=1, time_ns=time_ns, devices=devices)


async def up_to_date(publisher: MqttPublisher) -> None:
    await eventually(lambda: publisher.connected and not publisher.behind, goal=f"up to date ({publisher.failing.why})")


async def test_an_alarm_its_acknowledgement_and_its_reset_are_published(tmp_path: Path, broker: Mosquitto) -> None:
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        await eventually(lambda: reader.json(ZONE).get("state") == "normal", goal="the zone is published")
        assert reader.json(ZONE)["fire"] is False
        hub.inbox.admit(smoke(), lambda _: None)
        await eventually(lambda: reader.json(ZONE)["state"] == "alarm", goal="the alarm is published")
        zone = reader.json(ZONE)
        assert (zone["fire"], zone["acknowledged"]) == (True, False)
        assert zone["signs"] == [{"device": "s-01", "kind": "smoke", "level": "alarm"}]
        assert len(zone["alarm"]) == 16
        await hub.actions.perform(Action.ACKNOWLEDGE, PERSON, "default", "hall")
        await eventually(lambda: reader.json(ZONE)["acknowledged"], goal="the acknowledgement is published")
        assert reader.json(ZONE)["fire"]
        await hub.actions.perform(Action.RESET, PERSON, "default", "hall")
        await eventually(lambda: not reader.json(ZONE)["fire"], goal="the reset is published")
        assert reader.json(ZONE)["state"] == "normal"


async def test_a_silenced_alarm_is_published_and_marked_as_silenced(tmp_path: Path, broker: Mosquitto) -> None:
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        hub.inbox.admit(smoke(level=Level.ALARM), lambda _: None)
        await eventually(lambda: reader.json(ZONE).get("fire"), goal="the alarm is published")
        assert reader.json(ZONE)["silenced"] is False
        await hub.silences.begin(PERSON, "default", "hall", reason="roofers", minutes=5)
        await eventually(lambda: reader.json(ZONE)["silenced"], goal="the silence is published")
        assert reader.json(ZONE)["fire"]


async def test_a_device_is_unknown_then_watched_then_dark(tmp_path: Path, broker: Mosquitto) -> None:
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        await eventually(lambda: reader.json(DEVICE).get("state") == "unknown", goal="it is published")
        hub.coverage.report(covered(1))
        await eventually(lambda: reader.json(DEVICE)["state"] == "watched", goal="it is watched")
        await eventually(lambda: reader.json(DEVICE)["state"] == "dark", goal="its reports ended")
        assert reader.json(DEVICE)["reason"]
        await eventually(lambda: reader.json(ZONE)["dark"] == ["s-01"], goal="its zone lists it")


async def test_everything_is_published_again_to_a_broker_that_lost_it(tmp_path: Path, broker: Mosquitto) -> None:
    async with opened(tmp_path) as hub, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        broker.stop(signal.SIGKILL)
        await eventually(lambda: not publisher.connected and publisher.failing, goal="the loss is noticed")
        hub.inbox.admit(smoke(), lambda _: None)
        await hub.committer.flush(5)
        broker.start()
        await up_to_date(publisher)
        async with reading(broker) as reader:
            await eventually(lambda: {ZONE, STATUS, DEVICE} <= reader.topics, goal="the retained topics are read")
            assert reader.json(ZONE)["state"] == "alarm"
            assert reader.last[STATUS] == b"online"
        assert publisher.failures >= 1


async def test_changes_while_the_broker_hangs_are_not_queued(tmp_path: Path, broker: Mosquitto) -> None:
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        broker.freeze()
        for _ in range(60):
            await hub.actions.perform(Action.TEST, PERSON, "default", "hall")
        hub.inbox.admit(smoke(), lambda _: None)
        await hub.committer.flush(5)
        before = publisher.published
        broker.freeze(frozen=False)
        await eventually(lambda: reader.json(ZONE)["state"] == "alarm", goal="the newest state is published")
        await up_to_date(publisher)
        assert publisher.published - before < 20


async def test_a_stopped_hub_publishes_offline_and_a_killed_hub_leaves_a_will(
    tmp_path: Path, broker: Mosquitto
) -> None:
    async with opened(tmp_path) as hub, reading(broker) as reader:
        async with publishing(hub, options_for(broker)) as publisher:
            await up_to_date(publisher)
            await eventually(lambda: reader.last.get(STATUS) == b"online", goal="it is online")
        await eventually(lambda: reader.last[STATUS] == b"offline", goal="it published that")
        options = options_for(broker)
        # A client with the hub's id ends the hub's connection, as when the hub's machine is cut off and comes back.
        async with publishing(hub, options) as publisher:
            await up_to_date(publisher)
            reader.order.clear()
            async with aiomqtt.Client("127.0.0.1", broker.port, identifier=options.client):
                await eventually(lambda: STATUS in reader.order, goal="the will is published")
            await up_to_date(publisher)
            await eventually(lambda: reader.last[STATUS] == b"online", goal="it is back")


async def test_topics_of_devices_removed_while_the_hub_was_down_are_removed(tmp_path: Path, broker: Mosquitto) -> None:
    removed = f"embereye/devices/{FLEET}/s-02"
    async with opened(tmp_path, ("s-01", "s-02")) as hub, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        described = {topic for topic in publisher._acknowledged if topic.startswith("homeassistant/")}
    async with reading(broker) as reader:
        await eventually(lambda: {removed, *described} <= reader.topics, goal="both are retained")
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options_for(broker)):
        await eventually(lambda: removed not in reader.topics, goal="it is removed")
        await eventually(
            lambda: len({t for t in reader.topics if t.startswith("homeassistant/")}) < len(described), goal="there"
        )
        await eventually(lambda: {ZONE, DEVICE} <= reader.topics, goal="the others remain")


async def test_an_alarm_in_a_zone_that_is_being_removed_is_published(
    tmp_path: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "one") as hub, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
    publish, store = aiomqtt.Client.publish, Stored(tmp_path).threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()

    async def burn_first(client: aiomqtt.Client, topic: str, payload: bytes, **more: Any) -> None:
        if not payload and not hub.inbox.counters.received:
            hub.inbox.admit(smoke(), lambda _: None)
            await eventually(lambda: ZONE in publisher._acknowledged, goal="the broker has the alarm")
        await publish(client, topic, payload, **more)

    monkeypatch.setattr(aiomqtt.Client, "publish", burn_first)
    async with (
        beside(hub.run(), name="hub"),
        reading(broker) as reader,
        publishing(hub, options_for(broker)) as publisher,
    ):
        await eventually(lambda: reader.order.count(ZONE) >= 4, goal="the old state, the alarm, nothing, the alarm")
        assert reader.json(ZONE)["signs"], "published for the alarm, not for a change half a minute later"
    await store.close()


async def test_the_topics_of_a_removed_device_are_removed(tmp_path: Path, broker: Mosquitto) -> None:
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options_for(broker)) as publisher:
        await up_to_date(publisher)
        await eventually(lambda: len(reader.topics) > 3, goal="they are published")
        await hub.coverage.retain(())
        await eventually(lambda: reader.topics == {STATUS}, goal="zone, device and entities are removed")


async def test_login_and_certificates_are_read_again_for_each_attempt(tmp_path: Path) -> None:
    authority = SiteAuthority(tmp_path / "authority")
    shown = authority.issue("broker", alternatives=["127.0.0.1"])
    broker = Mosquitto(tmp_path / "mosquitto", users=("ember",), certificates=shown.folder)
    broker.start()
    login, certificates = tmp_path / "login", tmp_path / "certificates"
    login.mkdir()
    certificates.mkdir()
    (login / "username").write_text("ember\n")
    (login / "password").write_text("wrong")
    (certificates / "ca.crt").write_bytes((shown.folder / "ca.crt").read_bytes())
    options = read_broker(f"mqtts://127.0.0.1:{broker.port}", credentials=login, certificates=certificates)
    try:
        async with opened(tmp_path / "hub") as hub, publishing(hub, options) as publisher:
            await eventually(lambda: publisher.failures, goal="the broker got no certificate")
            client = authority.issue("hub").folder
            for name in ("tls.crt", "tls.key"):
                (certificates / name).write_bytes((client / name).read_bytes())
            await eventually(
                lambda: "authori" in publisher.failing.why.lower(),
                goal=f"the password is refused {publisher.failing.why}",
            )
            assert PASSWORD not in publisher.failing.why
            (login / "password").write_text(f"{PASSWORD}\n")
            await up_to_date(publisher)
    finally:
        broker.stop()


async def test_a_broker_that_drops_acknowledged_messages_is_not_up_to_date(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mosquitto", rules="topic read #\n")
    broker.start()
    try:
        async with opened(tmp_path / "hub") as hub, publishing(hub, options_for(broker)) as publisher:
            await eventually(lambda: "embereye/status" in publisher.failing.why, goal="it is noticed")
            assert not publisher.connected
    finally:
        broker.stop()


async def test_entities_have_separate_states_and_ids(tmp_path: Path, broker: Mosquitto) -> None:
    async with (
        opened(tmp_path, ("s-01", "s-02")) as hub,
        reading(broker) as reader,
        publishing(hub, options_for(broker)) as publisher,
    ):
        await up_to_date(publisher)
        await eventually(
            lambda: len(reader.topics) == 4 + 2 + 4, goal="a zone, two devices, the status, and six entities"
        )
        configs = {topic: reader.json(topic) for topic in reader.topics if topic.startswith("homeassistant/")}
    assert len(configs) == 4 + 2
    assert {config["state_topic"] for config in configs.values()} <= reader.topics
    assert len({config["unique_id"] for config in configs.values()}) == len(configs)
    assert {config["availability"][0]["topic"] for config in configs.values()} == {STATUS}
    zone = next(config["device"]["identifiers"] for config in configs.values() if config["name"] == "Fire")
    watched = [config for config in configs.values() if config["name"] == "Watched"]
    assert {config["device"]["via_device"] for config in watched} == set(zone)


async def test_without_a_discovery_prefix_no_entities_are_described(tmp_path: Path, broker: Mosquitto) -> None:
    options = options_for(broker, discovery="", prefix="site/north")
    async with opened(tmp_path) as hub, reading(broker) as reader, publishing(hub, options) as publisher:
        await up_to_date(publisher)
        expected = {f"site/north/{name}" for name in ("status", "zones/default/hall", f"devices/{FLEET}/s-01")}
        await eventually(lambda: reader.topics == expected, goal=f"only these, not {reader.topics}")


async def test_a_hub_process_reports_its_broker_and_ends_while_it_hangs(
    tmp_path: Path, broker: Mosquitto, make_hub: Callable[..., Any]
) -> None:
    hub = make_hub(Stored(tmp_path), "--mqtt-broker", f"mqtt://127.0.0.1:{broker.port}")
    hub.start()
    await hub.ready()
    async with reading(broker) as reader:
        await eventually(lambda: reader.last.get(STATUS) == b"online", goal="the hub is online")
        await eventually(
            lambda: "embereye_hub_mqtt_connected 1.0" in str(hub.get("/metrics")), goal="the metric says so"
        )
        broker.freeze()
        assert hub.terminate() == 0
        broker.freeze(frozen=False)
        await eventually(lambda: reader.last[STATUS] == b"offline", goal="nobody is online")


async def test_a_hub_without_a_reachable_broker_works_and_ends(tmp_path: Path, make_hub: Callable[..., Any]) -> None:
    hub = make_hub(Stored(tmp_path), "--mqtt-broker", "mqtt://127.0.0.1:1")
    hub.start()
    await hub.ready()
    await eventually(lambda: "MQTT broker mqtt://127.0.0.1:1: " in hub.log(), goal="the log says so")
    assert "embereye_hub_mqtt_connected 0.0" in str(hub.get("/metrics"))
    assert hub.terminate() == 0
