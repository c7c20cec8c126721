"""Invent an MLX90640: a calibration EEPROM from a seed, and the raw words that it measures of a scene.

`measure` is the inverse of the calibration in `detect/thermal`: calibrating its words gives the scene's temperatures
again, apart from rounding. The calibration corrects its first estimate once, so its inverse is found by iteration.
"""

import random

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.mlx90640 import (
    COLUMNS,
    CP_0,
    CP_1,
    EEPROM_WORDS,
    EMISSIVITY,
    FRAME_WORDS,
    GAIN,
    KELVIN,
    PIXELS,
    PTAT,
    REFLECTED_BELOW_AMBIENT,
    ROWS,
    VBE,
    VDD,
    Auxiliary,
    Calibration,
)

CHESS_18_BIT = 0x1901  # control register: chess pattern, 18 bit, 2 Hz
VBE_WORD = 0x4CF0
HOTTEST = 550.0  # °C; specified up to 300, and the calibration cannot be inverted far beyond
Floats = NDArray[np.float64]


def invent_eeprom(seed: int) -> NDArray[np.uint16]:
    """Invent 832 words as a factory might write them; the same for the same seed."""
    dice = random.Random(seed)
    words = np.zeros(EEPROM_WORDS, np.int64)
    words[7:10] = [dice.getrandbits(16) for _ in range(3)]  # the chip's serial number
    words[10] = 0x048D
    words[12] = CHESS_18_BIT
    words[16] = 0x4210
    words[17] = dice.randint(-80, -50)
    words[18:24] = [_pack([dice.randint(-1, 2) for _ in range(4)]) for _ in range(6)]
    words[24:32] = [_pack([dice.randint(-2, 3) for _ in range(4)]) for _ in range(8)]
    words[32] = 0x79A6
    words[33] = dice.randint(11800, 12600)
    words[34:40] = [_pack([_bulge(4 * i + j, ROWS) for j in range(4)]) for i in range(6)]
    words[40:48] = [_pack([_bulge(4 * i + j, COLUMNS) for j in range(4)]) for i in range(8)]
    words[48] = dice.randint(5600, 6300)
    words[49] = dice.randint(12150, 12250)
    words[50] = (dice.randint(9, 13) << 10) | dice.randint(330, 345)
    words[51] = (dice.randint(0x9E, 0xA2) << 8) | dice.randint(0x70, 0x80)
    words[52] = 0x4333
    words[53] = 0x09CA
    words[54] = (dice.randint(0x30, 0x38) << 8) | dice.randint(0x30, 0x38)
    words[55] = (dice.randint(0x2E, 0x34) << 8) | dice.randint(0x2E, 0x34)
    words[56] = 0x2352
    words[57] = 0x0C74
    words[58] = (dice.randint(0, 4) << 10) | (dice.randint(-70, -60) & 0x3FF)
    words[59] = 0x0320
    words[60] = 0xEC00 | dice.choice([0, 0, 24])
    words[61], words[62], words[63] = 0xF300, 0x9EC5, 0x2558
    for pixel in range(PIXELS):
        offset, alpha, kta = dice.randint(-8, 8), round(dice.gauss(0, 4)), dice.randint(-2, 2)
        word = (offset & 0x3F) << 10 | (max(-31, min(alpha, 31)) & 0x3F) << 4 | (kta & 7) << 1
        words[64 + pixel] = word or 0x0010  # a zero would mark the pixel as broken
    return (words & 0xFFFF).astype(np.uint16)


def _pack(values: list[int]) -> int:
    return sum((value & 15) << (4 * i) for i, value in enumerate(values))


def _bulge(index: int, count: int) -> int:
    """The sensitivity, which falls from the middle of the picture to its border."""
    return round(3 - 7 * (2 * (index + 0.5) / count - 1) ** 2)


