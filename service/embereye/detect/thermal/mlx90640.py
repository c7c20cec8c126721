"""Conversion of an MLX90640's raw words to °C with the device's calibration EEPROM.

Follows the Melexis MLX90640 datasheet (3901090640, revision 12), section 11, "Calculating object temperature"; numbers
in brackets are its subsections. The work per pixel is a matrix product and two fourth roots, for a whole batch at once.

`Calibration.from_eeprom` computes once everything that does not depend on a frame. The frame's own values (`Auxiliary`)
give a scale and nine weights. A pixel's signal is its scaled word minus the weighted sum of nine fixed pictures. The
fourth roots convert it to kelvins, and bad pixels get the median of their neighbours. A frame with damaged auxiliary
words gives NaN, because its temperatures would be invented. Pure.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.eeprom import implausible_words

ROWS, COLUMNS = 24, 32
PIXELS = ROWS * COLUMNS
EEPROM_WORDS = 832
FRAME_WORDS = 834  # 768 pixels, 64 auxiliary words, the control register, the subpage number
KELVIN = 273.15
EMISSIVITY = 0.95
REFLECTED_BELOW_AMBIENT = 8.0  # K; the maker's recommendation for a sensor in the open [9.4]

# Positions of the auxiliary words in a frame (RAM address less 0x0400).
VBE, CP_0, GAIN, PTAT, CP_1, VDD, CONTROL, SUBPAGE = 768, 776, 778, 800, 808, 810, 832, 833
NOT_MEASURED = 0x7FFF  # in RAM before the first conversion
NO_CONTROL = 1  # sent by some devices in place of the control register

# Outside these ranges a frame's auxiliary words are damaged, and temperatures would be invented.
VDD_RANGE = (2.5, 4.2)  # V; specified: 3.0 to 3.6
AMBIENT_RANGE = (-50.0, 150.0)  # °C; specified: -40 to 85, but a burning room is hotter
MARKED_PIXELS_LIMIT = PIXELS // 10
CHUNK = 64  # frames calculated at a time, so that intermediate results stay in the CPU's cache

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
_Ranges = tuple[float, float, float, float]

_ROW, _COLUMN = np.divmod(np.arange(PIXELS), COLUMNS)
_INTERLEAVED = _ROW % 2  # the subpage of each pixel in interleaved mode
_CHESS = (_ROW + _COLUMN) % 2  # and in chess mode
# +1, 0 or -1 for the pixels that interleaved mode shifts [11.2.2.5.2], "conversion pattern".
_PIXEL = np.arange(PIXELS)
_CONVERSION = ((_PIXEL + 2) // 4 - (_PIXEL + 3) // 4 + (_PIXEL + 1) // 4 - _PIXEL // 4) * (1 - 2 * _INTERLEAVED)


def words_of(data: bytes | bytearray | memoryview) -> NDArray[np.uint16]:
    """Convert the big-endian 16-bit words in `data` to native ones."""
    return np.frombuffer(data, ">u2").astype(np.uint16)


def counts_scale(frame: NDArray[np.uint16]) -> float:
    """The counts of a frame per count at the usual resolution of 18 bits: 0.25 for 16 bits to 2 for 19.

    1 if the frame has no control register: the short form of 768 words, and devices that send 1 in its place.
    """
    control = int(frame[CONTROL]) if len(frame) > CONTROL else NO_CONTROL
    return 1.0 if control == NO_CONTROL else 2.0 ** (((control >> 10) & 3) - 2)


def _signed(value: NDArray[np.int64] | int, bits: int) -> NDArray[np.int64]:
    """Read the lowest `bits` bits of `value` as a two's complement number."""
    low = np.asarray(value, np.int64) & ((1 << bits) - 1)
    return np.where(low >= 1 << (bits - 1), low - (1 << bits), low)


