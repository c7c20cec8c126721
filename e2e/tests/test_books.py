"""The harness's own books: an assertion that cannot fail would prove nothing."""

from pathlib import Path

import pytest
from harness.records.diary import Diary, percentile
from harness.records.page import write_page
from harness.records.probers import IngestProber
from harness.records.witness import Heard, Witness

from embereye.v1.alarms_pb2 import AlarmEvent, ZoneState


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path, lambda _: None)


def alarm(cursor: int, zone: str) -> Heard:
    state = ZoneState.ZONE_STATE_ALARM
    return Heard(cursor, AlarmEvent(cursor=cursor, zone=zone, type=AlarmEvent.TYPE_STATE, state=state))


def prober(diary: Diary, acks: list[float]) -> IngestProber:
    return IngestProber("g-1", "", diary, acks)


def test_a_lost_and_a_doubled_alarm_are_told_apart(diary: Diary) -> None:
    witness = Witness("", diary)
    witness.heard = [alarm(1, "one"), alarm(2, "two"), alarm(3, "two"), alarm(4, "other")]
    assert witness.miscounted(["one", "two", "none"]) == (["none"], ["two"])


@pytest.mark.parametrize(
    ("cursors", "broken"),
    [([1, 2, 3], []), ([1, 3], ["2 to 2 never came"]), ([1, 2, 2], ["2 came after 2"]), ([2], ["1 to 1 never came"])],
)
def test_cursors_without_a_gap_and_a_repeat_are_sound(diary: Diary, cursors: list[int], broken: list[str]) -> None:
    witness = Witness("", diary)
    witness.heard = [alarm(cursor, "zone") for cursor in cursors]
    assert witness.broken_cursors() == broken


@pytest.mark.parametrize(
    ("acks", "gap"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0], 1.0),
        ([0.0, 1.0, 3.5, 4.0], 2.5),  # within
        ([0.0, 3.9], 3.9),  # begun before the event
        ([0.0, 1.1, 1.5], 2.5),  # not over yet
        ([], 3.0),
    ],
)
def test_a_gap_counts_from_the_last_acknowledgement_before_to_now(diary: Diary, acks: list[float], gap: float) -> None:
    assert prober(diary, acks).gap(1.0, 4.0) == pytest.approx(gap)


def test_a_watermark_that_falls_is_held_against_the_shard(diary: Diary) -> None:
    one = prober(diary, [])
    one._acknowledge(one._epoch, 5)
    one._acknowledge(one._epoch, 5)
    assert one.taken_back == []
    one._acknowledge(one._epoch, 4)
    assert one.taken_back == ["g-1: 5 was acknowledged, then only 4"]
    assert one.watermark == 5


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.95), percentile(values, 0.5), percentile([7.0], 0.95)) == (95.0, 50.0, 7.0)


def test_a_failed_step_and_an_exceeded_limit_are_on_the_page(diary: Diary) -> None:
    diary.measure("gap", 12, "s", 10)
    with pytest.raises(ZeroDivisionError), diary.step("a <step>"):
        raise ZeroDivisionError("by zero")
    diary.close()
    page = write_page(diary).read_text()
    assert "a &lt;step&gt;" in page
    assert "ZeroDivisionError: by zero" in page
    assert "EXCEEDED" in diary.table()[0]
    assert "http" not in page
