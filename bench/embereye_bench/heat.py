"""Measure the thermal path with simulated fires and with warm things that are not on fire.

The baseline is a perfect sensor without noise at the same place, with a fixed threshold of 57 °C.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from embereye.detect.thermal.heat import HeatWatch, extremes
from embereye.detect.thermal.mlx90640 import Calibration
from embereye.levels import Level
from embereye.sim.mlx90640 import invent_eeprom, measure
from embereye.sim.scenes.thermal import GROWTH, HARMLESS, NARROW, NOISE_K, WIDE, Lens, Patch, Scene, burning
from embereye.units import SECOND
from embereye_bench.report import Benchmark, Result, Scale, Suite, median
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

HEAT = build_sensor_settings(SensorFleetSpec()).heat
START_NS = 1_700_000_000 * SECOND
RATE = 2.0  # frames/s, the default of an MLX90640
CHIP_ABOVE_ROOM = 8.0  # K
FIRE_AT = 60.0  # s; the time before is for learning the usual level
# Largest power of the fire in kW at the time of the alarm, by distance in m, with a lens of 55 x 35 degrees.
REACH_KW = {2: 0.5, 5: 1.0, 10: 3.0, 20: 6.0, 30: 10.0}
STEADY_SECONDS = 30.0  # duration of a small steady fire
SIZES_KW = tuple(0.05 * 1.25**step for step in range(40))


@dataclass(frozen=True)
class Outcome:
    """The results of the thermal path in a scene, in seconds from its start; infinite: never."""

    pre_alarm: float
    alarm: float
    ideal: float  # time at which a perfect sensor reads 57 °C


@cache
def _chip() -> Calibration:
    return Calibration.from_eeprom(invent_eeprom(5))


def play(scene: Scene, seed: int = 1, rate: float = RATE) -> Outcome:
    """Play `scene` to one device: raw words with noise, calibrated, analysed as in a shard. Ends at the alarm."""
    dice = np.random.default_rng(seed)
    watch, chip = HeatWatch(HEAT), _chip()
    pre_alarm = alarm = ideal = math.inf
    for number in range(int(scene.seconds * rate)):
        time = number / rate
        picture = scene.picture(time)
        if math.isinf(ideal) and picture.max() >= HEAT.alarm_c:
            ideal = time
        if math.isinf(alarm):
            noisy = picture + dice.normal(0, NOISE_K, picture.shape)
            words = measure(chip, noisy, ambient=scene.room(time) + CHIP_ABOVE_ROOM)
            celsius = chip.temperatures(words[None])
            level = watch.observe_extreme(celsius[0], extremes(celsius)[0], START_NS + int(time * SECOND)).level
            if level > Level.CLEAR and math.isinf(pre_alarm):
                pre_alarm = time
            if level >= Level.ALARM:
                alarm = time
        elif not math.isinf(ideal):
            break
    return Outcome(pre_alarm, alarm, ideal)


def _growing(kind: str, distance: float, lens: Lens = NARROW, machine: float = 0.0) -> Callable[[Scale], Result]:
    """Benchmark the seconds from the first flame to the alarm, next to a machine of `machine` °C if it is not 0."""

    def benchmark(scale: Scale) -> Result:
        outcomes = []
        for seed in range(scale.rounds):
            scene = replace(burning(kind, distance, start=FIRE_AT, seed=seed), lens=lens)
            outcomes.append(play(_add_machine(scene, machine) if machine else scene, seed))
        delay = median([outcome.alarm - FIRE_AT for outcome in outcomes])
        ideal = median([outcome.ideal - FIRE_AT for outcome in outcomes])
        most = REACH_KW[int(distance)] * (4 if lens is WIDE else 1)
        reach = math.sqrt(most / GROWTH[kind]) + 1 / RATE
        where = f"{kind}-{distance:g}m{'-wide' if lens is WIDE else ''}{f'-beside-{machine:g}C' if machine else ''}"
        return Result(where, delay, "s", ideal, delay / ideal, f"≤ {reach:.0f} s, {most:g} kW", delay <= reach)

    return benchmark


def _add_machine(scene: Scene, celsius: float) -> Scene:
    machine = Patch(-0.8, -0.4, 0.8, 0.5, celsius, 0.92, 3.0)
    return replace(scene, patches=lambda time: [*scene.patches(time), machine])


def _smallest(distance: float, lens: Lens) -> Callable[[Scale], Result]:
    """Benchmark the smallest steady fire that raises an alarm while it burns for 30 s."""

    def benchmark(scale: Scale) -> Result:
        seconds = FIRE_AT + STEADY_SECONDS
        smallest = ideal = math.inf
        for kilowatts in SIZES_KW:
            scene = replace(burning("ultrafast", distance, seconds=seconds, most=kilowatts), lens=lens)
            outcomes = [play(scene, seed) for seed in range(scale.rounds)]
            if not any(math.isinf(outcome.alarm) for outcome in outcomes):
                smallest = min(smallest, kilowatts)
            if not math.isinf(outcomes[0].ideal):
                ideal = kilowatts
                break
        name = f"smallest-{distance:g}m{'-wide' if lens is WIDE else ''}"
        return Result(name, smallest, "kW", ideal, smallest / ideal, "≤ ideal", smallest <= ideal)

    return benchmark


def _harmless(scene: Scene, expected: bool) -> Callable[[Scale], Result]:
    """Benchmark the share of rounds that end in an alarm; the baseline is 1 if a perfect sensor reads 57 °C."""

    def benchmark(scale: Scale) -> Result:
        outcomes = [play(scene, seed) for seed in range(scale.rounds)]
        alarms = sum(not math.isinf(outcome.alarm) for outcome in outcomes) / len(outcomes)
        ideal = float(not math.isinf(outcomes[0].ideal))
        reach = "hot enough to alarm" if expected else "0"
        ratio = alarms / ideal if ideal else 0.0
        return Result(scene.name, alarms, "alarms", ideal, ratio, reach, expected or not alarms)

    return benchmark


HOT_ENOUGH = {"enamel kettle that boils at 3 m"}  # reads nearly 80 °C: by temperature, it is a fire
BENCHMARKS: dict[str, Benchmark] = {
    **{f"{kind}-{distance}m": _growing(kind, distance) for distance in REACH_KW for kind in GROWTH},
    **{f"slow-{distance}m-wide": _growing("slow", distance, WIDE) for distance in (5, 10, 20)},
    **{f"slow-{distance}m-beside-52C": _growing("slow", distance, machine=52) for distance in (10, 20)},
    **{
        f"smallest-{distance}m{'' if lens is NARROW else '-wide'}": _smallest(distance, lens)
        for lens in (NARROW, WIDE)
        for distance in (3, 5, 10, 20, 30)
    },
    **{scene.name: _harmless(scene, scene.name in HOT_ENOUGH) for scene in HARMLESS},
}


TITLE = "Heat against simulated fires; the baseline is a perfect sensor with a fixed threshold of 57 °C"
SUITE = Suite(TITLE, BENCHMARKS, full=Scale(5, 0), quick=Scale(2, 0))
add_arguments, run = SUITE.add_arguments, SUITE.run
