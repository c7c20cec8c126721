"""The Kubernetes Events of a fleet, and their rate."""

from embereye.units import SECOND
from embereye_operator.decide.event_correlator import BURST, REFILL, REPEAT, EventCorrelator


def note(correlator: EventCorrelator, message: str = "quota", subject: str = "hall", second: int = 0) -> None:
    correlator.record(subject, "Warning", "ApplyRefused", message, second * SECOND)


def write(correlator: EventCorrelator, now: float) -> list[tuple[str, int]]:
    written = []
    for entry in correlator.due(now):
        written.append((entry.message, entry.count))
        correlator.note_written(entry, entry.count, now)
    return written


def test_repetitions_raise_a_count_at_intervals() -> None:
    correlator, written = EventCorrelator(), []
    for second in range(0, 3 * int(REPEAT), 2):
        note(correlator, second=second)
        written += [(second, entry) for entry in write(correlator, second)]
    assert [second for second, _ in written] == [0, REPEAT, 2 * REPEAT]
    assert [count for _, (_, count) in written] == [1, 1 + REPEAT / 2, 1 + REPEAT]


def test_entries_that_failed_stay_due_and_none_is_lost() -> None:
    correlator = EventCorrelator()
    note(correlator, "one")
    note(correlator, "two")
    note(correlator, "one")
    assert [entry.message for entry in correlator.due(0)] == ["one", "two"]
    assert write(correlator, 30) == [("one", 2), ("two", 1)]
    assert not correlator.due(31)


def test_a_repetition_during_a_write_is_written_later() -> None:
    correlator = EventCorrelator()
    note(correlator)
    (entry,) = correlator.due(0)
    note(correlator, second=1)
    correlator.note_written(entry, 1, 1)
    assert not correlator.due(2)
    assert write(correlator, 1 + REPEAT) == [("quota", 2)]


def test_a_noisy_subject_is_limited_and_others_are_not() -> None:
    correlator = EventCorrelator()
    for number in range(3 * BURST):
        note(correlator, f"message {number}")
    note(correlator, "other", subject="yard")
    assert len(write(correlator, 0)) == BURST + 1
    assert write(correlator, 1) == []
    assert len(write(correlator, REFILL)) == 1
    assert len(write(correlator, 30 * REFILL)) == BURST
    assert not correlator.lost
