"""Sparkplug B payloads: births, aliases, deaths, types, and a real broker."""

import asyncio

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.need import MOSQUITTO
from harness.servers.mosquitto import Mosquitto

from embereye.addons.mqtt_sensors.sensors import MqttSensors
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.units import MINUTE, SECOND
from embereye.v1.sparkplug_pb2 import SparkplugMetric, SparkplugPayload
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source
from embereye.wire.readings.sparkplug import Births, rebirth
from embereye.wire.readings.templates import mapping_of, read

from embereye.detect.sensing.bands import BandTable  # isort: skip
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

SETTINGS = build_sensor_settings(SensorFleetSpec())
MAPPING = mapping_of("plant/edge/kiln", "sparkplug", {"smoke": "Alarm/Smoke", "temperature": "Oven/T"})
# {timestamp 1486144502122, metrics [{"Alarm/Smoke", alias 3, timestamp, Boolean, true}], seq 2}, by hand
VECTOR = bytes.fromhex("08aa84d0e0a02b121a0a0b416c61726d2f536d6f6b65100318aa84d0e0a02b200b70011802")


def metric(name="", **values):
    return SparkplugMetric(name=name, **values)


def payload(*metrics):
    return SparkplugPayload(metrics=metrics).SerializeToString()


def values(births, kind, *metrics, place="edge/kiln"):
    topic = f"spBv1.0/plant/{kind}/{place}"
    report = read(MAPPING, topic, births.document(topic, payload(*metrics)))
    return {reading.quantity: reading.value for reading in report.readings}, report.is_check_in


def test_topics_are_those_of_device_and_node():
    assert MAPPING.main == "spBv1.0/plant/DDATA/edge/kiln"
    assert set(MAPPING.topics) == {
        "spBv1.0/plant/DDATA/edge/kiln", "spBv1.0/plant/DBIRTH/edge/kiln", "spBv1.0/plant/DDEATH/edge/kiln",
        "spBv1.0/plant/NBIRTH/edge", "spBv1.0/plant/NDEATH/edge",
    }  # fmt: skip
    assert mapping_of("spBv1.0/plant/edge", "sparkplug", {}).main == "spBv1.0/plant/NDATA/edge"
    with pytest.raises(ValueError, match="mqtt:GROUP/NODE/DEVICE"):
        mapping_of("plant", "sparkplug", {})


def test_the_bytes_of_a_payload_are_read():
    births = Births(is_node=False)
    document = births.document(MAPPING.main, VECTOR)
    assert read(MAPPING, MAPPING.main, document).readings[0].value == 1


def test_a_birth_names_the_aliases_of_later_messages():
    births = Births(is_node=False)
    assert values(births, "DDATA", metric(alias=7, boolean_value=True)) == ({}, True)
    assert births.incomplete
    born = values(births, "DBIRTH", metric("Alarm/Smoke", alias=7, datatype=11, boolean_value=False),
                  metric("Oven/T", alias=8, datatype=2, int_value=0xFFEC))  # fmt: skip
    assert born == ({"smoke": 0, "temperature": -20, "offline": 0}, True)
    assert not births.incomplete
    assert values(births, "DDATA", metric(alias=7, boolean_value=True))[0] == {"smoke": 1}
    assert values(births, "DDATA", metric(alias=8, int_value=0xFFFF))[0] == {"temperature": -1}


def test_deaths_say_offline_unless_they_are_of_an_earlier_connection():
    births = Births(is_node=False)
    assert values(births, "DDEATH") == ({"offline": 1}, False)
    assert values(births, "NBIRTH", metric("bdSeq", datatype=8, long_value=5), place="edge") == ({}, False)
    assert values(births, "NDEATH", metric("bdSeq", datatype=8, long_value=4), place="edge") == ({}, False)
    assert values(births, "NDEATH", metric("bdSeq", datatype=8, long_value=5), place="edge") == ({"offline": 1}, False)


def test_old_and_null_values_are_no_present_state():
    births = Births(is_node=False)
    old = metric("Alarm/Smoke", boolean_value=True, is_historical=True)
    none = metric("Oven/T", is_null=True)
    assert values(births, "DDATA", old, none)[0] == {}
    with pytest.raises(ValueError, match="not a Sparkplug B payload"):
        births.document(MAPPING.main, b"\xff\xff")


@pytest.mark.needs(MOSQUITTO)
@pytest.mark.timeout(120)
async def test_a_node_is_asked_for_its_births_by_a_real_broker(tmp_path):
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    source = SensorSource(f"mqtt://127.0.0.1:{broker.port}", "plant/edge/kiln", "sparkplug",
                          {"smoke": "Alarm/Smoke"}, 11 * MINUTE)  # fmt: skip
    device = SensorDevice(Device(id="kiln", zone="hall", source=encode_source(source)), SETTINGS, BandTable())

    class Shard:
        signs, refused = [], []

        def receive(self, name, report, heard_ns):
            self.signs += device.analyse_report(report, heard_ns, now_ns())

        def refuse(self, name, reason):
            self.refused.append(reason)

        def note_link(self, name, problem):
            device.note_link(problem, now_ns())

    shard, sensors, tasks = Shard(), MqttSensors(), Tasks()
    try:
        sensors.start(shard, tasks, "s-0")
        sensors.apply("f", [device])
        await eventually(lambda: sensors.is_connected, 60)
        async with aiomqtt.Client("127.0.0.1", broker.port) as node:
            await node.subscribe("spBv1.0/plant/NCMD/edge")
            await node.publish(MAPPING.main, payload(metric(alias=7, boolean_value=True)), qos=1)
            async with asyncio.timeout(60):
                assert (await anext(aiter(node.messages))).payload == rebirth()
            born = payload(metric("Alarm/Smoke", alias=7, boolean_value=False))
            await node.publish("spBv1.0/plant/DBIRTH/edge/kiln", born, qos=1)
            await node.publish(MAPPING.main, payload(metric(alias=7, boolean_value=True)), qos=1)
            await eventually(lambda: shard.signs, 60)
            await node.publish("spBv1.0/plant/NDEATH/edge", payload(), qos=1)
            await eventually(lambda: "cannot be reached" in device.reason(now_ns(), 5 * SECOND), 60)
        assert not shard.refused
    finally:
        await tasks.stop()
        broker.stop()
