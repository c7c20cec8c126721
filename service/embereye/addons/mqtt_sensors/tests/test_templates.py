"""Messages in the shapes that the makers document, read by each template."""

import json
import typing

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.need import MOSQUITTO
from harness.servers.mosquitto import Mosquitto
from harness.source_shard import SourceShard

from embereye.addons.mqtt_sensors.sensors import MqttSensors
from embereye.levels import Kind
from embereye.units import MINUTE
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source
from embereye.wire.readings.templates import TEMPLATES, mapping_of, read
from embereye_operator.api.sensors import MqttTemplate

# template, the sensor's topic, its own fields, topic of the message, message, expected readings
MESSAGES: list[tuple[typing.Any, ...]] = [
    ("zigbee2mqtt", "zigbee2mqtt/Kitchen smoke", {}, "zigbee2mqtt/Kitchen smoke",
     {"smoke": True, "battery": 97, "battery_low": False, "tamper": False, "test": False, "linkquality": 134},
     {"smoke": 1, "battery": 97, "batteryLow": 0, "tamper": 0, "test": 0}),
    ("zigbee2mqtt", "z/co", {}, "z/co", {"carbon_monoxide": True, "co": 320},
     {"carbonMonoxide": 1, "carbonMonoxideLevel": 320}),
    ("zigbee2mqtt", "z/k", {}, "z/k/availability", {"state": "offline"}, {"offline": 1}),
    ("zigbee2mqtt", "z/k", {}, "z/k/availability", "online", {"offline": 0}),
    ("zigbee2mqtt", "z/k", {}, "z/bridge/state", {"state": "offline"}, {"offline": 1}),
    ("zwavejs", "zwave/Hall", {}, "zwave/Hall/notification/endpoint_0/Smoke_Alarm/Sensor_status",
     {"time": 1600000000000, "value": 2}, {"smoke": 1}),
    ("zwavejs", "zwave/Hall", {}, "zwave/Hall/notification/endpoint_0/Smoke_Alarm/Sensor_status",
     {"time": 1600000000000, "value": 0}, {"smoke": 0}),
    ("zwavejs", "zwave/Hall", {}, "zwave/Hall/battery/endpoint_0/level", {"time": 1, "value": 80}, {"battery": 80}),
    ("zwavejs", "zwave/Hall", {}, "zwave/Hall/status", {"time": 1, "value": False, "status": "Dead"}, {"offline": 1}),
    ("tasmota", "boiler", {"smoke": "Switch1=ON"}, "tele/boiler/SENSOR",
     {"Time": "2026-02-24T22:20:38", "Switch1": "ON", "DS18B20": {"Id": "0", "Temperature": 21.5}},
     {"smoke": 1, "temperature": 21.5}),
    ("tasmota", "boiler", {}, "tele/boiler/LWT", "Offline", {"offline": 1}),
    ("tasmota", "boiler", {}, "tele/boiler/SENSOR",
     {"Time": "2026-02-24T22:20:38", "DS18B20": {"Id": "0", "Temperature": 70.7}, "TempUnit": "F"},
     {"temperature": pytest.approx(21.5)}),
    ("zwavejs", "zwave/Hall", {"temperature": "/sensor_multilevel/endpoint_0/Air_temperature value in °F"},
     "zwave/Hall/sensor_multilevel/endpoint_0/Air_temperature", {"time": 1, "value": 70.7},
     {"temperature": pytest.approx(21.5)}),
    ("plain", "meter", {"carbonMonoxideLevel": "$.gas[0].co in ppb", "battery": "level in 1"}, "meter",
     {"gas": [{"co": 4000}], "level": 0.5}, {"carbonMonoxideLevel": 4, "battery": 50}),
    ("esphome", "attic", {"smoke": "/binary_sensor/smoke/state"}, "attic/binary_sensor/smoke/state", "ON",
     {"smoke": 1}),
    ("esphome", "attic", {"smoke": "/binary_sensor/smoke/state"}, "attic/status", "offline", {"offline": 1}),
    ("shelly", "shellyplussmoke-80", {}, "shellyplussmoke-80/status/smoke:0",
     {"id": 0, "alarm": True, "mute": False}, {"smoke": 1}),
    ("shelly", "shellyplussmoke-80", {}, "shellyplussmoke-80/events/rpc",
     {"src": "x", "method": "NotifyStatus", "params": {"ts": 1.0, "smoke:0": {"id": 0, "alarm": True}}}, {"smoke": 1}),
    ("shelly", "shellies/shellysmoke-A1", {}, "shellies/shellysmoke-A1/sensor/smoke", "true", {"smoke": 1}),
    ("chirpstack", "application/7/device/a84041", {}, "application/7/device/a84041/event/up",
     {"time": "2026-11-28T10:00:00+00:00", "deviceInfo": {"deviceName": "x"}, "fPort": 2,
      "object": {"smoke": 1, "battery": 88.0, "temperature": 23.1}}, {"smoke": 1, "battery": 88, "temperature": 23.1}),
    ("chirpstack", "application/7/device/a84041", {}, "application/7/device/a84041/event/status",
     {"batteryLevel": 9.5}, {"battery": 9.5}),
    ("ttn", "v3/app@ttn/devices/d", {}, "v3/app@ttn/devices/d/up",
     {"received_at": "2026-11-28T10:00:00Z", "uplink_message": {"f_port": 1, "decoded_payload": {"smoke": False}}},
     {"smoke": 0}),
    ("plain", "boiler", {"heat": "alarm.state=HOT|FIRE", "temperature": "t"}, "boiler",
     {"alarm": {"state": "Fire"}, "t": "61.5"}, {"heat": 1, "temperature": 61.5}),
    ("plain", "panel", {"smoke": "$.zones[*].alarm=ON", "temperature": "$.zones[?@.name == 'attic'].t"}, "panel",
     {"zones": [{"name": "hall", "alarm": "OFF", "t": 20}, {"name": "attic", "alarm": "ON", "t": 44}]},
     {"smoke": 1, "temperature": 44}),
    ("plain", "panel", {"smoke": "$.zones[*].alarm=ON", "battery": "$..battery"}, "panel",
     {"zones": [{"alarm": "OFF"}, {"alarm": "OFF"}]}, {"smoke": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("template", "topic", "fields", "at", "message", "expected"), MESSAGES)
def test_a_documented_message_gives_its_readings(template, topic, fields, at, message, expected):
    mapping = mapping_of(topic, template, fields)
    assert at in mapping.topics
    payload = message if isinstance(message, str) else json.dumps(message)
    report = read(mapping, at, payload.encode())
    assert {reading.quantity: reading.value for reading in report.readings} == expected
    assert report.is_check_in is ("offline" not in expected)


def test_every_template_has_a_message_here():
    assert {message[0] for message in MESSAGES} | {"sparkplug"} == set(TEMPLATES)  # test_sparkplug.py


def test_a_retained_message_is_no_check_in_unless_it_says_when_the_device_was_heard():
    mapping = mapping_of("z/k", "zigbee2mqtt", {})
    assert not read(mapping, "z/k", b'{"smoke": false}', retained=True).is_check_in
    report = read(mapping, "z/k", b'{"smoke": false, "last_seen": "2026-11-28T10:00:00Z"}', retained=True)
    assert (report.is_check_in, report.seen_ns) == (True, 1795860000 * 10**9)


@pytest.mark.needs(MOSQUITTO)
@pytest.mark.timeout(120)
async def test_each_documented_message_arrives_by_a_real_broker(tmp_path):
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    devices, messages = [], []
    for number, (template, topic, fields, at, message, _) in enumerate(MESSAGES):
        base = topic.partition("/")[0]  # its own for each message
        place = topic.replace(base, f"{number}-{base}", 1)
        source = SensorSource(f"mqtt://127.0.0.1:{broker.port}", place, template, fields, 70 * MINUTE)
        devices.append(Device(id=str(number), zone="hall", source=encode_source(source)))
        text = message if isinstance(message, str) else json.dumps(message)
        messages.append((at.replace(base, f"{number}-{base}", 1), text))
    shard = SourceShard(MqttSensors(), *devices)
    try:
        shard.apply()
        await eventually(lambda: shard.source.is_connected, 60)
        async with aiomqtt.Client("127.0.0.1", broker.port) as gateway:
            for at, text in messages:
                await gateway.publish(at, text, qos=1)
        await eventually(lambda: len(shard.received) >= len(MESSAGES), 60)
        assert dict(shard.received) == {str(number): row[-1] for number, row in enumerate(MESSAGES)}
        alarming = {str(number) for number, row in enumerate(MESSAGES) if row[-1].get("smoke")}
        assert {sign.device for sign in shard.signs if sign.kind == Kind.SMOKE} == alarming
    finally:
        await shard.tasks.stop()
        broker.stop()


@pytest.mark.parametrize("payload", [b'{"smoke": "perhaps"}', b"\xff"])
def test_an_unreadable_message_is_refused(payload):
    with pytest.raises(ValueError, match=r"smoke|UTF-8"):
        read(mapping_of("z/k", "zigbee2mqtt", {}), "z/k", payload)


def test_a_temperature_in_an_unknown_unit_is_never_taken_for_degrees_celsius():
    mapping = mapping_of("boiler", "tasmota", {})
    with pytest.raises(ValueError, match="unreadable value of temperature"):
        read(mapping, "tele/boiler/SENSOR", b'{"DS18B20": {"Temperature": 70.7}, "TempUnit": "R"}')


@pytest.mark.parametrize(
    ("template", "fields", "reason"),
    [
        ("zigbee", {}, "not one of"),
        ("plain", {"smok": "a"}, "not one of"),
        ("plain", {"smoke": "a]"}, "no path"),
        ("plain", {"temperature": "t in ppb"}, 'temperature: unit "ppb" is not one of: °C, C'),
        ("plain", {"smoke": "s in °F"}, 'smoke: unit "°F" is not one of: none'),
    ],
)
def test_a_wrong_mapping_is_refused_with_the_reason(template, fields, reason):
    with pytest.raises(ValueError, match=reason):
        mapping_of("x", template, fields)


def test_the_resource_offers_exactly_these_templates():
    assert set(typing.get_args(MqttTemplate)) == set(TEMPLATES)
