"""°C from raw words: the datasheet's example, its formulas taken literally, a real device, and damaged input."""

from pathlib import Path

import numpy as np
import pytest
from harness.need import CAPTURE, CAPTURE_16_BIT, RECORDINGS, RECORDINGS_16_BIT
from numpy.typing import NDArray

from embereye.detect.thermal.health import doubt
from embereye.detect.thermal.mlx90640 import (
    COLUMNS,
    CONTROL,
    FRAME_WORDS,
    PIXELS,
    SUBPAGE,
    Auxiliary,
    Calibration,
    words_of,
)
from embereye.sim.mlx90640 import invent_eeprom, measure, raw_counts
from embereye.wire.device.messages import Eeprom, FrameWords
from embereye.wire.device.reader import LineReader

# Datasheet, section 11.2.2: the EEPROM of its worked example; every pixel gets the word of pixel (12, 16).
EXAMPLE_HEAD = """
    0000 0000 0000 0000 0000 0000 0000 0000  0000 0000 0000 0000 0000 0000 0000 0000
    4210 FFBB 0202 F202 F2F2 E2E2 D1E1 B1D1  F10F F00F E0EF E0EF E1E1 F3F2 F404 E504
    79A6 2F44 FFDD 2210 3333 2233 EF01 9ACC  EEDC 10FF 2221 3333 2333 0112 EEFF BBDD
    18EF 2FF1 5952 9D68 5454 0994 6956 5354  2363 E446 FBB5 044B F020 9797 9797 2889
"""
EXAMPLE_PIXEL = 11 * COLUMNS + 15


def example_eeprom() -> NDArray[np.uint16]:
    return np.concatenate([words_of(bytes.fromhex(EXAMPLE_HEAD)), np.full(PIXELS, 0x08A0, np.uint16)])


def example_frame(control: int = 0x1901) -> NDArray[np.uint16]:
    frame = np.zeros(FRAME_WORDS, np.uint16)
    frame[:PIXELS] = 0x0261
    for address, word in {
        0x700: 0x4BF2,
        0x708: 0xFFCA,
        0x70A: 0x1881,
        0x720: 0x06AF,
        0x728: 0xFFC8,
        0x72A: 0xCCC5,
    }.items():
        frame[address - 0x400] = word
    frame[832] = control
    return frame


@pytest.fixture(scope="module")
def example() -> Calibration:
    return Calibration.from_eeprom(example_eeprom())


def test_the_datasheets_example_gives_the_printed_constants(example: Calibration) -> None:
    assert (example.k_vdd, example.vdd_25, example.resolution) == (-3168, -13056, 2)
    assert (example.kv_ptat, example.kt_ptat, example.v_ptat_25) == (0.00537109375, 42.25, 12273)
    assert (example.alpha_ptat, example.gain, example.tgc, example.ks_ta) == (9, 6383, 1, -0.001953125)
    assert example.corners == (-40, 0, 160, 320)
    assert example.ks_to == (-0.00080108642578125,) * 4
    assert example.pattern_correction == (1.25, 3.0, 0.125)
    assert example.cp_offset == (-75, -77)
    assert example.cp_alpha == pytest.approx((4.07453626394272e-9, 3.85171006200835e-9), rel=1e-9)
    assert (example.cp_kta, example.cp_kv) == (0.00457763671875, 0.5)
    pixel = EXAMPLE_PIXEL
    assert (example.offset[pixel], example.kta[pixel], example.kv[pixel]) == (-75, 0.005126953125, 0.5)
    assert example.alpha[pixel] + sum(example.cp_alpha) / 2 == pytest.approx(1.26223312690854e-7, rel=1e-9)


def test_the_datasheets_example_gives_its_supply_ambient_and_gain(example: Calibration) -> None:
    auxiliary = example.auxiliary(example_frame()[None])
    assert auxiliary.vdd[0] == pytest.approx(3.319, abs=5e-4)
    assert auxiliary.ambient[0] == pytest.approx(39.184, abs=5e-4)
    assert auxiliary.gain[0] == pytest.approx(1.01753546947234)
    assert auxiliary.valid.all()
    assert auxiliary.chess.all()


