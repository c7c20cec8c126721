"""Results of the thermal path for simulated fires."""

import math
from dataclasses import replace

import pytest

from embereye.sim.scenes.thermal import HARMLESS
from embereye_bench import heat
from embereye_bench.report import Scale


@pytest.mark.parametrize("alarms", [[False, False, True, False, False], [False, True, False]])
def test_a_row_misses_its_goal_if_most_fires_are_missed(alarms: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    missed = heat.play(replace(HARMLESS[0], seconds=1.0))
    rounds = iter([heat.Outcome(62.0, 65.0, 70.0) if alarm else missed for alarm in alarms])
    monkeypatch.setattr(heat, "play", lambda *_: next(rounds))
    result = heat.BENCHMARKS["fast-2m"](Scale(len(alarms), 0))
    assert not result.ok
    assert math.isinf(result.value)
