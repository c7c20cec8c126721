"""Recognise the temporal-three and temporal-four signals of smoke and carbon monoxide alarms. Pure, numpy only.

ISO 8201 and NFPA 72: a smoke alarm repeats three pulses of 0.5 s with gaps of 0.5 s, then pauses for 1.5 s. NFPA 720
and UL 2034: a carbon monoxide alarm repeats four pulses of 0.1 s with gaps of 0.1 s, then pauses for 5 s. The tone is
near 3,100 Hz (piezo) or 520 Hz (square wave, for sleepers).

Levels are measured in dB, per frequency and each 10 ms. For each possible start and tempo, the levels in the pulses are
compared with those in the gaps and pauses: every pulse must be louder than every gap, by as much as a room with echoes
leaves of it. A pulse must also be steady, as loud as the others, a narrow line, and have their tone: the harmonics of
voices change theirs. A timer makes the pulses, so they begin at equal distances; notes of a melody rarely do. Two such
groups in a row at the right distance and frequency, with the pause of the standard and no other group between them, are
an alarm. Speech, music and machines fail one of these; beepers have other pauses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # samples per second
HOP = 160  # samples between two frames, 10 ms
WINDOW = 512  # samples of a frame, 32 ms
FRAMES = RATE // HOP  # frames per second
STEP = FRAMES // 4  # frames between two searches
TEMPI = (0.9, 0.95, 1.0, 1.05, 1.1)
BANDS = ((2700.0, 3500.0), (455.0, 585.0))  # Hz: nominal ± 10 %, and a bin
FIFTH = 5  # harmonic of a square wave of 520 Hz that is beside the upper band, and may be the best line of a group
MIN_LEVEL = -75.0  # dB of full scale; below, codecs make their own sounds
FLOOR = -100.0  # dB; digital silence
SAME_TONE = 1.5  # bins by which groups of one alarm may differ
STEADY_TONE = 10.0, 0.005  # Hz, or share of the tone, by which pulses of a group may differ
SPREAD = 10.0  # dB by which pulses of a group may differ: people walk through the room
PROMINENCE = 14.0  # dB by which a line is above its neighbourhood
SHARE = -9.0  # dB of the line to all sound; an alarm 10 dB above the noise has more than -5 without echoes
NEAR, FAR = 4, 14  # bins of that neighbourhood

Pattern = Literal["smoke", "carbonMonoxide"]
Levels = NDArray[np.float32]


@dataclass(frozen=True)
class Template:
    """A group of pulses: intervals in seconds from the first pulse's start."""

    pattern: Pattern
    pulses: tuple[tuple[float, float], ...]
    gaps: tuple[tuple[float, float], ...]  # between the pulses: their ends, when echoes are faintest
    pauses: tuple[tuple[float, float], ...]  # before and after the group
    period: float  # from group to group
    gap_contrast: float  # dB, of every pulse above the gaps before and after it
    pause_contrast: float  # dB, of every pulse above every pause
    unsteadiness: float  # dB, most standard deviation within a pulse
    neighbours: tuple[tuple[float, float], ...] = ()  # where one more pulse would be; echoes are loud there

    @property
    def spacing(self) -> float:
        """From the start of a pulse to that of the next one."""
        return self.pulses[1][0] - self.pulses[0][0]

    @property
    def rest(self) -> float:
        """From the start of a group's last pulse to that of the next group."""
        return self.period - self.spacing * (len(self.pulses) - 1)


