"""Synthesise alarms in rooms, and the sounds among which they have to be recognised. Deterministic, numpy only.

Nothing here is a recording: an alarm follows its standard, a room is a decaying noise as impulse response, speech is a
voice with formants and syllables, music has notes with harmonics and drums, machines hum, rattle and hiss. Beepers are
the hardest: reversing lorries, alarm clocks, ovens and low batteries have the tones of alarms, but not the pattern.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from embereye.addons.sound.pattern import RATE, Pattern

Sound = NDArray[np.float32]
Dice = np.random.Generator


def alarm(pattern: Pattern, seconds: float, *, tone: float = 3100.0, tempo: float = 1.0, drift: float = 0.0) -> Sound:
    """Synthesise an alarm of `seconds` from its first pulse, RMS 1 in a pulse.

    `tone` is in Hz and drifts by the share `drift` over the sound; `tempo` stretches the pattern.
    """
    time = np.arange(int(seconds * RATE)) / RATE
    frequency = tone * (1 + drift * (time / seconds - 0.5))
    phase = 2 * np.pi * np.cumsum(frequency) / RATE
    wave: NDArray[np.float64] = np.sin(phase)
    for harmonic in (3, 5, 7) if tone < 1000 else (2, 3):
        if harmonic * tone < RATE / 2 * 0.95:
            wave += np.sin(harmonic * phase) / (harmonic if tone < 1000 else 4 * harmonic)
    pulses, length, period = {"smoke": ((0.0, 1.0, 2.0), 0.5, 4.0),
                              "carbonMonoxide": ((0.0, 0.2, 0.4, 0.6), 0.1, 5.7)}[pattern]  # fmt: skip
    position = (time / tempo) % period
    on = np.zeros(len(time))
    for begin in pulses:
        on[(position >= begin) & (position < begin + length)] = 1
    on = np.convolve(on, np.ones(48) / 48, "same")  # a piezo starts within 3 ms
    return _normal(wave, on > 0.5) * on.astype(np.float32)


def room(sound: Sound, dice: Dice, *, decay: float, direct: float = 1.0) -> Sound:
    """Reverberate: `decay` is the time to 60 dB less, in seconds; `direct` the level of the first sound, relative."""
    length = int(decay * RATE)
    tail = dice.standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
    tail[: int(0.004 * RATE)] = 0
    response = tail / np.sqrt((tail**2).sum())
    response[0] = direct
    return _convolve(sound, response / np.sqrt((response**2).sum()))


def at_ratio(sound: Sound, noise: Sound, decibels: float, *, level: float = -30.0) -> Sound:
    """Mix `sound` (RMS 1 in pulses) into `noise`, `decibels` above it; the noise has `level` dB of full scale."""
    quiet = _normal(noise) * 10 ** (level / 20)
    mixed = quiet + sound[: len(noise)] * 10 ** ((level + decibels) / 20)
    return np.clip(mixed, -1, 1).astype(np.float32)


def speech(seconds: float, dice: Dice) -> Sound:
    """Synthesise a voice: pulses of the glottis through three formants, in syllables, words and pauses; hisses."""
    size = int(seconds * RATE)
    out = np.zeros(size)
    position, pitch = 0, dice.uniform(90, 240)
    while position < size:
        length = int(dice.uniform(0.08, 0.30) * RATE)
        if dice.random() < 0.18:
            position += int(dice.uniform(0.15, 0.9) * RATE)
            pitch = float(np.clip(pitch * dice.uniform(0.9, 1.1), 80, 300))
            continue
        time = np.arange(length) / RATE
        if dice.random() < 0.25:
            part = _band(dice.standard_normal(length), dice.uniform(2000, 4000), dice.uniform(5000, 7800)) * 0.5
        else:
            glide = pitch * (1 + dice.uniform(-0.15, 0.15) * time / time[-1] + 0.01 * np.sin(2 * np.pi * 5 * time))
            phase = np.cumsum(glide) / RATE
            formants = (dice.uniform(250, 800), dice.uniform(850, 2400), dice.uniform(2300, 3300))
            part = np.zeros(length)
            for harmonic in range(1, int(4500 / pitch)):
                frequency = harmonic * pitch
                gain = sum(1 / (1 + ((frequency - f) / w) ** 2) for f, w in zip(formants, (60, 90, 140), strict=True))
                part += gain / harmonic**0.6 * np.sin(2 * np.pi * harmonic * phase + harmonic)
        part = part * np.hanning(length) ** 0.4
        end = min(size, position + length)
        out[position:end] += part[: end - position] / (np.std(part) + 1e-9) * dice.uniform(0.5, 1.2)
        position += int(length * dice.uniform(0.85, 1.1))
    return _normal(out + 0.01 * dice.standard_normal(size))


def music(seconds: float, dice: Dice) -> Sound:
    """Synthesise music: a melody up to 4 kHz, chords, a bass and drums, by a beat of 70 to 180 per minute."""
    size = int(seconds * RATE)
    out = np.zeros(size + 4 * RATE)
    beat = 60 / dice.uniform(70, 180)
    scale = np.array([0, 2, 4, 5, 7, 9, 11]) + int(dice.integers(0, 12))
    for number in range(int(seconds / beat)):
        start = int(number * beat * RATE)
        for _ in range(int(dice.integers(0, 3))):
            note = int(dice.choice(scale)) + 12 * int(dice.integers(4, 9))
            _add(out, start + int(dice.choice([0, 0.5]) * beat * RATE),
                 _note(440 * 2 ** ((note - 69) / 12), dice.choice([0.25, 0.5, 1, 2]) * beat, dice))  # fmt: skip
        if number % 4 == 0:
            for step in (0, 2, 4):
                note = int(scale[step]) + 48
                _add(out, start, 0.5 * _note(440 * 2 ** ((note - 69) / 12), 4 * beat, dice))
        _add(out, start, 0.8 * _drum(dice, low=number % 2 == 0))
    return _normal(out[:size] + 0.003 * dice.standard_normal(size))


def machine(seconds: float, dice: Dice) -> Sound:
    """Synthesise a machine: hum with harmonics, a whine of changing speed, strokes, a fan's noise, metal that rings."""
    size = int(seconds * RATE)
    time = np.arange(size) / RATE
    base = dice.uniform(24, 120)
    speed = base * (1 + 0.02 * np.sin(2 * np.pi * dice.uniform(0.01, 0.2) * time))
    phase = 2 * np.pi * np.cumsum(speed) / RATE
    out = np.asarray(sum(dice.uniform(0.1, 1) / n * np.sin(n * phase + n) for n in range(1, 24)))
    whine = dice.uniform(400, 3600) * (1 + 0.1 * np.sin(2 * np.pi * dice.uniform(0.02, 0.5) * time))
    switched = (time % dice.uniform(3, 20)) < dice.uniform(0.5, 8)  # it runs in turns
    out += dice.uniform(0, 1.5) * np.sin(2 * np.pi * np.cumsum(whine) / RATE) * switched
    out += dice.uniform(0.3, 2) * _band(dice.standard_normal(size), dice.uniform(50, 500), dice.uniform(1500, 7000))
    stroke = dice.uniform(0.15, 2.0)
    for start in np.arange(0, seconds, stroke):
        _add(out, int(start * RATE), dice.uniform(1, 3) * _ring(dice))
    return _normal(out)


