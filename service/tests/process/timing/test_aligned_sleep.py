import pytest

from embereye.process.timing import aligned_sleep


@pytest.mark.parametrize(
    ("now", "period", "rest"),
    [
        (100.0, 0.25, 0.25),
        (100.01, 0.25, 0.24),
        (100.01, 1.0, 0.99),
        (100.2499, 0.25, 0.2501),  # a timer that fired early does not fire twice
        (100.8, 1.0, 0.2),  # a delayed sleep does not delay the next one
    ],
)
def test_all_wake_at_multiples_of_their_periods(monkeypatch, now, period, rest):
    monkeypatch.setattr(aligned_sleep, "PHASE", 0.1)
    monkeypatch.setattr("time.monotonic", lambda: now - 0.1)
    assert aligned_sleep.until_aligned(period) == pytest.approx(rest)