TEMPLATES = (
    Template(
        "smoke",
        pulses=((0.08, 0.46), (1.08, 1.46), (2.08, 2.46)),
        gaps=((0.78, 0.96), (1.78, 1.96)),
        pauses=((-0.70, -0.06), (2.80, 3.40)),
        period=4.0, gap_contrast=4.0, pause_contrast=12.0, unsteadiness=6.0,
    ),
    Template(
        "carbonMonoxide",
        pulses=((0.02, 0.09), (0.22, 0.29), (0.42, 0.49), (0.62, 0.69)),
        gaps=((0.14, 0.19), (0.34, 0.39), (0.54, 0.59)),
        pauses=((-1.5, -0.06), (1.1, 2.6)), neighbours=((-0.26, -0.06), (0.80, 1.10)),
        period=5.7, gap_contrast=1.0, pause_contrast=14.0, unsteadiness=6.0,
    ),
)  # fmt: skip
# The mean level of a pause does not show a short beep in it, such as one of a reversing lorry. So no line that lasts …
BEEP = 0.06  # … seconds in a pause may come nearer to the pulses than …
BEEP_CONTRAST = 4.0  # … dB
PERIOD_TOLERANCE = 0.1  # of the period
# ISO 8201 allows 10 % for each phase. The distances of pulses are measured to 10 ms, so a pause less exactly.
SPACINGS = np.linspace(0.9, 1.1, 21)  # of the nominal distance
REST_TOLERANCE = 0.125  # of the pause with its pulse
EDGE = 4  # frames before and after the start of a pulse whose levels are compared
DEPTH = 15.0  # dB below a group's faintest pulse: fainter sounds do not count as the start of a pulse
MISSED = 2.3  # periods without a group after which an alarm has ended
MIN_LINES = 3  # frames of a group in which its tone is a line, at least
BEFORE = int(1.7 * FRAMES)  # frames that a search needs before a group, and …
AFTER = int(3.8 * FRAMES)  # … after its start


@dataclass(frozen=True)
class Group:
    """One group of pulses."""

    pattern: Pattern
    at: float  # start, seconds from the first sample
    spacing: float  # from the start of a pulse to that of the next one, seconds
    frequency: float  # Hz
    level: float  # dB of full scale


@dataclass(frozen=True)
class Alarm:
    """An alarm that sounds."""

    pattern: Pattern
    since: float  # start of its first group, seconds from the first sample
    until: float  # start of its latest group
    frequency: float  # Hz
    level: float  # dB of full scale
    groups: int


class AlarmSounds:
    """Finds alarms in one sound. Call `feed` with consecutive samples, then look at `alarms`."""

    def __init__(self) -> None:
        self.alarms: dict[Pattern, Alarm] = {}
        self.seconds = 0.0  # of sound that was fed
        self._pending = np.zeros(0, np.float32)
        self._levels: Levels = np.zeros((0, len(_BINS)), np.float32)
        self._lines: Levels = self._levels  # prominence of each bin
        self._raw: Levels = np.zeros((0, len(_WIDE)), np.float32)
        self._first = 0  # number of the first frame in `_levels`
        self._searched = BEFORE  # frame up to which starts of groups were searched
        self._recent: dict[Pattern, list[Group]] = {template.pattern: [] for template in TEMPLATES}

    def feed(self, samples: NDArray[np.float32]) -> list[Group]:
        """Analyse more samples (n,), 16 kHz, within ±1; return the groups that were found."""
        self.seconds += len(samples) / RATE
        pending = np.concatenate((self._pending, samples)).astype(np.float32, copy=False)
        count = (len(pending) - WINDOW) // HOP + 1
        if count <= 0:
            self._pending = pending
            return []
        levels, lines, raw = _spectrum(pending, count)
        self._pending = pending[count * HOP :]
        self._levels = np.concatenate((self._levels, levels))
        self._lines = np.concatenate((self._lines, lines))
        self._raw = np.concatenate((self._raw, raw))
        groups: list[Group] = []
        while self._first + len(self._levels) - AFTER - self._searched >= STEP:
            groups += self._search(self._searched - self._first)
            self._searched += STEP
            self._expire()
        if (spent := self._searched - BEFORE - self._first) > 0:
            self._levels, self._lines, self._raw = self._levels[spent:], self._lines[spent:], self._raw[spent:]
            self._first += spent
        return groups

    def _search(self, start: int) -> list[Group]:
        """Search groups that start in the STEP frames from `start`, an index into the levels."""
        window = slice(start - BEFORE, start + STEP + AFTER)
        levels, lines, raw = self._levels[window], self._lines[window], self._raw[window]
        if levels.max() < MIN_LEVEL:
            return []
        # In each pulse, a frame is a line at least once: nearly all bins can be left out.
        columns = np.flatnonzero(np.count_nonzero(lines > 0, axis=0) >= MIN_LINES)
        if not len(columns):
            return []
        groups, sums = [], _Sums.of(levels[:, columns], lines[:, columns])
        for template in TEMPLATES:
            group = _best(template, sums, columns, raw, (self._first + start) / FRAMES)
            if group:
                groups.append(group)
                self._note(template, group)
        return groups

    def _note(self, template: Template, group: Group) -> None:
        """Begin or continue an alarm if `group` follows another one at the right distance."""
        recent = [last for last in self._recent[group.pattern] if group.at - last.at < MISSED * template.period]
        alarm = self.alarms.get(group.pattern)
        if alarm is not None:
            if _is_same_tone(alarm.frequency, group) and group.at - alarm.until > template.period / 2:
                self.alarms[group.pattern] = Alarm(
                    group.pattern, alarm.since, group.at, group.frequency, group.level, alarm.groups + 1
                )
        elif first := next((last for last in recent if _is_next(template, last, group, recent)), None):
            self.alarms[group.pattern] = Alarm(group.pattern, first.at, group.at, group.frequency, group.level, 2)
        self._recent[group.pattern] = [*recent, group]

    def _expire(self) -> None:
        """End alarms without a group for too long."""
        now = self._searched / FRAMES
        for template in TEMPLATES:
            alarm = self.alarms.get(template.pattern)
            if alarm and now - alarm.until > MISSED * template.period:
                del self.alarms[template.pattern]


