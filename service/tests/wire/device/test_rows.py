"""Parsing many lines at once gives the same values as parsing them one by one."""

import math
import random
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embereye.wire.device.messages import SensorReading
from embereye.wire.device.quiet import quiet_reading, whole_numbers
from embereye.wire.device.reader import LineReader
from embereye.wire.device.rows import Shape, parse_rows, shape_of


def line_by_line(text: bytes) -> list[list[float]]:
    messages = LineReader().feed(text)
    assert all(isinstance(message, SensorReading) for message in messages)
    values = [(m.smoke_adc, m.flame_adc, m.gas_adc, m.flame_detected) for m in messages if isinstance(m, SensorReading)]
    return [[float(value) for value in row if value is not None] for row in values]


@pytest.mark.parametrize("prefix", [b"#Sensor1234:", b"#Sensor:", b"#Sensor:hall-2:", b"#Sensora.b_c:"])
@pytest.mark.parametrize("keys", [(b"ADC1", b"ADC2", b"ADC3", b"DIO"), (b"ADC1:", b"ADC2", b"ADC3:", b"MPY30"),
                                  (b"ADC1", b"ADC2:", b"ADC3", b"DIO:")])  # fmt: skip
@pytest.mark.parametrize("separator", [b"", b"\r\n"])
def test_regular_lines_of_every_shape_are_parsed_like_single_lines(
    prefix: bytes, keys: tuple[bytes, ...], separator: bytes
) -> None:
    dice = random.Random(1)
    lines = [
        prefix + b",".join(b"%s=%d" % (key, dice.choice([0, 7, 42, 283, 4095, 123456])) for key in keys) + b"!"
        for _ in range(50)
    ]
    text = separator.join(lines)
    shape = shape_of(text)
    assert shape is not None
    assert shape.location == prefix.removeprefix(b"#Sensor").strip(b":").decode()
    [rows] = parse_rows([text], [shape])
    assert rows is not None
    assert rows.tolist() == line_by_line(text)


GOOD = b"#Sensora:ADC1=283,ADC2=1305,ADC3=2,DIO=0!\r\n"


@pytest.mark.parametrize(
    "bad",
    [
        b"#Sensorb:ADC1=283,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:ADC1=283,ADC2=1305,ADC3=2!",
        b"#Sensora:ADC1=283,ADC3=1305,ADC2=2,DIO=0!",
        b"#Sensora:1ADC=283,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:A1DC=283,ADC2=1305,ADC3=2,DIO=0!",
        b"7#Sensora:ADC1=283,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:ADC1=283.5,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:ADC1=-1,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:ADC1=,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:ADC1=12345678,ADC2=1305,ADC3=2,DIO=0!",
        b"#Sensora:ADC1=1,ADC2=1,ADC3=1,DIO1=0!",
        b"rubbish!",
        b"#frame:FFFF!",
        b"!",
    ],
)
def test_a_segment_with_an_irregular_line_is_left_to_the_parser(bad: bytes) -> None:
    shape = shape_of(GOOD)
    assert isinstance(shape, Shape)
    clean = (GOOD * 5).rstrip()
    segments = [clean, (GOOD * 3 + bad + b"\r\n" + GOOD).rstrip(), clean]
    first, spoilt, last = parse_rows(segments, [shape] * 3)
    assert spoilt is None
    assert first is not None
    assert last is not None
    assert np.array_equal(first, last)
    assert first.tolist() == line_by_line(clean)


CUT = b"#Sensora:ADC1=2,ADC2=1,ADC3=2,DIO=0!"
changes = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, 2),
        st.sampled_from([bytes([character]) for character in b"#Sa:ADC123=,DIO!\r\n x-.e\xff"]),
    ),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.sampled_from([b"", b"\r\n"]), changes)
@example(2, b"\r\n", [(0, 1, b"1")])
@example(1, b"", [(12, 1, b"3"), (9, 1, b"2")])
@example(3, b"", [(13, 0, b"!")])
@example(2, b"", [(36, 2, b"!")])
def test_a_damaged_segment_is_parsed_like_single_lines_or_left_to_the_parser(
    lines: int, separator: bytes, damage: list[tuple[int, int, bytes]]
) -> None:
    shape = shape_of(separator.join([CUT] * 2))
    assert shape is not None
    text = separator.join([CUT] * lines)
    for place, kind, byte in damage:
        at = place % (len(text) + 1)
        text = text[:at] + (b"" if kind == 2 else byte) + text[at + (kind != 0) :]
    text = text[: text.rfind(b"!") + 1]
    if not text:
        return
    [rows] = parse_rows([text], [shape])
    if rows is not None:
        assert rows.tolist() == line_by_line(text)


def test_an_empty_or_truncated_text_has_no_shape() -> None:
    assert shape_of(b"") is None
    assert shape_of(b"#Sensora:ADC1=2") is None
    assert parse_rows([], []) == []


@given(st.integers(0, 5000), st.integers(0, 5000), st.data())
@example(0, 0, None)
@example(7, 6, None)
def test_a_pattern_of_whole_numbers_matches_only_those_numbers(low: int, high: int, data: st.DataObject | None) -> None:
    pattern = re.compile(whole_numbers(low, high))
    edges = [0, 9, 10, low - 1, low, low + 1, high - 1, high, high + 1, 999_999]
    for number in edges + ([data.draw(st.integers(0, 6000))] if data else []):
        if number >= 0:
            assert bool(pattern.fullmatch(b"%d" % number)) == (low <= number <= high)


def test_a_line_is_quiet_if_all_its_numbers_are_in_their_bands() -> None:
    inf = math.inf
    quiet = quiet_reading(((0.0, 614.25), (0.0, 2252.2), (10.0, 1200.0), (-0.5, 0.5))).fullmatch
    match = quiet(b"ADC1=614,ADC2=0,ADC3=10,DIO=0!\r\n")
    assert match is not None
    assert match.groups() == (b"614", b"0", b"10", b"0")
    for line in (b"615,ADC2=0,ADC3=10,DIO=0!", b"1,ADC2=2253,ADC3=10,DIO=0!", b"1,ADC2=0,ADC3=9,DIO=0!",
                 b"1,ADC2=0,ADC3=10,DIO=1!", b"1,ADC2=0,ADC3=10,DIO=0", b"1.5,ADC2=0,ADC3=10,DIO=0!"):  # fmt: skip
        assert not quiet(b"ADC1=" + line)
    assert quiet_reading(((0.0, inf),) * 3 + ((0.5, inf),)).fullmatch(b"ADC1=999999,ADC2:=1,ADC3=1,MPY30=7!")
    assert not quiet_reading(((inf, inf),) * 4).fullmatch(b"ADC1=1,ADC2=1,ADC3=1,DIO=1!")
