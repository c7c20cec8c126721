"""The report of a set of benchmarks: chosen by name, and complete even if one of them fails."""

import argparse
import json

import pytest

from embereye.process.lifecycle import UserError
from embereye_bench.operator.numbers import Number, attempt, number
from embereye_bench.report import Result, Scale, Suite, chosen_names


def fine(scale: Scale) -> Result:
    return Result("fine", scale.seconds, "s", 1.0, 1.0, "≤ 1", ok=True)


def broken(scale: Scale) -> Result:
    raise ValueError("math domain error")


SUITE = Suite("tests", {"broken": broken, "fine": fine}, full=Scale(1, 1.0), quick=Scale(1, 0.5))


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    SUITE.add_arguments(parser)
    return SUITE.run(parser.parse_args(["--json", *arguments]))


def test_a_benchmark_that_fails_is_a_row_and_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["fine"]["ok"], rows["fine"]["value"]) == (True, 1.0)
    assert not rows["broken"]["ok"]
    assert rows["broken"]["reach"] == "failed: ValueError: math domain error"


@pytest.mark.parametrize("only", [["fine,broken"], ["fine", "broken"], ["fine,", " broken "]])
def test_only_takes_a_list_and_may_be_repeated(only: list[str]) -> None:
    assert chosen_names(only, ["broken", "fine", "other"]) == ["fine", "broken"]


def test_only_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match='--only "nothing" is not one of broken, fine'):
        run("--only", "fine,nothing")
    assert run("--only", "fine") == 0


def test_a_measurement_of_the_operator_that_fails_is_a_number_that_misses() -> None:
    shown: list[Number] = []
    attempt("curve-fleets", lambda: broken(Scale(1, 1.0)), shown.extend)  # type: ignore[arg-type]
    attempt("rest", lambda: shown.append(number("rest", 1.0, "s", 2.0)), shown.extend)
    assert [(entry.name, entry.ok) for entry in shown] == [("curve-fleets", False), ("rest", True)]
    assert shown[0].detail == {"failed": "ValueError: math domain error"}
