"""A real Mosquitto: alarms, check-ins that survive a restart, an outage, and a hand-over without loss."""

import asyncio
import json
import threading

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.need import MOSQUITTO
from harness.servers.mosquitto import PASSWORD, Mosquitto
from harness.source_shard import SourceShard

from embereye.addons.mqtt_sensors.broker import CHECK_INS
from embereye.addons.mqtt_sensors.sensors import MqttSensors
from embereye.levels import Kind, Level
from embereye.process.timing.clock import now_ns
from embereye.units import MINUTE, SECOND
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source

pytestmark = [pytest.mark.needs(MOSQUITTO), pytest.mark.timeout(180)]


@pytest.fixture
def broker(tmp_path):
    mosquitto = Mosquitto(tmp_path / "mosquitto", users=("ember",))
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()


class Shard(SourceShard):
    """A shard with detectors of a Zigbee network."""

    def __init__(self, broker, names, folder, name="s-0", deadline=70 * MINUTE, host=""):
        address = f"mqtt://127.0.0.1:{broker.port}"
        sources = [SensorSource(address, f"zigbee2mqtt/{device}", "zigbee2mqtt", {}, deadline) for device in names]
        specs = [
            Device(id=device, zone="hall", credentials="broker", source=encode_source(source))
            for device, source in zip(names, sources, strict=True)
        ]
        super().__init__(MqttSensors(host), *specs, name=name)


@pytest.fixture
async def shard(broker, tmp_path, monkeypatch):
    folder = tmp_path / "credentials" / "broker"
    folder.mkdir(parents=True)
    (folder / "username").write_text("ember\n")
    (folder / "password").write_text(PASSWORD + "\n")
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path / "credentials"))
    made = []

    def make(*names, **options):
        made.append(Shard(broker, names, folder, **options))
        made[-1].apply()
        return made[-1]

    yield make
    for each in made:
        await each.tasks.stop()


async def publish(broker, topic, payload, *, retain=False):
    text = payload if isinstance(payload, str) else json.dumps(payload)
    async with aiomqtt.Client("127.0.0.1", broker.port, username="ember", password=PASSWORD) as client:
        await client.publish(topic, text, qos=1, retain=retain)


async def is_receiving(shard):
    """Wait until every broker of the shard is connected and subscribed."""
    await eventually(lambda: shard.source._brokers and all(b.connected for b, _ in shard.source._brokers.values()))


async def test_a_smoke_detector_alarms_and_is_covered_for_its_heartbeat(broker, shard):
    watched = shard("kitchen")
    await is_receiving(watched)
    assert watched.reason("kitchen") == "no check-in yet, one is expected every 70 min"
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False, "battery": 90})
    await eventually(lambda: not watched.reason("kitchen"))
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": True, "battery": 8})
    await eventually(lambda: watched.signs)
    assert (watched.signs[-1].kind, watched.signs[-1].level) == (Kind.SMOKE, Level.ALARM)
    device = watched.devices["kitchen"]
    assert device.states.degraded == "its battery is nearly empty: 8 %"
    later = now_ns() + 75 * MINUTE
    assert device.reason(later, 5 * SECOND) == "last check-in 75 min ago, allowed 70 min"


async def test_a_restarted_shard_knows_the_last_check_in_and_gets_what_it_missed(broker, shard):
    first = shard("kitchen", "attic")
    await is_receiving(first)
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False})
    await publish(broker, "zigbee2mqtt/attic", {"smoke": False})
    await eventually(lambda: not first.reason("kitchen") and not first.reason("attic"))
    await first.tasks.stop()  # killed: it unsubscribes nothing
    await publish(broker, "zigbee2mqtt/attic", {"smoke": True})
    second = shard("kitchen", "attic")
    await eventually(lambda: not second.reason("kitchen"))
    await eventually(lambda: {sign.device for sign in second.signs} == {"attic"})  # at least once


async def test_a_broker_that_is_gone_darkens_its_sensors_after_the_deadline(broker, shard):
    watched = shard("kitchen")
    await is_receiving(watched)
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False})
    await eventually(lambda: not watched.reason("kitchen"))
    broker.stop()
    await eventually(watched.source.problem, 60)
    device = watched.devices["kitchen"]
    assert not device.reason(device._link_lost_ns + 4 * SECOND, 5 * SECOND)
    assert "MQTT broker" in device.reason(device._link_lost_ns + 6 * SECOND, 5 * SECOND)
    broker.start()
    await eventually(lambda: not watched.source.problem(), 60)
    assert not watched.reason("kitchen")
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": True})
    await eventually(lambda: watched.signs)


async def test_a_hand_over_loses_no_message(broker, shard):
    old = shard("kitchen", name="s-0")
    await is_receiving(old)
    sent = 60
    new = None
    for number in range(sent):
        await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False, "battery": number})
        if number == 20:
            new = shard("kitchen", name="s-1")
            await is_receiving(new)
        if number == 40:
            await old.source.drain()
    await eventually(lambda: new.devices["kitchen"].states.values.get("battery") == sent - 1)
    received = {report["battery"] for each in (old, new) for report in each.reports() if "battery" in report}
    assert received == set(range(sent))


