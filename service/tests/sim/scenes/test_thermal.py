"""Simulated thermal scenes, and the results of the thermal path."""

import math
from typing import Any

import numpy as np
import pytest

from embereye.sim.scenes.thermal import GROWTH, NARROW, WIDE, Patch, Scene, burning, flames, power
from embereye_bench.heat import BENCHMARKS, play
from embereye_bench.report import Scale


def scene(*patches: Patch, distance: float = 3.0, **more: Any) -> Scene:
    return Scene("test", distance, lambda _: patches, 10, **more)


def test_fires_reach_a_megawatt_in_the_times_of_their_names() -> None:
    times = {"slow": 600, "medium": 300, "fast": 150, "ultrafast": 75}
    assert {kind: power(GROWTH[kind], times[kind]) for kind in GROWTH} == pytest.approx(
        dict.fromkeys(GROWTH, 1055), rel=0.01
    )


def test_small_sources_read_cooler_with_distance_and_large_ones_are_exact() -> None:
    assert scene(Patch(0, 0, 1, 1, 80, 1.0)).picture(0).max() == pytest.approx(80, abs=0.1)
    tips = [scene(Patch(0.03, 0.03, 0.02, 0.02, 500), distance=distance).picture(0).max() for distance in (1, 2, 4, 8)]
    assert tips == sorted(tips, reverse=True)
    assert tips[0] > 100
    assert 22 < tips[-1] < 40


def test_radiance_is_shared_between_pixels_wherever_a_source_is() -> None:
    def excess(left: float) -> float:
        return float(((scene(Patch(left, 0, 0.05, 0.05, 300)).picture(0) + 273.15) ** 4 - 295.15**4).sum())

    assert [excess(left) for left in np.linspace(-0.2, 0.2, 9)] == pytest.approx([excess(0)] * 9, rel=1e-6)


def test_a_wide_lens_shows_less_of_each_source() -> None:
    ember = Patch(0, 0, 0.05, 0.05, 500)
    assert scene(ember, lens=NARROW).picture(0).max() > scene(ember, lens=WIDE).picture(0).max() + 10


def test_flames_have_heskestads_height() -> None:
    base, flame = flames(100.0, 0, 0)
    assert base.width == pytest.approx(0.505, abs=0.01)
    assert flame.height == pytest.approx(0.235 * 100**0.4 - 1.02 * 0.505, abs=0.01)
    assert flames(0.0, 0, 0) == []


@pytest.mark.parametrize(("kind", "distance"), [("slow", 5), ("fast", 20)])
def test_a_fire_alarms_about_when_a_perfect_sensor_would(kind: str, distance: float) -> None:
    outcome = play(burning(kind, distance, start=20))
    assert 20 < outcome.pre_alarm <= outcome.alarm < outcome.ideal + 5


def test_a_room_without_a_fire_is_clear() -> None:
    outcome = play(scene(Patch(0, 0, 0.5, 1.3, 33)))
    assert math.isinf(outcome.pre_alarm)
    assert math.isinf(outcome.alarm)


@pytest.mark.slow
def test_every_scene_meets_its_goal() -> None:
    results = [benchmark(Scale(1, 0)) for benchmark in BENCHMARKS.values()]
    assert [result.name for result in results if not result.ok] == []