def _is_next(template: Template, last: Group, group: Group, recent: Sequence[Group]) -> bool:
    """True if `group` is a period after `last` in the same tone, and none of `recent` is between them."""
    distance = (group.at - last.at) / template.period
    if not _is_same_tone(last.frequency, group) or abs(distance - 1) > PERIOD_TOLERANCE:
        return False
    rest = group.at - last.at - (last.spacing + group.spacing) / 2 * (len(template.pulses) - 1)
    if abs(rest / template.rest - 1) > REST_TOLERANCE:
        return False
    between = [other.at for other in recent if _is_same_tone(other.frequency, group)]
    return not any(min(at - last.at, group.at - at) > template.period / 4 for at in between)


def _is_same_tone(frequency: float, group: Group) -> bool:
    return abs(group.frequency - frequency) <= SAME_TONE * RATE / WINDOW


def _bins(beyond: int = 0) -> NDArray[np.intp]:
    """The bins of the bands, and `beyond` more on each side."""
    edges = [(round(low * WINDOW / RATE) - beyond, round(high * WINDOW / RATE) + beyond) for low, high in BANDS]
    return np.concatenate([np.arange(low, high + 1) for low, high in edges])


_BINS = _bins()
_WIDE = _bins(3)  # by which a tone beside a band is known to be there
_HANN = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
_FULL_SCALE = float((_HANN.sum() / 2) ** 2)


def _spectrum(samples: NDArray[np.float32], count: int) -> tuple[Levels, Levels, Levels]:
    """The levels (count, bins) of the tones in dB of full scale, by how many dB they are lines, and those of _WIDE.

    A tone has the level of the loudest of three bins, because it may drift.
    """
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[: (count - 1) * HOP + 1 : HOP]
    power = np.abs(np.fft.rfft(frames * _HANN, axis=1)) ** 2 / _FULL_SCALE
    decibels = 10 * np.log10(np.maximum(power, 10 ** (FLOOR / 10))).astype(np.float32)
    tones = np.maximum(decibels[:, _BINS], np.maximum(decibels[:, _BINS - 1], decibels[:, _BINS + 1]))
    total = np.cumsum(np.pad(decibels, ((0, 0), (1, 0))), axis=1)

    def mean(low: NDArray[np.intp], high: NDArray[np.intp]) -> Levels:
        low = np.clip(low, 0, decibels.shape[1])
        result: Levels = (total[:, high] - total[:, low]) / (high - low)
        return result

    around = (mean(_BINS - FAR, _BINS - NEAR) + mean(_BINS + NEAR, _BINS + FAR)) / 2
    share = tones - 10 * np.log10(np.maximum(power.sum(axis=1), 1e-10))[:, None]
    lines = np.minimum(tones - around - PROMINENCE, share - SHARE).astype(np.float32)
    return tones, lines, decibels[:, _WIDE]


