import pytest

from embereye.shard.coverage import Watch, recalled
from embereye.shard.ledger import Ledger
from embereye.units import HOUR, MINUTE, SECOND


def test_a_device_is_dark_until_it_is_heard_and_analysed() -> None:
    watch = Watch()
    assert watch.reason(10 * SECOND, 5 * SECOND) == "never heard"
    watch.heard_ns = 9 * SECOND
    assert watch.reason(10 * SECOND, 5 * SECOND) == "heard, but not analysed yet"
    watch.analysed_ns = 9 * SECOND
    assert watch.reason(10 * SECOND, 5 * SECOND) == ""


@pytest.mark.parametrize(
    ("reason", "ago", "corrected"),
    [
        ("never heard; no connection", 4 * MINUTE, "silent for 4 min; no connection"),
        (Watch().reason(9, 8 * HOUR, sleeps=True), 6 * HOUR, "last check-in 6 h ago, one is expected every 8 h"),
        ("picture frozen", 4 * MINUTE, "picture frozen"),
        ("never heard", -SECOND, "silent for 0 s"),
    ],
)
def test_a_shard_that_just_started_has_no_last_word_on_when_a_device_was_heard(
    reason: str, ago: int, corrected: str
) -> None:
    assert recalled(reason, ago) == corrected


def test_silence_past_the_deadline_is_dark_and_says_for_how_long() -> None:
    watch = Watch(heard_ns=SECOND, analysed_ns=SECOND)
    assert watch.reason(6 * SECOND, 5 * SECOND) == ""
    assert watch.reason(8 * SECOND, 5 * SECOND) == "silent for 7.0 s, deadline 5 s"


def test_a_device_whose_data_is_not_analysed_is_not_covered() -> None:
    watch = Watch(heard_ns=10 * SECOND, analysed_ns=SECOND)
    assert "last analysed 9.0 s ago" in watch.reason(10 * SECOND, 5 * SECOND)


def test_a_blind_device_is_not_covered_however_fresh_its_data() -> None:
    watch = Watch(heard_ns=SECOND, analysed_ns=SECOND, blind="picture frozen")
    assert watch.reason(SECOND, 5 * SECOND) == "picture frozen"


def test_the_ledger_adds_up() -> None:
    ledger = Ledger(offered=10, analysed=4, duplicate=1)
    ledger.shed["superseded"] += 2
    ledger.rejected["truncated"] += 1
    message = ledger.message()
    assert message.waiting == 2
    assert message.offered == (
        message.analysed + message.duplicate + sum(message.shed.values()) + sum(message.rejected.values())
        + message.waiting
    )  # fmt: skip