def beeper(seconds: float, dice: Dice) -> Sound:
    """Synthesise something that beeps near the tones of alarms, but in another pattern, in a quiet room."""
    size = int(seconds * RATE)
    time = np.arange(size) / RATE
    tone = dice.choice([dice.uniform(2700, 3500), dice.uniform(460, 580), dice.uniform(900, 2500)])
    kind = dice.integers(0, 6)
    if kind == 0:  # a reversing lorry: no pause
        on = (time % 1.0) < 0.5
    elif kind == 1:  # an alarm clock: four beeps each second
        on = ((time % 1.0) < 0.5) & ((time % 0.125) < 0.0625)
    elif kind == 2:  # an oven: three or five long beeps, then a long silence
        on = ((time % 30.0) < dice.choice([3, 5])) & ((time % 1.0) < 0.5)
    elif kind == 3:  # a low battery: one chirp
        on = (time % dice.uniform(20, 60)) < 0.1
    elif kind == 4:  # a pager: two by two
        on = ((time % 2.0) < 0.8) & ((time % 0.4) < 0.2)
    else:  # a telephone's ring
        on = ((time % 4.0) < 2.0) & ((time % 0.1) < 0.05)
    wave = np.sin(2 * np.pi * tone * time) + 0.2 * np.sin(6 * np.pi * tone * time)
    return _normal(room((wave * on).astype(np.float32), dice, decay=dice.uniform(0.1, 0.8))
                   + 0.01 * dice.standard_normal(size))  # fmt: skip


