"""Fires that the thermal path is shown, as they are judged."""

import math
from dataclasses import replace

import pytest

from embereye.sim.scenes.thermal import HARMLESS
from embereye_bench import heat
from embereye_bench.report import Scale


@pytest.mark.parametrize("found", [[False, False, True, False, False], [False, True, False]])
def test_where_most_fires_are_missed_a_row_falls_short(found: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    missed = heat.play(replace(HARMLESS[0], seconds=1.0))
    rounds = iter([heat.Outcome(62.0, 65.0, 70.0) if one else missed for one in found])
    monkeypatch.setattr(heat, "play", lambda *_: next(rounds))
    result = heat.BENCHMARKS["fast-2m"](Scale(len(found), 0))
    assert not result.ok
    assert math.isinf(result.value)
