"""Signs that resemble a marked false alarm need more evidence, but are never ignored."""

import pytest

from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem, Region
from embereye.v1.types_pb2 import Term
from embereye.zone.false_alarms import LEAST_NS, MOST_NS, strongest
from embereye.zone.fusion import judge
from embereye.zone.state import ZoneMachine

NOW = 1_700_000_000 * SECOND
DAY = 86_400 * SECOND
KETTLE = (0.4, 0.5, 0.1, 0.1)


def sign(
    value: float = 61.0,
    *,
    kind: Kind = Kind.HEAT,
    level: Level = Level.ALARM,
    device: str = "s-01",
    lasted: float = 5,
    until_ns: int = NOW,
) -> EvidenceItem:
    return EvidenceItem(
        id=f"{device}/{kind}/{value}/{until_ns}", episode=f"{device}/{until_ns}", fleet="default/sensors/f",
        device=device, zone="kitchen", kind=kind.wire, sense=Sense.SENSOR.wire, level=level.wire, score=0.9,
        since_ns=until_ns - int(lasted * SECOND), until_ns=until_ns,
        why=[Term(name="temperature.max", value=value, threshold=57, unit="°C")],
    )  # fmt: skip


def flame(box: tuple[float, float, float, float] = KETTLE, area: float = 0.004, view: str = "v") -> EvidenceItem:
    x, y, width, height = box
    return EvidenceItem(
        id=f"cam/{box}/{area}", episode=f"cam/{box}", fleet="default/cameras/c", device="cam-1", zone="kitchen",
        kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, score=0.9,
        since_ns=NOW - 5 * SECOND, until_ns=NOW,
        region=Region(x=x, y=y, width=width, height=height, area=area, view=view),
    )  # fmt: skip


def marked(*items: EvidenceItem, alarm: str = "a1") -> FalseAlarm:
    return FalseAlarm(
        alarm=alarm, zone="kitchen", time_ns=NOW, who="Ada", reason="steam from the kettle", signs=strongest(items)
    )


def test_a_sign_like_a_marked_one_is_a_pre_alarm_that_names_the_mark() -> None:
    verdict = judge([sign()], [marked(sign())])
    assert verdict.level == Level.PRE_ALARM
    assert "as in an alarm that Ada marked as false on 2023-11-14 (steam from the kettle)" in verdict.why
    assert judge([sign()]).level == Level.ALARM


@pytest.mark.parametrize(
    "more",
    [
        sign(75.0),
        sign(level=Level.CRITICAL),
        sign(lasted=LEAST_NS / SECOND + 1),
        sign(device="s-02"),
        sign(kind=Kind.SMOKE),
    ],
    ids=["hotter", "critical", "for longer", "elsewhere", "another kind"],
)
def test_a_sign_that_exceeds_the_marked_one_counts_in_full(more: EvidenceItem) -> None:
    assert judge([more], [marked(sign())]).level == Level.ALARM


def test_a_large_fire_in_the_picture_never_resembles_a_marked_one() -> None:
    wall = (0.2, 0.2, 0.6, 0.5)
    assert judge([flame(wall, area=0.12)], [marked(flame(wall, area=0.12))]).level == Level.ALARM


def test_a_mark_delays_an_alarm_by_ten_minutes_at_most() -> None:
    hours = marked(sign(lasted=7_200))
    assert judge([sign(lasted=MOST_NS / SECOND - 1)], [hours]).level == Level.PRE_ALARM
    assert judge([sign(lasted=MOST_NS / SECOND + 1)], [hours]).level == Level.ALARM


def test_a_sign_confirms_a_marked_one_unless_both_were_marked_together() -> None:
    smoke = sign(kind=Kind.SMOKE, device="s-02")
    assert judge([sign(), smoke], [marked(sign())]).level == Level.ALARM
    assert judge([sign(), smoke], [marked(sign(), smoke)]).level == Level.PRE_ALARM
    apart = [marked(sign()), marked(smoke, alarm="a2")]
    assert judge([sign(), smoke], apart).level == Level.ALARM, "they were never marked together"


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (flame(), Level.PRE_ALARM),
        (flame((0.41, 0.51, 0.09, 0.1)), Level.PRE_ALARM),
        (flame((0.7, 0.5, 0.1, 0.1)), Level.ALARM),
        (flame(area=0.008), Level.ALARM),
        (flame((0.3, 0.3, 0.4, 0.4)), Level.ALARM),
        (flame(view="after the camera was turned"), Level.ALARM),
    ],
)
def test_a_mark_of_a_camera_covers_a_place_in_its_picture(seen: EvidenceItem, level: Level) -> None:
    assert judge([seen], [marked(flame())]).level == level


@pytest.mark.parametrize("name", ["flame.familiar.below", "smoke.usual"])
def test_a_camera_that_already_demanded_more_evidence_is_believed(name: str) -> None:
    seen = flame()
    seen.why.add(name=name, value=100, unit="%")
    assert judge([seen], [marked(flame())]).level == Level.ALARM


def test_a_marked_alarm_stores_the_highest_values_of_every_sign() -> None:
    (merged,) = strongest([sign(58, lasted=2), sign(66, lasted=9), sign(60, level=Level.CLEAR)])
    assert merged.why[0].value == 66
    assert merged.until_ns - merged.since_ns == 9 * SECOND


def test_a_zone_mentions_the_mark_and_goes_into_alarm_when_the_sign_grows() -> None:
    machine = ZoneMachine("default", "kitchen", marks={"a1": marked(sign())})
    (event,) = machine.add_evidence(sign(), NOW)
    assert ZoneState(event.state) is ZoneState.PRE_ALARM
    assert "a second, stronger or longer sign would confirm it" in event.why
    assert "marked as false" in machine.message(NOW).contributions[0].note
    (event,) = machine.add_evidence(sign(80.0, until_ns=NOW + SECOND), NOW + SECOND)
    assert ZoneState(event.state) is ZoneState.ALARM


def test_a_removed_mark_has_no_effect() -> None:
    machine = ZoneMachine("default", "kitchen", marks={"a1": marked(sign())})
    machine.add_evidence(sign(), NOW)
    machine.marks.clear()
    later = sign(until_ns=NOW + SECOND)
    (event,) = machine.add_evidence(later, NOW + SECOND)
    assert ZoneState(event.state) is ZoneState.ALARM