def raw_counts(
    calibration: Calibration,
    celsius: Floats,
    auxiliary: Auxiliary,
    *,
    emissivity: float = EMISSIVITY,
    reflected: float | None = None,
) -> Floats:
    """The ADC counts (n, 768), unrounded, that `calibration.temperatures` converts to `celsius` (n, 24, 32).

    Assumes the calibrated reading pattern, and compensation pixels without signal, as `measure` writes them.
    """
    d_ta, d_v = auxiliary.ambient[:, None] - 25, auxiliary.vdd[:, None] - 3.3
    ambient_4 = (auxiliary.ambient[:, None] + KELVIN) ** 4
    mirrored = auxiliary.ambient[:, None] - REFLECTED_BELOW_AMBIENT if reflected is None else np.float64(reflected)
    reflected_4 = (mirrored + KELVIN) ** 4
    background = reflected_4 - (reflected_4 - ambient_4) / emissivity
    target = np.asarray(celsius, np.float64).reshape(-1, PIXELS)
    radiated = (target + KELVIN) ** 4 - background
    slope = calibration.ks_to[1]
    estimate = target
    # The calibration corrects its first estimate once. Its inverse needs iteration to find that estimate.
    for _ in range(16):
        signal = radiated * _sensitivity(calibration, estimate)
        first = signal / (1 - slope * KELVIN + slope * np.sqrt(np.sqrt(signal + background))) + background
        before, estimate = estimate, np.sqrt(np.sqrt(first)) - KELVIN
        if np.abs(estimate - before).max() < 1e-3:
            break
    signal = radiated * _sensitivity(calibration, estimate)
    signal = signal * calibration.alpha * emissivity * (1 + calibration.ks_ta * d_ta)
    drift = (1 + calibration.kta * d_ta) * (1 + calibration.kv * d_v)
    counts: Floats = (signal + calibration.offset * drift) / auxiliary.gain[:, None]
    return counts


def _sensitivity(calibration: Calibration, celsius: Floats) -> Floats:
    """Sensitivity relative to the basic range; from the datasheet [11.2.2.9.1]."""
    ks, corners = calibration.ks_to, calibration.corners
    second = 1 + ks[1] * corners[2]
    third = second * (1 + ks[2] * (corners[3] - corners[2]))
    return np.select(
        [celsius < corners[1], celsius < corners[2], celsius < corners[3]],
        [
            (1 + ks[0] * (celsius - corners[0])) / (1 + ks[0] * 40),
            1 + ks[1] * (celsius - corners[1]),
            second * (1 + ks[2] * (celsius - corners[2])),
        ],
        third * (1 + ks[3] * (celsius - corners[3])),
    )


def measure(
    calibration: Calibration,
    celsius: NDArray[np.float64],
    *,
    ambient: float = 30.0,
    vdd: float = 3.29,
    gain: float = 1.0,
    subpage: int = 0,
    bits: int = 18,
) -> NDArray[np.uint16]:
    """The 834 words of a frame of `celsius` (24, 32), from -40 °C to `HOTTEST`, converted with 16 to 19 `bits`."""
    words = np.zeros(FRAME_WORDS, np.int64)
    words[FRAME_WORDS - 2 :] = (CHESS_18_BIT & ~0x0C00) | (bits - 16) << 10, subpage
    scale = 2.0 ** (bits - 16 - calibration.resolution)  # counts per count at the calibrated resolution
    art = (1 + calibration.kv_ptat * (vdd - 3.3)) * ((ambient - 25) * calibration.kt_ptat + calibration.v_ptat_25)
    words[VBE] = VBE_WORD
    words[PTAT] = round(art * VBE_WORD / (2**18 - art * calibration.alpha_ptat))
    words[VDD] = round(((vdd - 3.3) * calibration.k_vdd + calibration.vdd_25) * scale)
    words[GAIN] = round(calibration.gain / gain * scale)
    drift = (1 + calibration.cp_kta * (ambient - 25)) * (1 + calibration.cp_kv * (vdd - 3.3))
    words[CP_0], words[CP_1] = (round(offset * drift / gain * scale) for offset in calibration.cp_offset)
    frame = (words & 0xFFFF).astype(np.uint16)
    counts = raw_counts(calibration, np.clip(celsius, -40, HOTTEST), calibration.auxiliary(frame[None]))[0]
    frame[:PIXELS] = np.clip(np.round(counts), -32768, 32767).astype(np.int16).view(np.uint16)
    return frame
