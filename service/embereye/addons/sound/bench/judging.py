"""Synthesise the sounds by which the hearing is judged, in other ways than those with which its limits are chosen.

The latter, in `tests/synthesis.py`, add up sine waves, and their rooms are decaying noise. Here each phase of a signal
has its own tolerance, as the standards allow; rooms have walls that reflect; loudspeakers resonate and clip;
microphones and codecs limit the band. Voices are pulses shaped by formants, music repeats riffs of frequency
modulation. Beepers are a list of what beeps in buildings. Deterministic, numpy only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embereye.addons.sound.pattern import RATE, Pattern

Sound = NDArray[np.float32]
Wave = NDArray[np.float64]
Dice = np.random.Generator
SPEED = 343.0  # m/s, of sound
WINDOW, HOP = 512, 128  # samples of a frame in which a spectrum is shaped
BLOCK = 1 << 15  # samples of a block that is transformed
TAPS = 4096  # samples of a microphone's response
EARLY = 0.06  # seconds for which single reflections are computed; then the tail is diffuse
# Peterson and Barney: the three formants of ten vowels, Hz
VOWELS = np.array([
    (270, 2290, 3010), (390, 1990, 2550), (530, 1840, 2480), (660, 1720, 2410), (730, 1090, 2440),
    (570, 840, 2410), (440, 1020, 2240), (300, 870, 2240), (640, 1190, 2390), (490, 1350, 1690),
], float)  # fmt: skip
# Device → (seconds on, seconds off) in turn, then again. None is within 10 % of the two signals.
BEEPS: dict[str, Sequence[tuple[float, float]]] = {
    "reversing lorry": [(0.5, 0.5)],
    "fork lift": [(0.25, 0.25)],
    "microwave oven": [(0.5, 0.5)] * 2 + [(0.5, 28.0)],
    "oven, four times": [(0.6, 0.6)] * 3 + [(0.6, 20.0)],
    "washing machine": [(0.5, 0.5)] * 4 + [(0.5, 55.0)],
    "refrigerator door": [(0.15, 0.15), (0.15, 1.55)],
    "dishwasher, three every six seconds": [(0.5, 0.5)] * 2 + [(0.5, 3.5)],
    "three every eight seconds": [(0.5, 0.5)] * 2 + [(0.5, 5.5)],
    "three short every four seconds": [(0.2, 0.2)] * 2 + [(0.2, 3.0)],
    "two every four seconds": [(0.5, 0.5), (0.5, 2.5)],
    "four every four seconds": [(0.5, 0.5)] * 3 + [(0.5, 0.8)],
    "four long every six seconds": [(0.5, 0.5)] * 3 + [(0.5, 2.5)],
    "alarm clock": [(0.08, 0.07)] * 3 + [(0.08, 0.47)],
    "kitchen timer": [(0.1, 0.1)] * 3 + [(0.1, 0.3)],
    "four every three seconds": [(0.1, 0.1)] * 3 + [(0.1, 2.15)],
    "power supply on battery": [(0.1, 0.1)] * 3 + [(0.1, 29.3)],
    "power supply, low": [(0.5, 0.1)],
    "three short every six seconds": [(0.1, 0.1)] * 2 + [(0.1, 5.2)],
    "five short every six seconds": [(0.1, 0.1)] * 4 + [(0.1, 4.8)],
    "four slow every six seconds": [(0.2, 0.2)] * 3 + [(0.2, 4.4)],
    "patient monitor, medium": [(0.2, 0.2)] * 2 + [(0.2, 2.5)],
    "patient monitor, high": [(0.12, 0.12), (0.12, 0.12), (0.12, 0.35), (0.12, 0.12), (0.12, 0.8)] * 2 + [(0.1, 4.0)],
    "low battery": [(0.06, 42.0)],
    "pager": [(0.2, 0.2), (0.2, 1.2)],
    "busy tone": [(0.48, 0.48)],
    "ringing tone": [(1.0, 4.0)],
    "British ringing tone": [(0.4, 0.2), (0.4, 2.0)],
    "American ringing tone": [(2.0, 4.0)],
    "seat belt": [(0.4, 0.6)] * 6 + [(0.4, 12.0)],
    "lift": [(0.3, 9.0)],
    "crossing": [(0.03, 0.97)],
    "crossing, green": [(0.03, 0.1)],
    "continuous": [(60.0, 1.0)],
}


def alarm(pattern: Pattern, seconds: float, dice: Dice, *, tone: float) -> Sound:
    """Synthesise an alarm of `seconds` by a piezo disk or a horn. Each phase is within 10 % of its standard."""
    pulses, on, off, pause = {"smoke": (3, 0.5, 0.5, 1.5), "carbonMonoxide": (4, 0.1, 0.1, 5.0)}[pattern]
    on, off, pause = (phase * dice.uniform(0.9, 1.1) for phase in (on, off, pause))
    group = [(on, off)] * (pulses - 1) + [(on, pause)]
    envelope = _envelope(group, seconds, attack=dice.uniform(0.001, 0.012), release=dice.uniform(0.002, 0.02))
    phase = 2 * np.pi * np.cumsum(tone * (1 + 0.004 * dice.standard_normal() * envelope)) / RATE
    wave = np.zeros(len(envelope))
    for harmonic in range(1, int(RATE / 2 / tone) + 1):
        gain = 1 / harmonic if tone < 1000 and harmonic % 2 else dice.uniform(0, 0.3) / harmonic
        wave += (1.0 if harmonic == 1 else gain) * np.sin(harmonic * phase + dice.uniform(0, 6))
    wave *= envelope
    return _normal(np.tanh(wave * dice.uniform(0.3, 2.0)), envelope > 0.5)


def is_sounding(sound: Sound) -> NDArray[np.bool_]:
    """True where `sound` is within 20 dB of its loudest 10 ms."""
    size = RATE // 100
    power = np.convolve(np.square(sound, dtype=np.float64), np.ones(size) / size, "same")
    sounding: NDArray[np.bool_] = power > power.max() / 100
    return sounding


def room(sound: Sound, dice: Dice, *, decay: float) -> Sound:
    """Play `sound` in a room with six walls and a reverberation time of `decay` seconds; `_images` has its physics."""
    response = _images(dice, decay)
    length = int(decay * RATE)
    start = int(EARLY * RATE)
    tail = dice.standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
    tail[:start] = 0
    late = np.sqrt(np.mean(response[start // 2 : start] ** 2) + 1e-12) * 10 ** (-1.5 * start / length)
    tail *= late / (np.sqrt(np.mean(tail[start : start + start // 2] ** 2)) + 1e-12)
    tail[: len(response)] += response[:length] if len(response) > length else np.pad(response, (0, 0))
    return _filtered(sound, tail / np.sqrt(np.sum(tail**2)))


def _images(dice: Dice, decay: float) -> Wave:
    """The reflections of a source in a box of random size until `EARLY`, by mirror images; Sabine's absorption."""
    size = np.array([dice.uniform(2.5, 9), dice.uniform(2.5, 7), dice.uniform(2.3, 3.5)])
    source, ear = (size * dice.uniform(0.15, 0.85, 3) for _ in range(2))
    surface = 2 * (size[0] * size[1] + size[1] * size[2] + size[0] * size[2])
    absorbed = min(0.95, 0.161 * size.prod() / (surface * decay))
    reach = np.arange(-6, 7)
    order = np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), -1).reshape(-1, 3)
    flips = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), -1).reshape(-1, 3)
    images = (1 - 2 * flips)[None] * source + 2 * order[:, None] * size
    distance = np.linalg.norm(images - ear, axis=-1).ravel()
    bounces = np.abs(2 * order[:, None] - flips[None]).sum(axis=-1).ravel()
    gain = (1 - absorbed) ** (bounces / 2) / np.maximum(distance, 0.3)
    delay = ((distance - distance.min()) / SPEED * RATE).astype(int)
    length = int(EARLY * RATE)
    near = delay < length
    response = np.zeros(length)
    np.add.at(response, delay[near], gain[near])
    return response