@dataclass(frozen=True)
class _Intervals:
    """Intervals of a template in frames, for each tempo: begins and ends (TEMPI, n)."""

    begins: NDArray[np.intp]
    ends: NDArray[np.intp]

    @classmethod
    def of(cls, intervals: Sequence[tuple[float, float]]) -> "_Intervals":
        """The intervals, given in seconds from a group's start."""
        frames = np.array(TEMPI)[:, None, None] * FRAMES * np.array(intervals)
        begins, ends = np.moveaxis(BEFORE + np.round(frames).astype(np.intp), -1, 0)
        return cls(begins, np.maximum(ends, begins + 1))

    def at(self, tempo: int) -> "_Intervals":
        """The intervals of one tempo only, by its number: (1, n)."""
        return _Intervals(self.begins[tempo : tempo + 1], self.ends[tempo : tempo + 1])


@dataclass(frozen=True)
class _Plan:
    """The intervals that a template's search compares."""

    pulses: _Intervals
    gaps: _Intervals
    pauses: _Intervals
    beeps: _Intervals  # parts of its pauses and neighbours that last BEEP

    @classmethod
    def of(cls, template: Template) -> "_Plan":
        """Prepare the search of `template`."""
        quiet = (*template.pauses, *template.neighbours)
        parts = [(start, start + BEEP) for begin, end in quiet for start in np.arange(begin, end - BEEP, BEEP / 2)]
        return cls(*map(_Intervals.of, (template.pulses, template.gaps, template.pauses, parts)))


_PLANS = {template.pattern: _Plan.of(template) for template in TEMPLATES}
_STARTS = np.arange(STEP)


class _Means:
    """Means of values (frames, bins) over intervals, for each of the STEP starts at once."""

    def __init__(self, values: Levels) -> None:
        self._total = np.cumsum(np.pad(values, ((1, 0), (0, 0))), axis=0, dtype=np.float64)

    def over(self, intervals: _Intervals) -> NDArray[np.float64]:
        """The means (tempi, n, STEP, bins)."""
        begins, ends = intervals.begins[..., None], intervals.ends[..., None]
        means: NDArray[np.float64] = self._total[ends + _STARTS] - self._total[begins + _STARTS]
        means /= (ends - begins)[..., None]
        return means

    def values(self, column: int) -> NDArray[np.float64]:
        """The values (frames,) of one bin."""
        result: NDArray[np.float64] = np.diff(self._total[:, column])
        return result


@dataclass(frozen=True)
class _Sums:
    """The levels, their squares and the prominence of lines in one search."""

    levels: _Means
    squares: _Means
    lines: _Means

    @classmethod
    def of(cls, levels: Levels, lines: Levels) -> "_Sums":
        return cls(_Means(levels), _Means(levels**2), _Means(lines))


