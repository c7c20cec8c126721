"""Serialized readings at once mean what they mean one by one."""

import math
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, Reading, ReadingColumns
from embereye.wire.batches import CHANNELS, Request, columns_block, readings_block

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
def test_readings_in_bulk_are_the_same_as_one_by_one(several: list[Reading], times: int) -> None:
    several = several * times
    sequences, rows = readings_block([reading.SerializeToString() for reading in several])
    assert sequences.tolist() == [reading.sequence for reading in several]
    expected = [
        [float(getattr(reading, name)) if reading.HasField(name) else math.nan for name in CHANNELS]  # type: ignore
        for reading in several
    ]
    np.testing.assert_array_equal(rows, expected)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 8))
def test_bytes_that_are_no_reading_are_refused_not_invented(several: list[bytes], times: int) -> None:
    several = several * times
    try:
        expected = [Reading.FromString(text) for text in several]
    except DecodeError:
        return
    sequences, _ = readings_block(several)
    assert sequences.tolist() == [reading.sequence for reading in expected]


def test_columns_become_rows_and_a_short_column_has_no_more_values() -> None:
    columns = ReadingColumns(first_sequence=7, time_ns=[0] * 3, smoke_adc=[1, 2], flame_detected=[0, math.nan, 5])
    sequences, rows = columns_block(columns)
    assert sequences.tolist() == [7, 8, 9]
    nan = math.nan
    np.testing.assert_array_equal(rows, [[1, nan, nan, 0], [2, nan, nan, nan], [nan, nan, nan, 1]])


def test_a_request_on_the_wire_is_the_one_that_was_sent() -> None:
    request = IngestRequest(devices=[DeviceBatch(device="a", epoch=3, readings=[Reading(sequence=1, smoke_adc=2)])])
    raw = Request.FromString(request.SerializeToString())
    assert (raw.devices[0].device, raw.devices[0].epoch) == ("a", 3)
    assert [Reading.FromString(one).smoke_adc for one in raw.devices[0].readings] == [2]
    with pytest.raises(DecodeError):
        readings_block([b"\x08"])
