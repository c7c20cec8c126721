"""Reports of bought devices: alarms that last, tests, batteries, and measurements that need a second reading."""

from embereye.detect.sensing.bands import BandTable
from embereye.levels import Kind, Level
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.states import TEST_NS
from embereye.sensor.device.status import device_status
from embereye.shard.evidence.episodes import Episodes
from embereye.units import MINUTE, SECOND
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.quantity import Reading, Report
from embereye.wire.readings.source import SensorSource, encode_source, parse_source
from embereye.zone.sentences import sign as sentence
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

START = 1_700_000_000 * SECOND
SETTINGS = build_sensor_settings(SensorFleetSpec())


def detector(deadline=70 * MINUTE):
    source = encode_source(SensorSource("mqtt://b", "z/kitchen", "zigbee2mqtt", {}, deadline))
    return SensorDevice(Device(id="kitchen", zone="hall", source=source), SETTINGS, BandTable())


def report(device, now, **values):
    return device.analyse_report(Report(tuple(Reading(*item) for item in values.items())), now, now)


def levels(signs):
    return [(sign.kind, sign.level) for sign in signs]


def test_an_alarm_lasts_until_the_device_says_otherwise_and_becomes_evidence():
    device, episodes = detector(), Episodes("fleet")
    (sign,) = report(device, START, smoke=1.0)
    evidence = episodes.observe(sign, START)
    assert evidence is not None
    assert sentence(evidence) == "smoke reported by kitchen"
    for second in range(3, 60, 3):
        assert levels(device.states.repeat(START + second * SECOND)) == [(Kind.SMOKE, Level.ALARM)]
    assert levels(report(device, START + 58 * SECOND, smoke=0.0)) == [(Kind.SMOKE, Level.CLEAR)]
    ended = device.states.repeat(START + 62 * SECOND)
    assert levels(ended) == [(Kind.SMOKE, Level.CLEAR)]
    assert device.states.repeat(START + 75 * SECOND) == []


def test_the_test_button_is_shown_and_holds_an_alarm_back_for_a_minute_only():
    device = detector()
    assert levels(report(device, START, smoke=1.0, test=1.0)) == []
    status = device_status(device, START + 5 * SECOND, 5 * SECOND)
    assert status.state == "last check-in 5 s ago, allowed 70 min; test button pressed 5 s ago"
    assert levels(report(device, START + TEST_NS, smoke=1.0, test=1.0)) == [(Kind.SMOKE, Level.ALARM)]


def test_one_hot_reading_is_a_pre_alarm_and_two_are_an_alarm():
    device = detector()
    assert levels(report(device, START, temperature=85.0))[0][1] == Level.PRE_ALARM
    assert levels(report(device, START + SECOND, temperature=21.0))[0][1] == Level.CLEAR
    report(device, START + 2 * SECOND, temperature=85.0)
    assert levels(report(device, START + 3 * SECOND, temperature=86.0))[0][1] >= Level.ALARM


def test_carbon_monoxide_and_its_alarm_are_one_kind_and_the_strongest_counts():
    device = detector()
    (sign,) = report(device, START, carbonMonoxide=1.0, carbonMonoxideLevel=120.0)
    assert (sign.kind, sign.level) == (Kind.GAS, Level.ALARM)


def test_a_low_battery_degrades_and_a_detector_off_its_base_is_dark():
    device = detector()
    report(device, START, smoke=0.0, batteryLow=1.0, battery=7.0)
    status = device_status(device, START, 5 * SECOND)
    assert (status.covered, status.degraded) == (True, "its battery is nearly empty: 7 %")
    report(device, START, tamper=1.0)
    status = device_status(device, START, 5 * SECOND)
    assert (status.covered, status.reason) == (False, "it was taken off its base, or opened")
    report(device, START, tamper=0.0)
    assert device.is_covered(START, 5 * SECOND)


def test_a_message_that_is_no_check_in_keeps_nothing_covered():
    device = detector()
    device.analyse_report(Report((Reading("smoke", 0.0),), is_check_in=False), 0, START)
    assert device.reason(START, 5 * SECOND) == "no check-in yet, one is expected every 70 min"
    report(device, START, smoke=0.0)
    assert device.reason(START + 69 * MINUTE, 5 * SECOND) == ""
    assert device.reason(START + 71 * MINUTE, 5 * SECOND) == "last check-in 71 min ago, allowed 70 min"


def test_a_source_survives_its_way_to_the_shard():
    source = SensorSource(
        "mqtts://b:8883", "z/Kitchen smoke", "plain", {"smoke": "/a b=1|2", "heat": "x&y?"}, 60 * SECOND
    )
    assert parse_source(encode_source(source)) == source