async def test_a_drained_shard_analyses_what_the_broker_had_queued_for_it(broker, shard):
    watched = shard("kitchen")
    await is_receiving(watched)
    sent = 400

    async def publish_all():
        async with aiomqtt.Client("127.0.0.1", broker.port, username="ember", password=PASSWORD) as client:
            for number in range(sent):
                await client.publish("zigbee2mqtt/kitchen", json.dumps({"battery": number}), qos=1)

    publishing = threading.Thread(target=asyncio.run, args=(publish_all(),))
    publishing.start()
    publishing.join()  # the shard reads nothing meanwhile
    await watched.source.drain()
    assert [report["battery"] for report in watched.reports("kitchen")] == list(range(sent))


async def test_a_sensor_that_returns_to_a_shard_brings_no_message_of_the_time_elsewhere(broker, shard):
    watched = shard("kitchen")
    await is_receiving(watched)
    ((_, leaving),) = watched.source._brokers.values()
    watched.source.apply("default/sensors/test", [])
    await eventually(leaving.done)
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": True})
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False})
    watched.apply()
    await is_receiving(watched)
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False, "battery": 50})
    await eventually(lambda: watched.devices["kitchen"].states.values.get("battery") == 50)
    assert [report["smoke"] for report in watched.reports("kitchen")] == [0]


@pytest.mark.slow
async def test_a_thousand_devices_move_between_shards_without_loss(broker, shard):
    names = [f"d{number}" for number in range(1000)]
    old, new, sent = shard(*names, name="s-0"), None, 6
    await is_receiving(old)
    async with aiomqtt.Client("127.0.0.1", broker.port, username="ember", password=PASSWORD) as client:
        for number in range(sent):
            moving = asyncio.ensure_future(asyncio.sleep(0))
            if number == 2:
                new = shard(*names, name="s-1")
                moving = asyncio.ensure_future(is_receiving(new))
            if number == 4:
                moving = asyncio.ensure_future(old.source.drain())
            for name in names:
                payload = json.dumps({"smoke": False, "battery": number})
                await client.publish(f"zigbee2mqtt/{name}", payload, qos=1)
            await moving

    def missing():
        heard = {name: set() for name in names}
        for each in (old, new):
            for name, report in each.received:
                heard[name].add(report.get("battery"))
        return {name for name in names if set(range(sent)) - heard[name]}

    await eventually(lambda: not missing(), 60)
    assert not any(each.devices[name].arrivals.ledger.rejected for each in (old, new) for name in names)


async def test_a_roll_out_with_two_processes_of_one_name_loses_no_message(broker, shard):
    old = shard("kitchen", "attic", name="s-0", host="pod-a")
    await is_receiving(old)
    sent, new = 80, None
    for number in range(sent):
        for name in ("kitchen", "attic"):
            await publish(broker, f"zigbee2mqtt/{name}", {"smoke": False, "battery": number})
        if number == 20:
            new = shard("kitchen", "attic", name="s-0", host="pod-b")
            await is_receiving(new)
        if number == 50:
            await old.source.drain()
    await eventually(lambda: all(new.devices[n].states.values.get("battery") == sent - 1 for n in ("kitchen", "attic")))
    received = [report["battery"] for each in (old, new) for report in each.reports() if "battery" in report]
    assert all(received.count(number) >= 2 for number in range(sent))
    assert not new.source.problem()


async def test_an_offline_gateway_darkens_and_a_test_button_does_not_alarm(broker, shard):
    watched = shard("kitchen")
    await is_receiving(watched)
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": True, "test": True})
    device = watched.devices["kitchen"]
    await eventually(lambda: device.states.tested_ns)
    assert not [sign for sign in watched.signs if sign.level > Level.CLEAR]
    assert device.states.repeat(device.states.tested_ns + 3 * SECOND) == []
    await publish(broker, "zigbee2mqtt/bridge/state", {"state": "offline"}, retain=True)
    await eventually(lambda: "cannot be reached" in watched.reason("kitchen"))
    await publish(broker, "zigbee2mqtt/bridge/state", {"state": "online"}, retain=True)
    await eventually(lambda: not watched.reason("kitchen"))


async def test_a_retained_state_and_a_forged_check_in_prove_no_life(broker, shard):
    await publish(broker, "zigbee2mqtt/kitchen", {"smoke": False}, retain=True)
    await publish(broker, f"{CHECK_INS}/default/sensors/test/kitchen", "nonsense", retain=True)
    watched = shard("kitchen")
    await is_receiving(watched)
    await eventually(lambda: "smoke" in watched.devices["kitchen"].states.values)
    await asyncio.sleep(0.1)
    assert watched.reason("kitchen").startswith("no check-in yet")
