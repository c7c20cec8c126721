"""The evidence of the hearing: alarms that are heard, and hours of noise without one. `embereye bench sensors`.

The sounds are those of `judging`, and their seeds begin at `FIRST`: choose limits with other seeds, or with the sounds
of `tests/synthesis.py`.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from embereye.addons.sound.bench.judging import NOISES, Sound, alarm, is_sounding, microphone, room
from embereye.addons.sound.pattern import RATE, AlarmSounds, Pattern, blocks
from embereye_bench.detection.score_folds import exact_range, poisson
from embereye_bench.report import Benchmark, Result, Scale

ALARMS, HOURS = "sound-alarms", "sound-noise"
RATIO = 10.0  # dB of the alarm's pulses above the noise
WITHIN = 12.0  # seconds from the first pulse
BEFORE = 3.0  # seconds of noise before it
ALARMS_A_ROUND = 100
PIECE = 300.0  # seconds of one noise
LEAST = 95.0  # % of alarms that have to be heard
FIRST = 10_000  # seed


@dataclass(frozen=True)
class Case:
    """One synthesised alarm among noise."""

    seed: int
    pattern: Pattern
    tone: float  # Hz
    decay: float  # seconds
    noise: str


def cases(count: int, *, first: int = FIRST) -> list[Case]:
    """Choose `count` cases: either pattern, either tone ± 10 %, rooms from 0.2 to 0.8 s, speech, music and machines."""
    chosen: list[Case] = []
    for seed in range(first, first + count):
        dice = np.random.default_rng(seed)
        pattern: Pattern = "smoke" if seed % 2 == 0 else "carbonMonoxide"
        tone = (3100.0, 520.0)[seed // 2 % 2] * dice.uniform(0.9, 1.1)
        noise = ("speech", "music", "machine")[seed // 4 % 3]
        chosen.append(Case(seed, pattern, tone, dice.uniform(0.2, 0.8), noise))
    return chosen


def play(case: Case, ratio: float = RATIO) -> Sound:
    """Synthesise `case`: alarm and noise are in rooms, and a microphone hears both."""
    dice = np.random.default_rng((case.seed, 1))
    sound = np.pad(alarm(case.pattern, WITHIN, dice, tone=case.tone), (int(BEFORE * RATE), 0))
    sound = room(sound, dice, decay=case.decay)
    sound /= np.sqrt(np.mean(np.square(sound[is_sounding(sound)])))
    noise = room(NOISES[case.noise](BEFORE + WITHIN, dice), dice, decay=dice.uniform(0.2, 0.8))
    noise /= np.std(noise)
    level = dice.uniform(-50, -20)
    mixed = (noise[: len(sound)] + sound * 10 ** (ratio / 20)) * 10 ** (level / 20)
    return microphone(np.clip(mixed, -1, 1), dice)


def hear(case: Case, ratio: float = RATIO) -> tuple[float, set[Pattern]]:
    """Play `case`; return the second at which its alarm was known (0: never), and the patterns that were heard."""
    sounds, known, heard = AlarmSounds(), 0.0, set()
    for block in blocks(play(case, ratio), 0.25):
        sounds.feed(block)
        heard |= set(sounds.alarms)
        if case.pattern in heard and not known:
            known = sounds.seconds - BEFORE
    return known, heard


def listen_to_noise(seed: int, kind: str = "", seconds: float = PIECE) -> tuple[str, int, float]:
    """Listen to one noise for some seconds; return its kind, the false alarms and the CPU seconds of the search."""
    name = kind or list(NOISES)[seed % len(NOISES)]
    dice = np.random.default_rng((seed, 2))
    noise = room(NOISES[name](seconds, dice), dice, decay=dice.uniform(0.1, 0.8))
    noise *= np.float32(10 ** (dice.uniform(-50, -10) / 20) / np.std(noise))
    noise = microphone(np.clip(noise, -1, 1), dice)
    sounds, alarms = AlarmSounds(), 0
    began = time.process_time()
    for block in blocks(noise, 1.0):
        before = set(sounds.alarms)
        sounds.feed(block)
        alarms += len(set(sounds.alarms) - before)
    return name, alarms, time.process_time() - began


def sound_alarms(scale: Scale) -> Result:
    """Measure the share of alarms that are heard within 12 s at 10 dB, in rooms, among speech, music and machines."""
    chosen = cases(ALARMS_A_ROUND * scale.rounds)
    with ProcessPoolExecutor(1) as pool:
        results = list(pool.map(hear, chosen, chunksize=10))
    heard = sum(0 < known <= WITHIN for known, _ in results)
    wrong = sum(bool(patterns - {case.pattern}) for case, (_, patterns) in zip(chosen, results, strict=True))
    seconds = sorted(known for known, _ in results if known)
    value = 100.0 * heard / len(results)
    low, high = exact_range(heard, len(results))
    unit = (
        f"% of {len(results)} alarms, 95 % sure of {100 * low:.0f} to {100 * high:.0f}; "
        f"median {seconds[len(seconds) // 2]:.1f} s; {wrong} taken for the other pattern"
    )
    return Result(ALARMS, value, unit, LEAST, value / LEAST, f">= {LEAST:g} %", value >= LEAST)


def sound_noise(scale: Scale) -> Result:
    """Count false alarms in hours of speech, music, machines and beepers; and the cost of an hour."""
    pieces = 24 * scale.rounds
    with ProcessPoolExecutor(1) as pool:
        results = list(pool.map(listen_to_noise, range(FIRST, FIRST + pieces)))
    false, hours = sum(count for _, count, _ in results), pieces * PIECE / 3600
    cost = sum(seconds for _, _, seconds in results) / (pieces * PIECE) * 100
    most = poisson(false)[1] / hours
    unit = (
        f"false alarms in {hours:.1f} h of speech, music, machines and beepers, 95 % sure of at most {most:.2f} an "
        f"hour; {cost:.2f} % of a core"
    )
    return Result(HOURS, float(false), unit, 0.0, 0.0, "0", false == 0)


SENSOR_BENCHMARKS: dict[str, Benchmark] = {ALARMS: sound_alarms, HOURS: sound_noise}