def _best(template: Template, sums: _Sums, columns: NDArray[np.intp], raw: Levels, at: float) -> Group | None:
    """The best group at one of `columns` that starts within STEP frames from second `at`; None if there is none."""
    plan = _PLANS[template.pattern]
    pulses = sums.levels.over(plan.pulses)
    faintest, loudest = pulses.min(axis=1), pulses.max(axis=1)
    # Echoes add up: a late gap may be as loud as the first pulse, but not as the pulses before and after it.
    contrast = (np.minimum(pulses[:, :-1], pulses[:, 1:]) - sums.levels.over(plan.gaps)).min(axis=1)
    pauses = sums.levels.over(plan.pauses).max(axis=1)
    margin = np.minimum(contrast - template.gap_contrast, faintest - pauses - template.pause_contrast)
    good = (margin > 0) & (faintest > MIN_LEVEL) & (loudest - faintest < SPREAD)
    for tempo in np.flatnonzero(good.any(axis=(1, 2))).tolist():
        part = good[tempo]
        beeps = plan.beeps.at(tempo)
        loud = np.where(sums.lines.over(beeps) > 0, sums.levels.over(beeps), FLOOR)[0].max(axis=0)
        part &= faintest[tempo] - loud > BEEP_CONTRAST
        steps = plan.pulses.at(tempo)
        part &= (sums.squares.over(steps)[0] - pulses[tempo] ** 2 < template.unsteadiness**2).all(axis=0)
        part &= (sums.lines.over(steps)[0] > 0).all(axis=0)
    if not good.any():
        return None
    place = np.unravel_index(np.where(good, margin, -np.inf).argmax(), good.shape)
    row, column = int(place[1]), int(columns[place[2]])
    pulse = plan.pulses.at(int(place[0]))
    tones = [_frequency(column, raw[begin + row : end + row])
             for begin, end in zip(pulse.begins[0].tolist(), pulse.ends[0].tolist(), strict=True)]  # fmt: skip
    frequency, (least, share) = sum(tones) / len(tones), STEADY_TONE
    if max(tones) - min(tones) > max(least, share * frequency):
        return None
    if not any(low <= tone <= high for low, high in BANDS for tone in (frequency, frequency / FIFTH)):
        return None
    beat = _beat(template, sums.levels.values(int(place[2])), row, float(faintest[place]))
    if beat is None:
        return None
    start, spacing = beat
    return Group(template.pattern, at + start / FRAMES, spacing, frequency, float(faintest[place]))


def _beat(template: Template, levels: NDArray[np.float64], row: int, faintest: float) -> tuple[int, float] | None:
    """The start in frames, near `row`, and the spacing in seconds at which every pulse of a group begins; None: none.

    `levels` (frames,) are those of one bin. A pulse begins where they rise, to near the level of the `faintest` pulse.
    """
    total = np.cumsum(np.pad(np.clip(levels, faintest - DEPTH, faintest), (1, 0)))
    rises = np.full(len(levels) + 1, -DEPTH)
    rises[EDGE:-EDGE] = (total[2 * EDGE :] - 2 * total[EDGE:-EDGE] + total[: -2 * EDGE]) / EDGE
    reach = round(template.spacing * FRAMES / 4)
    starts, spacings = np.arange(row - reach, row + reach + 1), template.spacing * SPACINGS
    pulses = np.arange(len(template.pulses))
    frames = starts[:, None, None] + np.round(spacings[:, None] * pulses * FRAMES).astype(np.intp)
    least = rises[BEFORE + frames].min(axis=2)
    best = np.unravel_index(least.argmax(), least.shape)
    if least[best] < template.gap_contrast:
        return None
    return int(starts[best[0]]), float(spacings[best[1]])


def _frequency(column: int, raw: Levels) -> float:
    """The frequency of the line near bin `column`, in Hz: the vertex of a parabola through the three bins there."""
    level = raw.mean(axis=0)
    middle = int(np.flatnonzero(_BINS[column] == _WIDE)[0])
    peak = max(range(middle - 2, middle + 3), key=lambda number: float(level[number]))
    left, top, right = (float(level[number]) for number in (peak - 1, peak, peak + 1))
    curve = left - 2 * top + right
    offset = max(-0.5, min(0.5, 0.5 * (left - right) / curve)) if curve else 0.0
    return (float(_WIDE[peak]) + offset) * RATE / WINDOW


def describe(alarm: Alarm) -> str:
    """Say in words what sounds, for people."""
    device, pulses = {
        "smoke": ("smoke-alarm sound", "three pulses"), "carbonMonoxide": ("carbon monoxide alarm sound", "four pulses")
    }[alarm.pattern]  # fmt: skip
    return f"{device} ({pulses}, {round(alarm.frequency, -1):,.0f} Hz) for {alarm.until - alarm.since:.0f} s"


def blocks(samples: NDArray[np.float32], seconds: float = 1.0) -> Iterator[NDArray[np.float32]]:
    """Cut `samples` into blocks of `seconds`."""
    size = int(seconds * RATE)
    for start in range(0, len(samples), size):
        yield samples[start : start + size]
