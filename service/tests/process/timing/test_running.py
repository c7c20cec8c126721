from embereye.process.timing.running import Running
from embereye.units import SECOND


def test_a_process_runs_since_the_first_call_after_a_stall() -> None:
    running = Running(work=lambda: 0)
    assert [running.since(second * SECOND) for second in (100, 101, 102)] == [100 * SECOND] * 3
    assert running.stalled_ns == 0
    assert [running.since(second * SECOND) for second in (112, 113)] == [112 * SECOND] * 2
    assert running.stalled_ns == 10 * SECOND


def test_an_overloaded_process_has_not_stalled() -> None:
    worked = 0
    running = Running(work=lambda: worked)
    for second in range(100, 200, 5):
        worked += 4 * SECOND
        assert running.since(second * SECOND) == 100 * SECOND
    assert running.stalled_ns == 0
