from embereye.process.timing.running import Running
from embereye.units import SECOND


def test_a_process_runs_since_it_was_looked_at_again_after_it_stood_still() -> None:
    running = Running(work=lambda: 0)
    assert [running.since(second * SECOND) for second in (100, 101, 102)] == [100 * SECOND] * 3
    assert running.stood_ns == 0
    assert [running.since(second * SECOND) for second in (112, 113)] == [112 * SECOND] * 2
    assert running.stood_ns == 10 * SECOND


def test_a_process_that_has_too_much_to_do_has_not_stood_still() -> None:
    worked = 0
    running = Running(work=lambda: worked)
    for second in range(100, 200, 5):
        worked += 4 * SECOND
        assert running.since(second * SECOND) == 100 * SECOND
    assert running.stood_ns == 0
