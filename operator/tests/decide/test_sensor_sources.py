"""Sensors of a broker reach their shard with topic, mapping, deadline and the broker's credentials."""

import typing

import pytest

from embereye.units import HOUR, MINUTE, SECOND
from embereye.wire.readings.source import parse_source
from embereye_operator.api.fleets import FleetError, parse_fleet
from embereye_operator.api.sensors import HEARTBEATS, TEMPLATE_HEARTBEATS, Heartbeat, MqttTemplate
from embereye_operator.decide.placement.assignments import build_device


def fleet(*sensors, **spec):
    return parse_fleet({
        "apiVersion": "embereye.dev/v1beta1", "kind": "SensorFleet", "metadata": {"name": "detectors"},
        "spec": {"sensors": list(sensors), **spec},
    })  # fmt: skip


BROKER = {"broker": "mqtt://broker.lan:1883", "credentialsRef": {"name": "broker"}}
KITCHEN = {"id": "kitchen", "zone": "hall", "source": "mqtt:zigbee2mqtt/Kitchen smoke", "template": "zigbee2mqtt"}


def test_a_detector_is_assigned_with_all_that_its_shard_needs():
    declared = fleet(KITCHEN, {"id": "text", "zone": "hall"}, mqtt=BROKER)
    kitchen, text = (build_device(sensor, declared) for sensor in declared.spec.sensors)
    source = parse_source(kitchen.source)
    assert (source.broker, source.topic) == ("mqtt://broker.lan:1883", "zigbee2mqtt/Kitchen smoke")
    assert (source.template, source.deadline_ns, kitchen.credentials) == ("zigbee2mqtt", 70 * MINUTE, "broker")
    assert (text.source, text.credentials) == ("", "")


def test_fields_and_a_heartbeat_replace_those_of_the_template():
    declared = fleet(KITCHEN | {"fields": {"smoke": "alarm=ON"}, "heartbeat": "daily"}, mqtt=BROKER)
    source = parse_source(build_device(declared.spec.sensors[0], declared).source)
    assert (source.fields, source.deadline_ns) == ({"smoke": "alarm=ON"}, 25 * HOUR)


def test_a_modbus_sensor_is_assigned_with_its_server_and_unit():
    fields = {"temperature": "input:10:int16:0.1"}
    declared = fleet({"id": "kiln", "zone": "hall", "source": "modbus://10.0.0.7:502/3", "fields": fields}, mqtt=BROKER)
    kiln = build_device(declared.spec.sensors[0], declared)
    source = parse_source(kiln.source)
    assert (source.scheme, source.broker, source.topic) == ("modbus", "modbus://10.0.0.7:502", "3")
    assert (source.fields, source.deadline_ns, kiln.credentials) == (fields, 0, "")


def test_sensors_by_http_are_assigned_with_interval_deadline_and_login():
    polled = {"id": "boiler", "zone": "hall", "source": "https://b.lan/s.json?k=a%20b", "interval": "10s",
              "credentialsRef": {"name": "boiler"}}  # fmt: skip
    heard = {"id": "ear", "zone": "hall", "source": "sound:rtsp://cam/1", "credentialsRef": {"name": "gate"}}
    pushing = {"id": "kitchen", "zone": "hall", "source": "push", "heartbeat": "hourly"}
    devices, sources = {}, {}
    for declared in (polled, heard, pushing):
        made = fleet(declared)
        device = build_device(made.spec.sensors[0], made)
        devices[device.id], sources[device.id] = device, parse_source(device.source)
    boiler = sources["boiler"]
    assert (boiler.scheme, boiler.broker + boiler.topic) == ("https", "https://b.lan/s.json?k=a%20b")
    assert (boiler.interval_ns, boiler.deadline_ns) == (10 * SECOND, 30 * SECOND)
    assert (sources["ear"].scheme, sources["ear"].topic) == ("sound+rtsp", "/1")
    assert (sources["kitchen"].scheme, sources["kitchen"].deadline_ns) == ("push", 70 * MINUTE)
    assert [device.credentials for device in devices.values()] == ["boiler", "gate", ""]


def test_the_port_for_http_is_no_other_port():
    with pytest.raises(FleetError, match="must not be tcp's, grpc's or tls's"):
        fleet(KITCHEN, listen={"http": 9001})


def test_a_missing_broker_is_a_reason_for_the_shard():
    declared = fleet(KITCHEN)
    with pytest.raises(ValueError, match=r"spec\.mqtt\.broker is missing"):
        parse_source(build_device(declared.spec.sensors[0], declared).source)


@pytest.mark.parametrize(
    ("sensor", "broker", "reason"),
    [
        (KITCHEN | {"source": "mqtt:zigbee2mqtt/#"}, BROKER, "wildcards"),
        (KITCHEN | {"source": "ftp://x"}, BROKER, "mqtt:TOPIC"),
        (KITCHEN | {"source": "modbus://10.0.0.7"}, BROKER, "modbus://HOST/UNIT"),
        (KITCHEN | {"template": "zigbee"}, BROKER, "zigbee2mqtt"),
        (KITCHEN, {"broker": "mqtt://me:secret@broker"}, "without user and password"),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_remedy(sensor, broker, reason):
    with pytest.raises(FleetError, match=reason):
        fleet(sensor, mqtt=broker)


def test_each_template_and_heartbeat_of_the_resource_has_a_deadline():
    assert set(typing.get_args(MqttTemplate)) == set(TEMPLATE_HEARTBEATS)
    assert set(typing.get_args(Heartbeat)) == set(HEARTBEATS)