def _nibbles(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split each word into four signed 4-bit numbers, lowest first."""
    return _signed((words[:, None] >> np.array([0, 4, 8, 12])).ravel(), 4)


@dataclass(frozen=True)
class Auxiliary:
    """The sensor's own values in n frames; every field has shape (n,)."""

    vdd: Floats  # V, supply
    ambient: Floats  # °C, of the chip: a few degrees above the room
    gain: Floats  # 1, calibrated over measured; a frame of fewer bits than calibrated has a larger one
    gain_drift: Floats  # 1, the same without the effect of the resolution: near 1
    chess: NDArray[np.bool_]  # chess pattern, else interleaved
    valid: NDArray[np.bool_]  # False: damaged words or nothing measured yet, so temperatures are NaN


class Scalars(NamedTuple):
    """The scalar parts of a calibration: numbers for one device, arrays (n,) for n frames of several devices."""

    k_vdd: Any
    vdd_25: Any
    kv_ptat: Any
    kt_ptat: Any
    v_ptat_25: Any
    alpha_ptat: Any
    gain: Any
    tgc: Any
    ks_ta: Any
    resolution: Any
    control: Any
    chess: Any
    cp_offset_0: Any
    cp_offset_1: Any
    cp_kta: Any
    cp_kv: Any
    pattern_correction_0: Any


@dataclass(frozen=True)
class Calibration:
    """One device's calibration; `temperatures` applies it."""

    k_vdd: float
    vdd_25: float
    kv_ptat: float
    kt_ptat: float
    v_ptat_25: float
    alpha_ptat: float
    gain: float
    tgc: float
    ks_ta: float
    resolution: int  # bits minus 16 that the device was calibrated at
    control: int  # control register at power-on: refresh rate, resolution, reading pattern
    chess: bool  # calibrated in chess pattern
    ks_to: _Ranges  # sensitivity slope in each temperature range
    corners: _Ranges  # °C, start of each temperature range
    cp_offset: tuple[float, float]  # compensation pixel of each subpage
    cp_alpha: tuple[float, float]
    cp_kta: float
    cp_kv: float
    pattern_correction: tuple[float, float, float]  # IL_CHESS_C1, C2, C3
    alpha: Floats  # (768,) sensitivity
    offset: Floats  # (768,)
    kta: Floats  # (768,)
    kv: Floats  # (768,)
    bad_pixels: tuple[int, ...]  # marked in the EEPROM as broken or outliers
    implausible: tuple[str, ...]  # words that no working device has
    _basis: Floats32  # (9, 768), see _pixel_basis
    _inverse_alpha: Floats32  # (768,)
    _neighbours: tuple[tuple[int, NDArray[np.int64]], ...]  # bad pixel, its good neighbours

    @classmethod
    def from_eeprom(cls, words: bytes | bytearray | memoryview | NDArray[np.uint16] | Sequence[int]) -> "Calibration":
        """Read the 832 EEPROM words, as big-endian bytes or numbers. Some devices add 2 words, which are ignored.

        Raises ValueError with the reason if they are invalid.
        """
        e = _eeprom_words(words)
        marked = _marked_pixels(e)
        k_vdd = 32.0 * int(_signed(int(e[51]) >> 8, 8))
        kt_ptat = int(_signed(int(e[50]), 10)) / 8
        gain = float(_signed(int(e[48]), 16))
        for name, word, value in (("gain", 48, gain), ("supply slope", 51, k_vdd), ("ambient slope", 50, kt_ptat)):
            if value == 0:
                raise ValueError(f"EEPROM: word {word} makes the {name} zero, so temperatures cannot be calculated")

        tgc = int(_signed(int(e[60]), 8)) / 32
        cp_alpha = _compensation_alpha(e)
        alpha = _sensitivity(e, tgc * sum(cp_alpha) / 2, marked)
        offset, kta, kv = _offset(e), _kta(e), _kv(e)

        cp_offset = int(_signed(int(e[58]), 10))
        kta_scale, kv_scale = 2.0 ** (((e[56] >> 4) & 15) + 8), 2.0 ** ((e[56] >> 8) & 15)
        ks_to, corners = _temperature_ranges(e)
        inverse_alpha = 1 / alpha
        return cls(
            k_vdd=k_vdd,
            vdd_25=((int(e[51]) & 0xFF) - 256) * 32.0 - 8192,
            kv_ptat=int(_signed(int(e[50]) >> 10, 6)) / 4096,
            kt_ptat=kt_ptat,
            v_ptat_25=float(_signed(int(e[49]), 16)),
            alpha_ptat=(int(e[16]) >> 12) / 4 + 8,
            gain=gain,
            tgc=tgc,
            ks_ta=int(_signed(int(e[60]) >> 8, 8)) / 8192,
            resolution=(int(e[56]) >> 12) & 3,
            control=int(e[12]),
            chess=not e[10] & 0x0800,
            ks_to=ks_to,
            corners=corners,
            cp_offset=(float(cp_offset), float(cp_offset + _signed(int(e[58]) >> 10, 6))),
            cp_alpha=cp_alpha,
            cp_kta=float(_signed(int(e[59]), 8) / kta_scale),
            cp_kv=float(_signed(int(e[59]) >> 8, 8) / kv_scale),
            pattern_correction=_pattern_correction(e),
            alpha=alpha,
            offset=offset,
            kta=kta,
            kv=kv,
            bad_pixels=tuple(int(pixel) for pixel in marked),
            implausible=implausible_words(e.tolist()),
            _basis=_pixel_basis(inverse_alpha, offset, kta, kv, e),
            _inverse_alpha=inverse_alpha.astype(np.float32),
            _neighbours=_good_neighbours({int(pixel) for pixel in marked}),
        )

    def replacing(self, deviating: Collection[int]) -> "Calibration":
        """Return a copy that also replaces `deviating` pixels, in addition to those marked in the EEPROM."""
        return replace(self, _neighbours=_good_neighbours({*self.bad_pixels, *deviating}))

    @cached_property
    def scalars(self) -> Scalars:
        """The scalar parts of the calibration."""
        same = {name: getattr(self, name) for name in Scalars._fields if hasattr(self, name)}
        return Scalars(
            **same,
            cp_offset_0=self.cp_offset[0],
            cp_offset_1=self.cp_offset[1],
            pattern_correction_0=self.pattern_correction[0],
        )

    def auxiliary(self, frames: NDArray[np.uint16]) -> Auxiliary:
        """Compute supply, ambient temperature, gain and pattern of `frames` (n, 834) [11.2.2.2 to 11.2.2.4].

        Some devices send 1 instead of the control register, which would mean a supply of 15 V. If the register gives an
        impossible supply, the one that the EEPROM loads at power-on is used.
        """
        return auxiliary_of(self.scalars, _checked(frames))

    def temperatures(
        self,
        frames: NDArray[np.uint16],
        emissivity: float = EMISSIVITY,
        reflected: float | None = None,
        auxiliary: Auxiliary | None = None,
    ) -> Floats32:
        """Compute °C of every pixel of `frames` (n, 834), as (n, 24, 32); NaN where a frame or row was not measured.

        `reflected` is the temperature that the scene reflects, in °C; None: 8 K below the chip's. Both subpages of a
        frame are calculated, each with its own compensation pixel. Pass `auxiliary` if it is known already.
        """
        if not 0 < emissivity <= 1:
            raise ValueError(f"emissivity {emissivity:g}: not above 0 and at most 1")
        frames = _checked(frames)
        known = self.auxiliary(frames) if auxiliary is None else auxiliary
        celsius = np.empty((len(frames), PIXELS), np.float32)
        coefficients, scale, background = coefficients_of(self.scalars, frames, known, emissivity, reflected)
        slope, corners = np.float32(self.ks_to[1]), self.corners
        for start in range(0, len(frames), CHUNK):
            part = slice(start, start + CHUNK)
            signal = self.compensated(frames[part, :PIXELS], coefficients[part], scale[part])
            root, outside = object_temperatures(signal, background[part], slope, corners[1], corners[2])
            if outside is not None:
                root[outside] = self.extended(signal[outside], background[part][outside], root[outside])
            np.subtract(root, np.float32(KELVIN), out=celsius[part])
        mask_unmeasured(frames, known, celsius)
        self.mend(celsius)
        return celsius.reshape(-1, ROWS, COLUMNS)

    def compensated(self, pixels: NDArray[np.uint16], coefficients: Floats32, scale: Floats32) -> Floats32:
        """The pixels' (n, 768) signal from the scene, over their sensitivities [11.2.2.5 to 11.2.2.8]."""
        signal = pixels.astype(np.uint16, copy=False).view(np.int16).astype(np.float32)
        signal *= self._inverse_alpha
        signal *= scale
        signal -= coefficients @ self._basis
        return signal

    def extended(self, signal: Floats32, background: Floats32, kelvin: Floats32) -> Floats32:
        """Refine a first estimate in K outside the basic temperature range [11.2.2.9.1]."""
        with np.errstate(invalid="ignore"):
            root = signal / self._extended_sensitivity(kelvin)
            root += background
            np.sqrt(root, out=root)
            np.sqrt(root, out=root)
        return root

    def mend(self, celsius: Floats32) -> None:
        """Replace the bad pixels of frames (n, 768) by the median of their good neighbours."""
        for pixel, neighbours in self._neighbours:
            celsius[:, pixel] = np.median(celsius[:, neighbours], axis=1) if len(neighbours) else np.nan

    def _extended_sensitivity(self, kelvin: Floats32) -> Floats32:
        """Relative sensitivity outside the basic temperature range [11.2.2.9.1]."""
        ks, corners = self.ks_to, self.corners
        second = 1 + ks[1] * corners[2]
        at_corner = (1 / (1 + ks[0] * 40), 1.0, second, second * (1 + ks[2] * (corners[3] - corners[2])))
        band = np.searchsorted(np.array(corners[1:]) + KELVIN, kelvin, side="right")
        slope = np.array([a * k for a, k in zip(at_corner, ks, strict=True)], np.float32)[band]
        start = np.array(
            [a * (1 - k * (c + KELVIN)) for a, k, c in zip(at_corner, ks, corners, strict=True)], np.float32
        )[band]
        # Far above the last corner the straight line would cross zero, and a blaze would read as cold.
        return np.maximum(start + slope * kelvin, np.float32(0.1))


def auxiliary_of(device: Scalars, frames: NDArray[np.uint16]) -> Auxiliary:
    """Compute `Calibration.auxiliary` for frames (n, 834) of different calibrations."""
    raw = frames[:, [VBE, CP_0, GAIN, PTAT, CP_1, VDD]].astype(np.uint16).view(np.int16).astype(np.float64)
    vbe, _, gain, ptat, _, vdd_pixel = raw.T
    control = frames[:, CONTROL].astype(np.int64)
    vdd = _supply(device, vdd_pixel, control)
    unusable = (vdd < VDD_RANGE[0]) | (vdd > VDD_RANGE[1])
    control = np.where(unusable, device.control, control)
    vdd = np.where(unusable, _supply(device, vdd_pixel, control), vdd)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        art = ptat / (ptat * device.alpha_ptat + vbe) * 2**18
        ambient = (art / (1 + device.kv_ptat * (vdd - 3.3)) - device.v_ptat_25) / device.kt_ptat + 25
        ratio = device.gain / gain
    drift = ratio / _resolution_ratio(device, control)
    valid = (
        (vdd >= VDD_RANGE[0])
        & (vdd <= VDD_RANGE[1])
        & (ambient >= AMBIENT_RANGE[0])
        & (ambient <= AMBIENT_RANGE[1])
        & (drift > 0.5)  # the gain drifts by a few per cent
        & (drift < 2)
        & (raw != NOT_MEASURED).all(axis=1)
    )
    return Auxiliary(vdd, ambient, ratio, drift, (control & 0x1000).astype(bool), valid)


def _supply(device: Scalars, vdd_pixel: Floats, control: NDArray[np.int64]) -> Any:
    return (_resolution_ratio(device, control) * vdd_pixel - device.vdd_25) / device.k_vdd + 3.3


def _resolution_ratio(device: Scalars, control: NDArray[np.int64]) -> Any:
    """The factor between counts at the calibrated resolution and at that of each frame, 16 to 19 bits [11.2.2.1]."""
    return 2.0**device.resolution / 2.0 ** ((control >> 10) & 3)


def coefficients_of(
    device: Scalars, frames: NDArray[np.uint16], known: Auxiliary, emissivity: Any, reflected: float | None = None
) -> tuple[Floats32, Floats32, Floats32]:
    """Compute per frame: weights of `_basis` (n, 9), scale of the signal (n, 1), background in K^4 (n, 1)."""
    ok = known.valid
    d_ta = np.where(ok, known.ambient, 25.0) - 25
    d_v = np.where(ok, known.vdd, 3.3) - 3.3
    gain = np.where(ok, known.gain, 1.0)
    foreign = known.chess != device.chess
    cp = frames[:, [CP_0, CP_1]].astype(np.uint16).view(np.int16) * gain[:, None]
    drift = (1 + device.cp_kta * d_ta) * (1 + device.cp_kv * d_v)
    cp_0 = device.tgc * (cp[:, 0] - device.cp_offset_0 * drift)
    cp_1 = device.tgc * (cp[:, 1] - (device.cp_offset_1 + device.pattern_correction_0 * foreign) * drift)
    weights = np.empty((len(frames), 9))
    weights[:, 0] = 1
    weights[:, 1] = d_ta
    weights[:, 2] = d_v
    weights[:, 3] = d_ta * d_v
    weights[:, 4] = foreign
    weights[:, 5] = cp_0 * known.chess
    weights[:, 6] = cp_1 * known.chess
    weights[:, 7] = cp_0 * ~known.chess
    weights[:, 8] = cp_1 * ~known.chess
    scale = 1 / (emissivity * (1 + device.ks_ta * d_ta))
    ambient_4 = (d_ta + 25 + KELVIN) ** 4
    mirrored = d_ta + 25 - REFLECTED_BELOW_AMBIENT if reflected is None else np.full_like(d_ta, reflected)
    reflected_4 = (mirrored + KELVIN) ** 4
    background = reflected_4 - (reflected_4 - ambient_4) / emissivity
    return (
        (weights * scale[:, None]).astype(np.float32),
        (gain * scale)[:, None].astype(np.float32),
        background[:, None].astype(np.float32),
    )


def object_temperatures(
    signal: Floats32, background: Floats32, slope: Any, low: Any, high: Any
) -> tuple[Floats32, NDArray[np.bool_] | None]:
    """Convert the compensated signal over its sensitivity to K, by two fourth roots [11.2.2.9].

    `slope` is the sensitivity slope of the basic temperature range, `low` and `high` its limits in °C: numbers for one
    device, or (n, 1) for several. The second result marks frames (n,) outside the range; they contain only a first
    estimate, which `Calibration.extended` refines.
    """
    rest = 1 - slope * np.float32(KELVIN)
    with np.errstate(invalid="ignore"):
        root = signal + background
        np.sqrt(root, out=root)
        np.sqrt(root, out=root)
        root *= slope
        root += rest
        np.divide(signal, root, out=root)
        root += background
        np.sqrt(root, out=root)
        np.sqrt(root, out=root)  # a first estimate in K, good inside the basic range
        coldest, hottest = np.fmin.reduce(root, axis=1), np.fmax.reduce(root, axis=1)
        inside = (coldest >= np.ravel(low) + KELVIN) & (hottest < np.ravel(high) + KELVIN)
        outside = None if inside.all() else ~inside
        estimate = None if outside is None else root[outside]
        root *= slope
        root += rest
        np.divide(signal, root, out=root)
        root += background
        np.sqrt(root, out=root)
        np.sqrt(root, out=root)
    if outside is not None:
        root[outside] = estimate
    return root, outside


def mask_unmeasured(frames: NDArray[np.uint16], known: Auxiliary, celsius: Floats32) -> None:
    """Set damaged frames, and rows without a measurement, of `celsius` (n, 768) to NaN."""
    celsius[~known.valid] = np.nan
    first = frames[:, :PIXELS].reshape(-1, ROWS, COLUMNS)[:, :, :2]
    for number in np.flatnonzero((first == NOT_MEASURED).any(axis=(1, 2))):
        celsius[number, unmeasured(frames[number, :PIXELS])] = np.nan


def unmeasured(pixels: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Return a mask of the (768,) pixels that were not measured: rows of a subpage that are all 0x7FFF.

    A single 0x7FFF is a saturated pixel, the hottest possible.
    """
    pairs = pixels.reshape(ROWS, COLUMNS // 2, 2) == NOT_MEASURED
    return np.broadcast_to(pairs.all(axis=1)[:, None, :], pairs.shape).ravel()


def _checked(frames: NDArray[np.uint16]) -> NDArray[np.uint16]:
    if frames.ndim != 2 or frames.shape[1] != FRAME_WORDS:
        raise ValueError(f"frames have the shape {frames.shape}, not (n, {FRAME_WORDS})")
    return frames


def _eeprom_words(
    words: bytes | bytearray | memoryview | NDArray[np.uint16] | Sequence[int],
) -> NDArray[np.int64]:
    """Return the (832,) words of an EEPROM; raise ValueError if they are not those of an MLX90640."""
    if isinstance(words, bytes | bytearray | memoryview):
        if len(words) % 2:
            raise ValueError(f"EEPROM: {len(words)} bytes are not a whole number of words")
        words = words_of(words)
    e = np.asarray(words).astype(np.int64).ravel()
    if len(e) not in {EEPROM_WORDS, EEPROM_WORDS + 2}:
        raise ValueError(f"EEPROM has {len(e)} words, not {EEPROM_WORDS}")
    e = e[:EEPROM_WORDS] & 0xFFFF
    if (e == e[0]).all():
        raise ValueError(f"EEPROM is blank: every word is 0x{int(e[0]):04X}")
    if e[10] & 0x0040:
        raise ValueError(f"EEPROM: not from an MLX90640: the device select word is 0x{int(e[10]):04X} (an MLX90641?)")
    return e


def _marked_pixels(e: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pixels that the maker marked as broken or outliers; raise ValueError if there are too many."""
    pixels = e[64:]
    marked = np.flatnonzero((pixels == 0) | (pixels & 1 == 1))
    if len(marked) > MARKED_PIXELS_LIMIT:
        raise ValueError(
            f"EEPROM: {len(marked)} of {PIXELS} pixels are marked as bad, at most {MARKED_PIXELS_LIMIT} are allowed"
        )
    return marked


def _sensitivity(e: NDArray[np.int64], compensated: float, marked: NDArray[np.int64]) -> Floats:
    """Return each pixel's sensitivity, less the part `compensated`; ValueError if an unmarked pixel has none."""
    alpha = _alpha(e) - compensated
    wrong = np.setdiff1d(np.flatnonzero(alpha <= 0), marked)
    if len(wrong):
        raise ValueError(f"EEPROM: pixel {int(wrong[0])} has a sensitivity of {alpha[wrong[0]]:.3g}, not above 0")
    alpha[marked] = np.median(np.delete(alpha, marked))  # never shown, but must not raise warnings
    return alpha


def _temperature_ranges(e: NDArray[np.int64]) -> tuple[_Ranges, _Ranges]:
    """Return the sensitivity slopes of the four temperature ranges, and the °C at which each starts [11.2.2.9.1]."""
    scales = int(e[63])
    step = 10.0 * ((scales >> 12) & 3)
    second = ((scales >> 4) & 15) * step
    third = second + ((scales >> 8) & 15) * step
    a, b, c, d = (
        float(_signed(int(byte), 8)) / 2.0 ** ((scales & 15) + 8) for byte in (e[61], e[61] >> 8, e[62], e[62] >> 8)
    )
    return (a, b, c, d), (-40.0, 0.0, second, third)


def _alpha(e: NDArray[np.int64]) -> Floats:
    """Sensitivity of each pixel before subtracting the compensation pixel's share [11.2.2.5.3]."""
    scales = int(e[32])
    rows = _nibbles(e[34:40])[_ROW] << ((scales >> 8) & 15)
    columns = _nibbles(e[40:48])[_COLUMN] << ((scales >> 4) & 15)
    remainder = _signed(e[64:] >> 4, 6) << (scales & 15)
    alpha: Floats = (e[33] + rows + columns + remainder) / 2.0 ** ((scales >> 12) + 30)
    return alpha


def _compensation_alpha(e: NDArray[np.int64]) -> tuple[float, float]:
    """Sensitivity of the two compensation pixels [11.2.2.6]."""
    first = int(_signed(int(e[57]), 10)) / 2.0 ** ((int(e[32]) >> 12) + 27)
    return first, first * (1 + int(_signed(int(e[57]) >> 10, 6)) / 128)


def _offset(e: NDArray[np.int64]) -> Floats:
    """Offset of each pixel at 25 °C and 3.3 V [11.2.2.5.2]."""
    scales = int(e[16])
    rows = _nibbles(e[18:24])[_ROW] << ((scales >> 8) & 15)
    columns = _nibbles(e[24:32])[_COLUMN] << ((scales >> 4) & 15)
    remainder = _signed(e[64:] >> 10, 6) << (scales & 15)
    offset: Floats = (_signed(int(e[17]), 16) + rows + columns + remainder).astype(np.float64)
    return offset


def _kta(e: NDArray[np.int64]) -> Floats:
    """Dependence of the offset on the ambient temperature, 1/K: one of four averages plus a remainder [11.2.2.5.2]."""
    averages = _signed(np.array([e[54] >> 8, e[55] >> 8, e[54], e[55]]), 8)[2 * (_ROW % 2) + _COLUMN % 2]
    remainder = _signed(e[64:] >> 1, 3) << (int(e[56]) & 15)
    kta: Floats = (averages + remainder) / 2.0 ** (((int(e[56]) >> 4) & 15) + 8)
    return kta


def _kv(e: NDArray[np.int64]) -> Floats:
    """Dependence of the offset on the supply, 1/V: one of four averages [11.2.2.5.2]."""
    averages = _signed(np.array([e[52] >> 12, e[52] >> 4, e[52] >> 8, e[52]]), 4)[2 * (_ROW % 2) + _COLUMN % 2]
    kv: Floats = averages / 2.0 ** ((int(e[56]) >> 8) & 15)
    return kv


def _pattern_correction(e: NDArray[np.int64]) -> tuple[float, float, float]:
    """Corrections for the reading pattern: IL_CHESS_C1, C2, C3 [11.2.2.5.2]."""
    word = int(e[53])
    return int(_signed(word, 6)) / 16, int(_signed(word >> 6, 5)) / 2, int(_signed(word >> 11, 5)) / 8


def _pixel_basis(inverse_alpha: Floats, offset: Floats, kta: Floats, kv: Floats, e: NDArray[np.int64]) -> Floats32:
    """The part subtracted from a pixel's signal, as a weighted sum of 9 pictures over the pixel's sensitivity.

    Offset (1 + kta dT)(1 + kv dV) expands to four pictures. The correction for a reading pattern other than the
    calibrated one adds one, and the compensation pixel of each subpage adds two per reading pattern.
    """
    _, second, third = _pattern_correction(e)
    pictures = [
        offset,
        offset * kta,
        offset * kv,
        offset * kta * kv,
        second * _CONVERSION - third * (2 * _INTERLEAVED - 1),
        1.0 - _CHESS,
        _CHESS,
        1.0 - _INTERLEAVED,
        _INTERLEAVED,
    ]
    basis: Floats32 = (np.stack(pictures) * inverse_alpha).astype(np.float32)
    return basis


def _good_neighbours(bad: Collection[int]) -> tuple[tuple[int, NDArray[np.int64]], ...]:
    """Return the good ones of the eight neighbours of each bad pixel."""
    neighbours = []
    for pixel in sorted(bad):
        row, column = divmod(pixel, COLUMNS)
        around = [
            r * COLUMNS + c
            for r in range(max(row - 1, 0), min(row + 2, ROWS))
            for c in range(max(column - 1, 0), min(column + 2, COLUMNS))
        ]
        neighbours.append((pixel, np.array([p for p in around if p not in bad], np.int64)))
    return tuple(neighbours)
