"""The gate: an older and a newer commit measured in turns."""

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from embereye.process.lifecycle import UserError
from embereye_bench.results.gate import build, measure_in_turns, measurer, older_commit, show
from embereye_bench.results.machine_load import MachineLoad
from embereye_bench.results.paired import CHANCE, PairedRow, PairedSample, order_statistic


def paired(ratio: float, noise: float, *, higher_is_better: bool = False, drift: float = 0.0) -> PairedRow:
    dice = random.Random(f"{ratio}{noise}{drift}")
    speeds = [1 + drift * abs(dice.gauss(0, 1)) for _ in range(9)]  # slow minutes, which both commits share
    old = [10 * speed * dice.gauss(1, noise) for speed in speeds]
    new = [10 * ratio * speed * dice.gauss(1, noise) for speed in speeds]
    return PairedRow("text", "µs", higher_is_better, tuple(old), tuple(new))


@pytest.mark.parametrize("drift", [0.0, 2.0])
def test_slow_minutes_that_both_share_change_no_verdict(drift: float) -> None:
    assert paired(1.0, 0.01, drift=drift).verdict == "same"
    assert paired(1.08, 0.01, drift=drift).verdict == "worse"
    assert paired(1.08, 0.01, drift=drift, higher_is_better=True).verdict == "better"
    assert paired(0.9, 0.01, drift=drift).verdict == "better"


def test_noise_proves_nothing_and_the_interval_shows_it() -> None:
    row = paired(1.02, 0.5)
    assert row.verdict == "noisy"
    low, high = row.interval
    assert low < row.change < high


def test_a_new_failure_is_worse_although_zero_has_no_logarithm() -> None:
    assert PairedRow("lost", "devices", False, (0.0,) * 9, (3.0,) * 9).verdict == "worse"
    assert PairedRow("lost", "devices", False, (0.0,) * 9, (0.0,) * 9).verdict == "same"


@pytest.mark.parametrize("rounds", range(6, 40))
def test_the_interval_misses_the_median_in_less_than_one_of_twenty_runs(rounds: int) -> None:
    dice, skipped = random.Random(rounds), order_statistic(rounds)
    missed = 0
    for _ in range(2000):
        values = sorted(dice.gauss(0, 1) for _ in range(rounds))
        missed += not values[skipped] <= 0 <= values[-1 - skipped]
    assert missed / 2000 <= CHANCE + 0.015  # three standard errors of 2,000 runs


def test_fewer_than_six_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="5 rounds are too few"):
        order_statistic(5)


def test_commits_alternate_and_a_row_that_one_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def side(commit: str, rows: Sequence[str]) -> Callable[[str, int], Sequence[PairedSample]]:
        def measure(name: str, number: int) -> Sequence[PairedSample]:
            order.append(commit)
            return (PairedSample(name, number, 10.0, "µs", False),) if name in rows else ()

        return measure

    rows = measure_in_turns(["a", "b"], 6, side("old", "a"), side("new", "ab"), lambda _: None)
    assert order[:8] == ["old", "new"] * 2 + ["new", "old"] * 2
    assert [row.name for row in rows] == ["a"]
    assert show("0123456789", ["a", "b"], rows, "quiet") == 0
    assert "not measured by both in every round: b" in capsys.readouterr().out


def test_nothing_in_common_is_no_success() -> None:
    with pytest.raises(UserError, match="no row was measured"):
        show("0123456789", ["a"], [], "quiet")


def test_an_unknown_commit_is_named() -> None:
    with pytest.raises(UserError, match="--against nowhere: this checkout has no such commit"):
        older_commit("nowhere")


def test_a_commit_that_cannot_be_built_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be built: git"):
        build("f" * 40, tmp_path, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_row_that_fails_is_reported_and_takes_no_other_along(tmp_path: Path) -> None:
    said: list[str] = []
    assert measurer(Path(sys.executable), tmp_path, 0.1, said.append)("nothing", 0) == ()
    assert 'nothing: not measured: embereye: --only "nothing" is not one of' in said[0]


def test_the_load_of_the_machine_is_told_in_shares() -> None:
    began = MachineLoad.now()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert "% of the CPU time" in began.since()
