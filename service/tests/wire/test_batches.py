"""Decoding serialized readings in bulk gives the same values as one by one."""

import contextlib
import math
import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, Reading, ReadingColumns
from embereye.wire.batches import CHANNELS, Request, decode_columns, decode_readings

COUNTS = st.one_of(st.none(), st.integers(0, 4095).map(float))


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    fields: dict[str, Any] = {name: draw(COUNTS) for name in CHANNELS[:3]}
    return Reading(
        sequence=draw(st.integers(0, 400)), time_ns=draw(st.sampled_from([0, 5, 10**18])),
        flame_detected=draw(st.one_of(st.none(), st.booleans())), **fields
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(readings(), min_size=1, max_size=40), st.integers(1, 8))
def test_readings_decoded_in_bulk_equal_readings_decoded_singly(batch: list[Reading], times: int) -> None:
    batch = batch * times
    sequences, rows = decode_readings([reading.SerializeToString() for reading in batch])
    assert sequences.tolist() == [reading.sequence for reading in batch]
    expected = [
        [float(getattr(reading, name)) if name in fields else math.nan for name in CHANNELS]
        for reading in batch
        for fields in [{field.name for field, _ in reading.ListFields()}]
    ]
    np.testing.assert_array_equal(rows, expected)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 8))
def test_malformed_readings_are_refused(texts: list[bytes], times: int) -> None:
    texts = texts * times
    try:
        expected = [Reading.FromString(text) for text in texts]
    except DecodeError:
        return
    sequences, _ = decode_readings(texts)
    assert sequences.tolist() == [reading.sequence for reading in expected]


def test_columns_become_rows_and_short_columns_are_padded_with_nan() -> None:
    columns = ReadingColumns(first_sequence=7, time_ns=[0] * 3, smoke_adc=[1, 2], flame_detected=[0, math.nan, 5])
    firsts, counts, rows = decode_columns([[columns.SerializeToString()], [], [columns.SerializeToString()]])
    assert (firsts, counts) == ([7, 0, 7], [3, 0, 3])
    nan = math.nan
    np.testing.assert_array_equal(rows, [[1, nan, nan, 0], [2, nan, nan, nan], [nan, nan, nan, 1]] * 2)


TIMES = st.sampled_from([0, 5, 10**18, -1])
FLOATS = st.lists(st.one_of(st.floats(width=32), st.just(1.0)), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.lists(TIMES, max_size=12), FLOATS, FLOATS, st.data())
def test_columns_are_the_same_in_every_encoding(
    times: list[int], smoke: list[float], digital: list[float], data: st.DataObject
) -> None:
    columns = ReadingColumns(first_sequence=3, time_ns=times, smoke_adc=smoke, flame_detected=digital)
    whole = columns.SerializeToString()
    (first,), (count,), rows = decode_columns([[whole]])
    assert (first, count, rows.shape) == (3, len(times), (len(times), 4))
    known = (smoke + [math.nan] * len(times))[: len(times)]
    np.testing.assert_array_equal(rows[:, 0], known)

    # Number by number instead of packed, with the lists in any order; and as two messages, to be merged.
    packers = {2: lambda time: b"\x10" + _varint(time), 3: lambda value: b"\x1d" + struct.pack("<f", value)}
    loose = [packers[2](time) for time in times] + [packers[3](value) for value in smoke]
    rest = ReadingColumns(first_sequence=3, flame_detected=digital).SerializeToString()
    is_reversed = data.draw(st.booleans())
    for parts in ([b"".join(loose) + rest], [rest, b"".join(loose)]):
        again, _, same = decode_columns([parts[::-1] if is_reversed else parts])
        assert again == [3]
        np.testing.assert_array_equal(same, rows)


def _varint(number: int) -> bytes:
    return ReadingColumns(time_ns=[number]).SerializeToString()[2:]


def test_truncated_columns_are_refused() -> None:
    text = ReadingColumns(time_ns=[10**18], smoke_adc=[1.0]).SerializeToString()
    for end in range(1, len(text)):
        with contextlib.suppress(DecodeError):
            decode_columns([[text[:end]]])
            assert ReadingColumns.FromString(text[:end])
    with pytest.raises(DecodeError, match="3 bytes"):
        decode_columns([[b"\x12\x01\x00\x1a\x03\x00\x00\x00"]])
    with pytest.raises(DecodeError, match="time_ns"):
        decode_columns([[b"\x12\x01\x80"]])


def test_a_raw_request_parses_like_an_ingest_request() -> None:
    request = IngestRequest(devices=[DeviceBatch(device="a", epoch=3, readings=[Reading(sequence=1, smoke_adc=2)])])
    raw = Request.FromString(request.SerializeToString())
    assert (raw.devices[0].device, raw.devices[0].epoch) == ("a", 3)
    assert [Reading.FromString(text).smoke_adc for text in raw.devices[0].readings] == [2]
    with pytest.raises(DecodeError):
        decode_readings([b"\x08"])