def test_the_datasheets_example_gives_its_object_temperature(example: Calibration) -> None:
    celsius = example.temperatures(example_frame()[None], emissivity=1.0, reflected=31.0)

    # The signal is the datasheet's 700.882495690866 minus 25.6666575059956, the compensation pixel of subpage 0, to
    # which the pixel belongs in chess pattern. The example's 80.36 °C used another subpage's and got 679.25. The rest
    # is section 11.2.2.9 with its intermediate values. It uses one subpage's sensitivity; we use the mean of both, as
    # the maker's library does: a difference of 0.03 K.
    def object_temperature(signal: float) -> float:
        alpha, background, ks = 1.1876487360496e-7, 9516495632.56, -0.00080108642578125
        s_x = ks * (alpha**3 * signal + alpha**4 * background) ** 0.25
        basic = (signal / (alpha * (1 - ks * 273.15) + s_x) + background) ** 0.25 - 273.15
        assert 0 < basic < 160
        return (signal / (alpha * (1 + ks * basic)) + background) ** 0.25 - 273.15

    assert object_temperature(679.250909123826) == pytest.approx(80.43, abs=0.005)
    expected = object_temperature(700.882495690866 - 25.6666575059956)
    assert celsius[0].ravel()[EXAMPLE_PIXEL] == pytest.approx(expected, abs=0.04)


def literal(c: Calibration, frame: NDArray[np.uint16], pixel: int, emissivity: float, reflected: float | None) -> float:
    """Compute one pixel's °C by the datasheet's formulas in their order, in double precision, without our algebra."""
    signed = [int(word) - 65536 if word > 32767 else int(word) for word in frame]
    known = c.auxiliary(frame[None])
    vdd, ta, gain, chess = known.vdd[0], known.ambient[0], known.gain[0], bool(known.chess[0])
    row, column = divmod(pixel, COLUMNS)
    subpage = (row + column) % 2 if chess else row % 2
    foreign = chess != c.chess
    drift = (1 + c.cp_kta * (ta - 25)) * (1 + c.cp_kv * (vdd - 3.3))
    shift = c.pattern_correction[0] if foreign and subpage else 0.0
    compensation = signed[(776, 808)[subpage]] * gain - (c.cp_offset[subpage] + shift) * drift
    signal = signed[pixel] * gain - c.offset[pixel] * (1 + c.kta[pixel] * (ta - 25)) * (1 + c.kv[pixel] * (vdd - 3.3))
    if foreign:
        odd = row % 2
        conversion = ((pixel + 2) // 4 - (pixel + 3) // 4 + (pixel + 1) // 4 - pixel // 4) * (1 - 2 * odd)
        signal += c.pattern_correction[2] * (2 * odd - 1) - c.pattern_correction[1] * conversion
    signal = (signal - c.tgc * compensation) / emissivity
    alpha = c.alpha[pixel] * (1 + c.ks_ta * (ta - 25))
    tr = ta - 8 if reflected is None else reflected
    background = (tr + 273.15) ** 4 - ((tr + 273.15) ** 4 - (ta + 273.15) ** 4) / emissivity
    ks, ct = c.ks_to, c.corners
    s_x = ks[1] * (alpha**3 * signal + alpha**4 * background) ** 0.25
    first = (signal / (alpha * (1 - ks[1] * 273.15) + s_x) + background) ** 0.25 - 273.15
    corrections = [1 / (1 + ks[0] * 40), 1.0, 1 + ks[1] * ct[2]]
    corrections.append(corrections[2] * (1 + ks[2] * (ct[3] - ct[2])))
    band = sum(first >= corner for corner in ct[1:])
    slope = corrections[band] * (1 + ks[band] * (first - ct[band]))
    return float((signal / (alpha * slope) + background) ** 0.25 - 273.15)


@pytest.mark.parametrize("control", [0x1901, 0x0901, 0x1C01, 0x0001])
@pytest.mark.parametrize(("emissivity", "reflected"), [(0.95, None), (1.0, 20.0), (0.7, None)])
def test_a_batch_agrees_with_the_formulas_pixel_by_pixel(
    control: int, emissivity: float, reflected: float | None
) -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(5))
    bits = 19 if control == 0x1C01 else 18
    peaks = (-15, 30, 120, 260, 420)[: 4 if bits == 19 else 5]  # 420 °C is beyond the range of 19 bits
    frames = np.stack([measure(calibration, scene(peak), ambient=28 + peak / 200, bits=bits) for peak in peaks])
    frames[:, CONTROL] = control
    celsius = calibration.temperatures(frames, emissivity, reflected)
    rng = np.random.default_rng(1)
    for number, frame in enumerate(frames):
        for pixel in [0, 767, int(np.nanargmax(celsius[number])), *rng.integers(0, PIXELS, 20)]:
            expected = literal(calibration, frame, int(pixel), emissivity, reflected)
            assert celsius[number].ravel()[pixel] == pytest.approx(expected, abs=2e-3)


