"""Records of benchmarks: worse rows, noise, and slow machines."""

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from embereye.process.lifecycle import UserError
from embereye_bench import calibrate
from embereye_bench.report import Result, Scale
from embereye_bench.results import compare as compare_command
from embereye_bench.results import record as record_command
from embereye_bench.results.record import choose, sample_rows
from embereye_bench.results.records import Record, Row, Sample, compare, describe_machine, read, write
from embereye_bench.results.reference import measure_reference

MACHINE = {"cpu": "Some", "cores": 2}


def row(name: str = "text", *, cost: float = 10.0, noise: float = 0.01, slow: float = 1.0, reach: str = "≤ 20") -> Row:
    dice = random.Random(f"{name}{cost}{noise}{slow}")
    better = reach.startswith("≥")
    samples = []
    for _ in range(5):
        value = cost * dice.gauss(1, noise)
        samples.append(Sample(value / slow if better else value * slow, 1.0, 5.0 * slow))
    return Row(name, "µs", reach, tuple(samples))


def record(*rows: Row, at: str = "2026-01-01T00:00:00Z", machine: dict[str, object] | None = None) -> Record:
    return Record(at, "abcdef0123", False, machine or MACHINE, rows)


def verdict(old: Row, new: Row) -> str:
    (comparison,) = compare(record(old), record(new))
    return comparison.verdict


@pytest.mark.parametrize("reach", ["≤ 20", "≥ 5"])
def test_a_change_beyond_noise_is_reported_and_one_within_noise_is_not(reach: str) -> None:
    more, less = (0.8, 1.25) if reach.startswith("≥") else (1.25, 0.8)
    assert verdict(row(reach=reach), row(cost=10 * more, reach=reach)) == "worse"
    assert verdict(row(reach=reach), row(cost=10 * less, reach=reach)) == "better"
    assert verdict(row(reach=reach), row(cost=10.3, reach=reach)) == "same"


@pytest.mark.parametrize("reach", ["≤ 20", "≥ 5"])
def test_a_temporarily_slow_machine_does_not_count_against_a_change(reach: str) -> None:
    assert verdict(row(reach=reach), row(slow=1.4, reach=reach)) == "same"
    assert verdict(row(slow=1.4, reach=reach), row(reach=reach)) == "same"
    assert verdict(row(slow=1.4, reach=reach), row(cost=7.0 if "≥" in reach else 14.0, reach=reach)) == "worse"


def test_a_noisy_row_is_not_judged_unless_it_is_far_worse() -> None:
    assert verdict(row(noise=0.4), row(cost=10.5, noise=0.4)) == "noisy"
    assert verdict(row(noise=0.1), row(cost=40.0, noise=0.1)) == "worse"


def test_a_count_of_failures_is_worse_with_every_additional_failure() -> None:
    without = Row("late", "alarms", "0", tuple(Sample(0.0, 0.0, 5.0) for _ in range(3)))
    with_failure = Row("late", "alarms", "0", tuple(Sample(1.0, 0.0, 5.0) for _ in range(3)))
    assert [verdict(without, without), verdict(without, with_failure), verdict(with_failure, without)] == [
        "same",
        "worse",
        "better",
    ]


def test_a_record_is_read_as_written(tmp_path: Path) -> None:
    old = record(row(), row("flood", reach="≥ 5"))
    write(tmp_path / "b.json", old)
    assert read(tmp_path / "b.json") == old


def test_a_record_is_written_and_read_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, record(row()))
    script = (
        "import sys, pathlib; from embereye_bench.results.records import read, write;"
        "path = pathlib.Path(sys.argv[1]); write(path, read(path))"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=True)
    assert read(path) == record(row())


@pytest.mark.parametrize(("command", "measure"), [(record_command, "measure"), (calibrate, "calibrate")])
def test_an_unwritable_file_is_refused_before_measuring(
    command: ModuleType, measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, measure, lambda *_: pytest.fail("it was measured"))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    calibrating = ["--calibrate"] if command is calibrate else []
    for path, why in ((tmp_path, "cannot be written: Is a directory"), (tmp_path / "a" / "b", "there is no folder")):
        with pytest.raises(UserError, match=f"--to {path}:? {why}"):
            command.run(parser.parse_args([*calibrating, "--to", str(path)]))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}', '{"version": 1, "rows": [{}]}'])
def test_a_malformed_record_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=r"x\.json"):
        read(tmp_path / "x.json")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "none.json")


def test_compare_fails_only_if_a_row_got_worse(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_command.show(record(row()), record(row(cost=10.2))) == 0
    assert compare_command.show(record(row()), record(row(cost=15.0))) == 1
    out = capsys.readouterr().out
    assert "worse: text" in out
    assert "-3" in out, "the change in percent"


def test_missing_rows_are_reported_and_a_comparison_without_rows_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compare_command.show(record(row(), row("flood", reach="≥ 5")), record(row())) == 0
    assert "only in the older record: flood" in capsys.readouterr().out
    for new in (record(row("flood")), record()):
        with pytest.raises(UserError, match="no row in common"):
            compare_command.show(record(row()), new)


def test_samples_alternate_with_the_reference_load() -> None:
    order: list[str] = []

    def benchmark(name: str) -> Result:
        order.append(name)
        return Result(name, 2.0, "µs", 1.0, 2.0, "≤ 3", True)

    def reference() -> float:
        order.append("reference")
        return float(order.count("reference"))

    chosen = {"a": lambda _: benchmark("a"), "b": lambda _: benchmark("b")}
    rows = sample_rows(chosen, Scale(1, 0.1), 2, reference, lambda _: None)
    assert order == ["reference", "a", "reference", "b", "reference", "a", "reference", "b", "reference"]
    assert [sample.reference for sample in rows[0].samples] == [1.5, 3.5]
    with pytest.raises(UserError, match='"nothing" is not one of'):
        choose(["nothing"])


def test_the_reference_load_takes_time_and_the_machine_is_described() -> None:
    assert measure_reference() > 0
    assert describe_machine()["cores"] >= 1