def microphone(sound: Sound, dice: Dice) -> Sound:
    """Pass `sound`, within ±1, through a camera's microphone: a band, noise, and for each second one G.711."""
    frequency = np.fft.rfftfreq(TAPS, 1 / RATE)
    is_telephone = dice.random() < 0.5
    high = dice.uniform(3650, 3800) if is_telephone else dice.uniform(4500, 7800)
    low = dice.uniform(60, 300)
    resonance = 1 + dice.uniform(0, 1.5) / (1 + ((frequency - dice.uniform(800, 5000)) / dice.uniform(200, 900)) ** 2)
    gain = resonance / np.sqrt((1 + (low / np.maximum(frequency, 1)) ** 4) * (1 + (frequency / high) ** 24))
    response = np.roll(np.fft.irfft(gain), TAPS // 2) * np.hanning(TAPS)  # without phase, so half of it is before
    heard = _filtered(np.pad(sound, (0, TAPS // 2)), response)[TAPS // 2 :]
    heard += np.float32(10 ** (dice.uniform(-85, -65) / 20)) * dice.standard_normal(len(sound), np.float32)
    heard = np.clip(heard, -1, 1)
    if is_telephone:  # 255 steps by µ-law
        coded = np.round(127 * np.sign(heard) * np.log1p(255 * np.abs(heard)) / np.log(256)) / 127
        heard = np.sign(coded) * (256 ** np.abs(coded) - 1) / 255
    return heard.astype(np.float32, copy=False)


def speech(seconds: float, dice: Dice) -> Sound:
    """Synthesise one to four people who talk, and in some pieces a child that cries."""
    count = int(dice.integers(1, 5))
    out = np.sum([_voice(seconds, dice) * dice.uniform(0.3, 1) for _ in range(count)], axis=0)
    if dice.random() < 0.3:
        out += dice.uniform(0.5, 1.5) * _crying(seconds, dice)
    return _normal(out + 0.01 * dice.standard_normal(len(out)))


def _voice(seconds: float, dice: Dice) -> Wave:
    """Pulses and hisses in syllables, shaped by the formants of vowels."""
    count = int(seconds / 0.08)
    spans = dice.gamma(6, 0.03, count)
    ends = np.cumsum(spans)
    ends, spans = ends[ends < seconds], spans[ends < seconds]
    frames = int(seconds * RATE / HOP) + 1
    at = np.arange(frames) * HOP / RATE
    syllable = np.minimum(np.searchsorted(ends, at), len(ends) - 1)
    kind = dice.choice(3, len(ends), p=[0.62, 0.2, 0.18])[syllable]  # a vowel, a hiss, a pause
    size = dice.uniform(0.9, 1.25)
    targets = VOWELS[dice.integers(0, len(VOWELS), len(ends))] * size
    middle = ends - spans / 2
    frequency = np.fft.rfftfreq(WINDOW, 1 / RATE).astype(np.float32)
    shape = np.zeros((frames, len(frequency)), np.float32)
    for formant, width, gain in zip(range(4), (60, 90, 130, 200), (1, 0.5, 0.25, 0.12), strict=True):
        center = np.interp(at, middle, targets[:, formant]) if formant < 3 else np.full(frames, 3500 * size)
        shape += gain / (1 + ((frequency[None] - center[:, None].astype(np.float32)) / width) ** 2)
    loud = (
        np.clip(1.3 - np.abs(at - middle[syllable]) / spans[syllable] * 1.4, 0, 1)
        * dice.uniform(0.5, 1, len(ends))[syllable]
    )
    shape *= (loud * (kind == 0))[:, None].astype(np.float32)
    center = dice.uniform(2500, 6500, len(ends))[syllable]
    hiss = np.exp(-(((frequency[None] - center[:, None].astype(np.float32)) / 1500) ** 2))
    hiss *= (loud * (kind == 1))[:, None].astype(np.float32)
    base = dice.uniform(85, 260)
    pitch = base * np.exp(np.interp(at, middle, 0.12 * dice.standard_normal(len(ends))))
    samples = np.arange(frames * HOP) / RATE
    turns = np.cumsum(np.interp(samples, at, pitch)) / RATE
    pulses: Wave = np.diff(np.floor(turns), prepend=0) * np.sqrt(RATE / base)
    noise = dice.standard_normal(len(samples), np.float32)
    return (_shaped(pulses + 0.05 * noise, shape) + 0.3 * _shaped(noise, hiss))[: int(seconds * RATE)]


def _crying(seconds: float, dice: Dice) -> Wave:
    """A small child: cries of about a second near 500 Hz, with a breath between."""
    time = np.arange(int(seconds * RATE)) / RATE
    starts = np.cumsum(dice.uniform(0.7, 1.6, int(seconds / 0.7) + 1))
    starts = starts[starts < seconds - 2]
    out = np.zeros(len(time))
    base = dice.uniform(400, 600)
    for start in starts:
        if dice.random() < 0.15:
            continue
        length = int(dice.uniform(0.4, 1.0) * RATE)
        part = np.arange(length) / length
        tone = base * (1 + dice.uniform(0.02, 0.2) * np.sin(np.pi * part)) * (1 + 0.01 * np.sin(40 * part))
        phase = 2 * np.pi * np.cumsum(tone) / RATE
        cry = sum(np.sin(n * phase) / n ** dice.uniform(0.5, 1.2) for n in range(1, 9)) * np.sin(np.pi * part) ** 0.5
        _add(out, int(start * RATE), np.asarray(cry))
    return out / (np.std(out) + 1e-9)


def music(seconds: float, dice: Dice) -> Sound:
    """Synthesise music by frequency modulation: riffs that repeat, long tones, a lead up to 4 kHz, drums."""
    out = np.zeros(int(seconds * RATE) + 8 * RATE)
    step = 15 / dice.uniform(60, 180)  # seconds of a sixteenth
    scale = np.array(((0, 3, 5, 7, 10), (0, 2, 4, 7, 9), (0, 2, 3, 5, 7, 8, 11))[dice.integers(0, 3)])
    root, at = int(dice.integers(0, 12)), 0.0
    while at < seconds:
        bar = np.zeros(int(16 * step * RATE) + 2 * RATE)
        for octave, density, level in ((2, 0.3, 1.0), (4, 0.4, 0.7), (6, 0.35, 0.5), (7, 0.15, 0.4)):
            if dice.random() < 0.25:
                continue
            ratio, depth = float(dice.choice([0.5, 1, 1, 2, 3.5])), dice.uniform(0, 4)
            length = float(dice.choice([0.5, 1, 2, 4]))
            for number in np.flatnonzero(dice.random(16) < density):
                pitch = 440 * 2 ** ((root + int(dice.choice(scale)) + 12 * octave - 57) / 12)
                _add(bar, int(number * step * RATE), level * _modulated(pitch, length * step, ratio, depth))
        for number in np.flatnonzero(dice.random(16) < 0.4):
            burst = dice.standard_normal(RATE // 8) * np.exp(-np.arange(RATE // 8) / RATE * dice.uniform(20, 120))
            _add(bar, int(number * step * RATE), 0.5 * np.diff(burst, prepend=0))
        for _ in range(int(dice.integers(2, 9))):
            _add(out, int(at * RATE), bar)
            at += 16 * step
    return _normal(out[: int(seconds * RATE)] + 0.002 * dice.standard_normal(int(seconds * RATE)))


def _modulated(pitch: float, seconds: float, ratio: float, depth: float) -> Wave:
    time = np.arange(max(200, int(seconds * RATE))) / RATE
    index = depth * np.exp(-3 * time / seconds) if pitch < 1000 else 0.2 * depth
    wave: Wave = np.sin(2 * np.pi * pitch * time + index * np.sin(2 * np.pi * pitch * ratio * time))
    wave *= np.minimum(1, time / 0.008) * np.minimum(1, (time[-1] - time) / 0.02)
    return wave


def machine(seconds: float, dice: Dice) -> Sound:
    """Synthesise a machine: a fan's or saw's noise, a motor, squeaks and knocks in time, and starts and stops."""
    frames = int(seconds * RATE / HOP) + 1
    at = np.arange(frames) * HOP / RATE
    frequency = np.fft.rfftfreq(WINDOW, 1 / RATE)
    tilt = (np.maximum(frequency, 60) / 300) ** -dice.uniform(0.2, 1.2)
    bump = 1 + dice.uniform(0, 6) / (1 + ((frequency - dice.uniform(300, 6000)) / dice.uniform(40, 600)) ** 2)
    swing = 1 + dice.uniform(0, 0.9) * np.sin(2 * np.pi * at / dice.uniform(0.2, 8))
    out = _shaped(dice.standard_normal(frames * HOP), (tilt * bump)[None] * swing[:, None])
    out = out / np.std(out)
    time = np.arange(frames * HOP) / RATE
    period = dice.uniform(4, 60)
    runs = (time % period) < period * dice.uniform(0.3, 1.0)
    speed = dice.uniform(20, 400) * (1 + 0.01 * np.sin(2 * np.pi * time / dice.uniform(2, 30)))
    turns = np.cumsum(speed) / RATE
    motor = np.asarray(sum(np.sin(2 * np.pi * n * turns) / n ** dice.uniform(0, 1.5) for n in range(1, 13)))
    out = out * dice.uniform(0.3, 1) + motor * runs * dice.uniform(0, 0.6)
    for _ in range(int(dice.integers(0, 4))):
        every, length = dice.choice([0.25, 0.5, 1.0, 2.0, 4.0]) * dice.uniform(0.9, 1.1), dice.uniform(0.02, 0.5)
        tone, decay = dice.uniform(300, 5000), dice.uniform(0, 30)
        part = np.arange(int(length * RATE)) / RATE
        knock = np.sin(2 * np.pi * tone * part * (1 + dice.uniform(-0.1, 0.1) * part)) * np.exp(-decay * part)
        knock = (knock + dice.uniform(0, 0.7) * dice.standard_normal(len(part))) * np.minimum(1, part / 0.003)
        level = dice.uniform(0.5, 4)
        for start in np.arange(0, seconds, every):
            _add(out, int((start + dice.normal(0, 0.01)) * RATE), level * knock)
    return _normal(out[: int(seconds * RATE)])


def beeper(seconds: float, dice: Dice) -> Sound:
    """Synthesise a device that beeps, for a minute each, near the tones of alarms in most cases."""
    parts = []
    for _ in range(max(1, round(seconds / 60))):
        tone = dice.choice([dice.uniform(2750, 3450), dice.uniform(460, 580), dice.uniform(400, 4200)])
        sound = beeps(str(dice.choice(list(BEEPS))), 60.0, tone, stretch=dice.uniform(0.97, 1.03))
        noise = NOISES["speech" if dice.random() < 0.5 else "machine"](60.0, dice)
        parts.append(dice.uniform(0.5, 5) * sound + noise * dice.choice([0.01, 0.1, 0.5]))
    return _normal(np.concatenate(parts)[: int(seconds * RATE)])


def beeps(device: str, seconds: float, tone: float, *, stretch: float = 1.0) -> Wave:
    """Synthesise `seconds` of a device of BEEPS, amplitude 1; `stretch` lengthens its times."""
    group = [(on * stretch, off * stretch) for on, off in BEEPS[device]]
    envelope = _envelope(group, seconds, attack=0.003, release=0.005)
    phase = 2 * np.pi * tone * np.arange(len(envelope)) / RATE
    return (np.sin(phase) + 0.3 * np.sin(3 * phase)) * envelope


NOISES: dict[str, Callable[[float, Dice], Sound]] = {
    "speech": speech, "music": music, "machine": machine, "beeper": beeper,
}  # fmt: skip


def _envelope(group: Sequence[tuple[float, float]], seconds: float, *, attack: float, release: float) -> Wave:
    """Amplitudes of a repeated group of pulses, exponential in both directions, for `seconds`."""
    on = np.zeros(int(seconds * RATE))
    at = 0.0
    while at < seconds:
        for length, gap in group:
            on[int(at * RATE) : int((at + length) * RATE)] = 1
            at += length + gap
    size = int(max(attack, release) * 3 * RATE) + 1
    rise = 1 - np.exp(-np.arange(size) / (attack * RATE))
    fall = np.exp(-np.arange(size) / (release * RATE))
    envelope = on.copy()
    edges = np.diff(on, prepend=0, append=0)
    for start in np.flatnonzero(edges > 0):
        part = envelope[start : start + size]
        part *= rise[: len(part)]
    for end in np.flatnonzero(edges < 0):
        part = envelope[end : end + size]
        part[:] = np.maximum(part, fall[: len(part)] * (part == 0))
    return envelope


def _shaped(wave: NDArray[Any], gains: NDArray[Any]) -> Wave:
    """Multiply the spectrum of each frame by `gains` (frames, bins)."""
    window = np.sqrt(np.hanning(WINDOW + 1)[:-1]).astype(np.float32)
    padded = np.pad(wave.astype(np.float32), (0, WINDOW))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][: len(gains)]
    parts = np.fft.irfft(np.fft.rfft(frames * window, axis=1) * gains.astype(np.float32), axis=1) * window
    out = np.zeros(len(gains) * HOP + WINDOW)
    for quarter in range(WINDOW // HOP):
        piece = parts[:, quarter * HOP : (quarter + 1) * HOP].reshape(-1)
        out[quarter * HOP : quarter * HOP + len(piece)] += piece
    return out[: len(wave)] / 2


def _filtered(sound: Sound, response: Wave) -> Sound:
    """Convolve, block by block: transforms that fit into a processor's cache take a fifth of the time of a long one."""
    size = max(BLOCK, 4 * _size(len(response)))
    step = size - len(response) + 1
    spectrum = np.fft.rfft(response.astype(np.float32), size)
    out = np.zeros(len(sound) + size, np.float32)
    for start in range(0, len(sound), step):
        part = np.fft.rfft(sound[start : start + step].astype(np.float32, copy=False), size)
        out[start : start + size] += np.fft.irfft(part * spectrum, size)
    return out[: len(sound)]


def _size(length: int) -> int:
    return 1 << (length - 1).bit_length()


def _normal(sound: Wave, where: NDArray[np.bool_] | None = None) -> Sound:
    """Scale to RMS 1, measured `where` that is true."""
    part = sound if where is None else sound[where]
    scaled: Sound = (sound / (np.sqrt(np.mean(np.square(part))) + 1e-12)).astype(np.float32)
    return scaled


def _add(out: Wave, start: int, part: Wave) -> None:
    start = max(0, start)
    end = min(len(out), start + len(part))
    if end > start:
        out[start:end] += part[: end - start]