NOISES: dict[str, Callable[[float, Dice], Sound]] = {
    "speech": speech, "music": music, "machine": machine, "beeper": beeper,
}  # fmt: skip


def _normal(sound: NDArray[np.float64] | Sound, where: NDArray[np.bool_] | None = None) -> Sound:
    """Scale to RMS 1, measured `where` that is true."""
    part = sound if where is None else sound[where]
    scaled: Sound = (sound / (np.sqrt(np.mean(np.square(part))) + 1e-12)).astype(np.float32)
    return scaled


def _convolve(sound: Sound, response: NDArray[np.float64]) -> Sound:
    size = 1 << (len(sound) + len(response) - 1).bit_length()
    product = np.fft.rfft(sound, size) * np.fft.rfft(response, size)
    result: Sound = np.fft.irfft(product, size)[: len(sound)].astype(np.float32)
    return result


def _band(noise: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Limit `noise` to the frequencies from `low` to `high`, RMS 1."""
    spectrum = np.fft.rfft(noise)
    frequencies = np.fft.rfftfreq(len(noise), 1 / RATE)
    spectrum[(frequencies < low) | (frequencies > high)] = 0
    limited = np.fft.irfft(spectrum, len(noise))
    scaled: NDArray[np.float64] = limited / (np.std(limited) + 1e-9)
    return scaled


def _note(frequency: float, seconds: float, dice: Dice) -> NDArray[np.float64]:
    """A note with up to eight harmonics; plucked, blown or struck."""
    time = np.arange(max(64, int(seconds * RATE))) / RATE
    vibrato = dice.choice([0, 0.004]) * np.sin(2 * np.pi * 5.5 * time)
    phase = 2 * np.pi * frequency * (time + np.cumsum(vibrato) / RATE)
    steep = dice.uniform(0.6, 2.0)
    wave = sum(np.sin(n * phase) / n**steep for n in range(1, 9) if n * frequency < RATE / 2)
    envelope = np.exp(-time * dice.choice([0, 2, 6])) * np.minimum(1, time / 0.01)
    envelope *= np.minimum(1, (time[-1] - time) / 0.02 + 1e-9)
    shaped: NDArray[np.float64] = np.asarray(wave) * envelope
    return shaped


def _drum(dice: Dice, *, low: bool) -> NDArray[np.float64]:
    time = np.arange(int(0.2 * RATE)) / RATE
    struck: NDArray[np.float64] = np.sin(2 * np.pi * 60 * time) if low else dice.standard_normal(len(time))
    return 2 * struck * np.exp(-time * (15 if low else 40))


def _ring(dice: Dice) -> NDArray[np.float64]:
    time = np.arange(int(0.4 * RATE)) / RATE
    tones = sum(np.sin(2 * np.pi * dice.uniform(200, 5000) * time) for _ in range(3))
    rung: NDArray[np.float64] = np.asarray(tones) * np.exp(-time * dice.uniform(8, 60))
    return rung


def _add(out: NDArray[np.float64], start: int, part: NDArray[np.float64]) -> None:
    end = min(len(out), start + len(part))
    if end > start:
        out[start:end] += part[: end - start]