def scene(peak: float) -> NDArray[np.float64]:
    rows, columns = np.indices((24, 32))
    return 22 + 0.1 * columns + (peak - 22) * np.exp(-((rows - 10) ** 2 + (columns - 20) ** 2) / 8)


def capture(folder: Path = RECORDINGS) -> tuple[Calibration, NDArray[np.uint16], NDArray[np.float32]]:
    messages = LineReader().feed((folder / "capture.bin").read_bytes())
    frames = [words_of(message.words) for message in messages if isinstance(message, FrameWords)]
    eeprom = next(message for message in messages if isinstance(message, Eeprom))
    return Calibration.from_eeprom(eeprom.words), np.stack(frames), np.load(folder / "temperatures.npy")


def noise(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the noise of each frame (n, 24, 32) relative to its neighbours in time and place, as (n, pixels)."""
    moving = frames - np.median(frames, axis=0)
    around = sum(np.roll(moving, shift, axis) for shift in (1, -1) for axis in (1, 2)) / 4
    fingerprint = (moving - around)[:, 1:-1, 1:-1].reshape(len(frames), -1)
    fingerprint -= fingerprint.mean(axis=1, keepdims=True)
    normal: NDArray[np.float64] = fingerprint / np.linalg.norm(fingerprint, axis=1, keepdims=True)
    return normal


@pytest.mark.needs(CAPTURE)
def test_a_real_devices_frames_agree_with_the_makers_library_to_a_tenth_of_a_kelvin() -> None:
    calibration, frames, reference = capture()
    celsius = calibration.temperatures(frames)
    assert celsius.shape == reference.shape == (27, 24, 32)
    same = np.sum(noise(celsius.astype(float)) * noise(reference.astype(float)), axis=1)
    if same.max() < 0.6:
        pytest.skip(
            f"temperatures.npy does not belong to capture.bin: their noise correlates by {same.max():.2f} at most"
        )
    assert np.abs(celsius - reference).max() < 0.1


@pytest.mark.needs(CAPTURE_16_BIT)
def test_a_real_device_in_16_bit_resolution_agrees_with_the_makers_library() -> None:
    calibration, frames, reference = capture(RECORDINGS_16_BIT)
    celsius = calibration.temperatures(frames).reshape(len(frames), PIXELS)
    rows, columns = np.divmod(np.arange(PIXELS), COLUMNS)
    fresh = (rows + columns) % 2 == (frames[:, SUBPAGE, None] & 1)
    assert calibration.auxiliary(frames).gain_drift == pytest.approx(1, abs=0.05)
    assert np.abs(celsius - reference.reshape(celsius.shape))[fresh].max() < 0.1


@pytest.mark.parametrize("bits", [16, 17, 18, 19])
@pytest.mark.parametrize("chess", [True, False])
@pytest.mark.parametrize("gain", [0.93, 1.0, 1.07])
def test_every_resolution_and_pattern_gives_the_same_temperatures(bits: int, chess: bool, gain: float) -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(3))
    warm = scene(60)
    frame = measure(calibration, warm, gain=gain, bits=bits)
    frame[CONTROL] = int(frame[CONTROL]) & 0x0FFF | 0x1000 * chess
    known = calibration.auxiliary(frame[None])
    assert known.valid.all()
    assert known.vdd == pytest.approx(3.29, abs=0.01)
    assert known.gain_drift == pytest.approx(gain, rel=0.01)
    if chess:  # `measure` writes the calibrated pattern
        assert np.abs(calibration.temperatures(frame[None])[0] - warm).max() < 0.6  # a count of 16 bits is 0.4 K
    assert not doubt(calibration, frame)


@pytest.mark.needs(CAPTURE)
def test_a_real_devices_frames_are_a_room(recwarn: pytest.WarningsRecorder) -> None:
    calibration, frames, _ = capture()
    auxiliary = calibration.auxiliary(frames)
    assert auxiliary.valid.all()
    assert auxiliary.chess.all()
    assert np.abs(auxiliary.vdd - 3.28).max() < 0.01
    assert np.abs(auxiliary.ambient - 31.5).max() < 0.2
    celsius = calibration.temperatures(frames)
    assert 20 < celsius.min() < celsius.max() < 35
    assert not recwarn.list


@pytest.mark.needs(CAPTURE)
def test_our_calibration_converts_the_makers_temperatures_to_whole_adc_counts() -> None:
    """The library computed them from integers, and only the same model in every pixel leads back to integers.

    Chip temperature and gain of those frames were not recorded, so the test searches for them: two numbers for 768
    pixels.
    """
    calibration, frames, reference = capture()
    known = calibration.auxiliary(frames)

    def misfit(celsius: NDArray[np.float32], ambient: float, gain: float) -> tuple[float, NDArray[np.float64]]:
        auxiliary = Auxiliary(
            known.vdd[:1], np.array([ambient]), np.array([gain]), np.array([gain]), known.chess[:1], known.valid[:1]
        )
        counts = raw_counts(calibration, celsius[None].astype(float), auxiliary)
        return -abs(np.exp(2j * np.pi * counts).mean()), counts

    for number in (0, 6, 13, 26):
        celsius = reference[number]
        coarse = min((misfit(celsius, a, g)[0], a, g) for a in np.arange(30, 34, 0.1) for g in (1.0, 1.005))
        _, ambient, gain = min(
            (misfit(celsius, a, g)[0], a, g)
            for a in coarse[1] + np.arange(-0.1, 0.11, 0.02)
            for g in coarse[2] + np.arange(-0.004, 0.0041, 0.0005)
        )
        coherence, counts = misfit(celsius, ambient, gain)
        assert -coherence > 0.97  # 0.04 by chance
        kelvin_per_count = 0.1
        assert np.sqrt(np.mean((counts - np.round(counts)) ** 2)) * kelvin_per_count < 0.01


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("peak", [22, 57, 95, 150, 250, 400])
def test_simulated_measurements_are_calibrated_back_to_the_scene(seed: int, peak: float) -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(seed))
    frame = measure(calibration, scene(peak), ambient=25 + seed * 3, vdd=3.25 + seed * 0.03, gain=0.99 + seed * 0.01)
    celsius = calibration.temperatures(frame[None])
    assert np.abs(celsius[0] - scene(peak)).max() < 0.2


def test_a_temperature_beyond_the_converters_range_reads_as_very_hot() -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(3))
    frame = measure(calibration, scene(900.0))
    frame[[0, 400]] = 0x7FFF
    celsius = calibration.temperatures(frame[None])
    assert np.isfinite(celsius).all()
    assert celsius.ravel()[[0, 400]].min() > 400
    assert celsius.max() > 540


def test_a_batch_agrees_with_its_single_frames() -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(8))
    frames = np.stack([measure(calibration, scene(peak)) for peak in np.linspace(22, 380, 130)])
    single = np.concatenate([calibration.temperatures(frame[None]) for frame in frames])
    np.testing.assert_allclose(calibration.temperatures(frames), single, atol=1e-3)
    assert calibration.temperatures(frames[:0]).shape == (0, 24, 32)


@pytest.mark.parametrize("pixel", [0, 31, 5 * 32 + 7, 23 * 32])
@pytest.mark.parametrize("mark", [0x0000, 0x0411])
def test_a_pixel_marked_in_the_eeprom_gets_its_neighbours_median(pixel: int, mark: int) -> None:
    eeprom = invent_eeprom(2)
    frame = measure(Calibration.from_eeprom(eeprom), np.full((24, 32), 22.0))
    frame[pixel] = 0x7000
    eeprom[64 + pixel] = mark
    calibration = Calibration.from_eeprom(eeprom)
    assert calibration.bad_pixels == (pixel,)
    assert calibration.temperatures(frame[None]).ravel()[pixel] == pytest.approx(22, abs=0.1)


def test_rows_without_a_measurement_and_damaged_frames_are_not_numbers() -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(2))
    good = measure(calibration, np.full((24, 32), 22.0))
    frames = np.stack([good] * 5)
    frames[1, 64:96] = 0x7FFF  # a whole row
    frames[2, 65:96:2] = 0x7FFF  # the pixels of one subpage in a row
    frames[3, 778] = 0  # gain
    frames[4, 800] = 0x7FFF  # chip temperature
    celsius = calibration.temperatures(frames)
    assert np.isfinite(celsius[0]).all()
    assert np.isnan(celsius[1, 2]).all()
    assert np.isnan(celsius[2, 2, 1::2]).all()
    assert np.isfinite(celsius[2, 2, 0::2]).all()
    assert np.isfinite(np.delete(celsius[1:3], 2, axis=1)).all()
    assert np.isnan(celsius[3:]).all()
    assert calibration.auxiliary(frames).valid.tolist() == [True, True, True, False, False]


def test_arbitrary_words_never_raise_an_error() -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(2))
    noise_words = np.random.default_rng(4).integers(0, 65536, (50, FRAME_WORDS)).astype(np.uint16)
    assert calibration.temperatures(noise_words).shape == (50, 24, 32)


def changed(**words: int) -> NDArray[np.uint16]:
    eeprom = invent_eeprom(1)
    for index, word in words.items():
        eeprom[int(index[1:])] = word
    return eeprom


@pytest.mark.parametrize(
    ("eeprom", "sentence"),
    [
        (np.zeros(831, np.uint16), "831 words, not 832"),
        (b"\x01\x02\x03", "3 bytes"),
        (np.zeros(832, np.uint16), "blank: every word is 0x0000"),
        (np.full(832, 0xFFFF, np.uint16), "blank: every word is 0xFFFF"),
        (changed(w48=0), "word 48 makes the gain zero"),
        (changed(w51=0x0070), "word 51 makes the supply slope zero"),
        (changed(w50=0x2C00), "word 50 makes the ambient slope zero"),
        (changed(w10=0x04CD), "MLX90641"),
        (changed(w33=0), "pixel 0 has a sensitivity of"),
        (changed(**{f"w{64 + pixel}": 0 for pixel in range(200)}), "200 of 768 pixels are marked"),
    ],
)
def test_an_invalid_eeprom_is_refused_with_a_reason(eeprom: NDArray[np.uint16] | bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Calibration.from_eeprom(eeprom)


def test_an_eeprom_may_be_bytes_or_numbers_and_have_two_additional_words() -> None:
    words = invent_eeprom(6)
    calibration = Calibration.from_eeprom(words)
    frame = measure(calibration, scene(80))[None]
    for form in (words.astype(">u2").tobytes(), [int(word) for word in words], np.append(words, [7, 7])):
        np.testing.assert_array_equal(
            Calibration.from_eeprom(form).temperatures(frame), calibration.temperatures(frame)
        )


def test_invalid_arguments_are_refused() -> None:
    calibration = Calibration.from_eeprom(invent_eeprom(6))
    with pytest.raises(ValueError, match="emissivity 0: not"):
        calibration.temperatures(np.zeros((1, FRAME_WORDS), np.uint16), emissivity=0)
    with pytest.raises(ValueError, match=r"\(1, 768\)"):
        calibration.temperatures(np.zeros((1, PIXELS), np.uint16))
