import json
from pathlib import Path

import pytest

from embereye.hub.mqtt.entities import (
    DeviceState,
    Topics,
    Watch,
    device_entities,
    device_payload,
    zone_entities,
    zone_payload,
)
from embereye.hub.mqtt.options import read_broker
from embereye.levels import Kind, Level, ZoneState
from embereye.v1.alarms_pb2 import Zone


@pytest.mark.parametrize(
    ("address", "more", "sentence"),
    [
        ("broker", {}, "mqtt://HOST:1883"),
        ("http://broker", {}, "mqtt://HOST:1883"),
        ("mqtt://", {}, "mqtt://HOST:1883"),
        ("mqtt://broker:99999", {}, "not a valid URL"),
        ("mqtt://me:secret/x@broker", {}, "not a valid URL"),
        ("mqtt://broker/topic", {}, "mqtt://HOST:1883"),
        ("mqtt://me:secret@broker", {}, "contains a user"),
        ("mqtt://broker", {"certificates": Path("x")}, "Use mqtts://"),
        ("mqtt://broker", {"prefix": ""}, "prefix"),
        ("mqtt://broker", {"prefix": "a/#"}, "prefix"),
        ("mqtt://broker", {"discovery": "/x"}, "discovery"),
    ],
)
def test_an_invalid_broker_is_refused_by_name(address: str, more: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read_broker(address, **more)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_a_port_follows_from_tls() -> None:
    assert (read_broker("mqtt://broker").port, read_broker("mqtts://[::1]").port) == (1883, 8883)
    assert read_broker("mqtts://[::1]").address == "mqtts://[::1]:8883"
    assert read_broker("mqtt://broker", prefix="site/north").client == "site-north-hub"


def test_names_cannot_address_other_topics() -> None:
    topics = Topics(read_broker("mqtt://broker"))
    assert topics.zone("default", "a/+#") == "embereye/zones/default/a%2F%2B%23"
    assert topics.device("default/sensors/hall", "10.0.0.1:9") == "embereye/devices/default/sensors/hall/10.0.0.1%3A9"
    state = DeviceState("default/sensors/hall", "a/b", "hall", Watch.WATCHED)
    ((topic, _),) = device_entities(topics, state)
    assert topic.count("/") == 4
    assert topic != next(device_entities(topics, DeviceState("default/sensors/hall", "a_b", "hall", Watch.DARK)))[0]


def test_zones_of_the_same_name_are_two_entities() -> None:
    topics = Topics(read_broker("mqtt://broker"))
    here, there = (dict(zone_entities(topics, namespace, "hall")) for namespace in ("north", "south"))
    assert not here.keys() & there.keys()


@pytest.mark.parametrize(
    ("state", "fire", "acknowledged"),
    [
        (ZoneState.NORMAL, b"false", b"false"),
        (ZoneState.PRE_ALARM, b"false", b"false"),
        (ZoneState.ALARM, b"true", b"false"),
        (ZoneState.ACKNOWLEDGED, b"true", b"true"),
        (ZoneState.RESTORED, b"true", b"true"),
    ],
)
def test_a_zone_burns_until_its_alarm_is_reset(state: ZoneState, fire: bytes, acknowledged: bytes) -> None:
    payload = zone_payload(Zone(namespace="default", name="hall", state=state.wire))
    assert b'"fire":%s,"acknowledged":%s' % (fire, acknowledged) in payload


@pytest.mark.parametrize("name", ["s", "厨房" * 20, '"\n'])
def test_a_zones_payload_fits_into_home_assistants_attributes(name: str) -> None:
    zone = Zone(namespace="default", name="hall", state=ZoneState.ALARM.wire, why="smoke at s-01; " * 9_000)
    for number in range(2_000):
        zone.contributions.add(device=f"{name}-{number}", kind=Kind.SMOKE.wire, level=Level.ALARM.wire)
        zone.faults.add(device=f"{name}-{number}")
    payload = zone_payload(zone)
    state = json.loads(payload)
    assert 8_000 < len(payload) <= 15_000
    assert (state["signCount"], state["darkCount"], bool(state["signs"]), bool(state["dark"])) == (
        2_000,
        2_000,
        True,
        True,
    )
    device = device_payload(DeviceState("default/cameras/hall", "c-1", "hall", Watch.DARK, "\x00" * 50_000))
    assert len(device) <= 15_000
