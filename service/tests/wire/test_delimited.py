"""Delimited messages: those that protobuf's library writes are read, in any split."""

import io
import itertools

import pytest
from google.protobuf.proto import parse_length_prefixed, serialize_length_prefixed
from hypothesis import given
from hypothesis import strategies as st

from embereye.v1.types_pb2 import Term
from embereye.wire.delimited import LONG, Buffers, DelimitedBuffers, DelimitedError, DelimitedReader, delimited

LENGTHS = (0, 1, 126, 127, 128, 129, 16_382, 16_383, 16_384, 70_000)


def test_messages_are_written_as_protobuf_writes_them() -> None:
    for length in LENGTHS:
        term = Term(name="x" * length)
        output = io.BytesIO()
        serialize_length_prefixed(term, output)
        assert delimited(term.SerializeToString()) == output.getvalue()
        assert parse_length_prefixed(Term, io.BytesIO(delimited(term.SerializeToString()))) == term


@given(st.lists(st.sampled_from(LENGTHS), max_size=6), st.lists(st.integers(0, 200_000), max_size=8))
def test_messages_are_read_in_any_split(lengths: list[int], cuts: list[int]) -> None:
    messages = [bytes([number + 1]) * length for number, length in enumerate(lengths)]
    data = b"".join(map(delimited, messages))
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    reader, messages_read = DelimitedReader(100_000), []
    for start, end in itertools.pairwise(places):
        messages_read += reader.receive(data[start:end])
    assert messages_read == messages
    assert reader.pending == 0


def _received(reader: DelimitedBuffers, data: bytes) -> list[bytes | memoryview]:
    messages = list[bytes | memoryview]()
    while data:
        space = reader.space()
        count = min(len(space), len(data))
        space[:count], data = data[:count], data[count:]
        messages += reader.advance(count)
    return messages


@given(st.lists(st.sampled_from(LENGTHS), max_size=6), st.lists(st.integers(0, 200_000), max_size=8))
def test_messages_received_into_buffers_are_read_in_any_split(lengths: list[int], cuts: list[int]) -> None:
    messages = [bytes([number + 1]) * length for number, length in enumerate(lengths)]
    data = b"".join(map(delimited, messages))
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    buffers, messages_read = Buffers(3 * LONG), list[bytes]()
    reader = DelimitedBuffers(100_000, buffers)
    for start, end in itertools.pairwise(places):
        for message in _received(reader, data[start:end]):
            messages_read.append(bytes(message))
            buffers.put_back(message)
    assert messages_read == messages
    assert buffers.free_bytes <= 3 * LONG


def test_a_returned_buffer_is_reused_and_never_lent_twice() -> None:
    buffers = Buffers(4 * LONG)
    first = buffers.borrow(LONG + 1)
    assert buffers.borrow(LONG + 1).obj is not first.obj
    buffers.put_back(first[5:])
    buffers.put_back(first)
    again = buffers.borrow(LONG + 2)
    assert again.obj is first.obj
    assert buffers.borrow(LONG + 2).obj is not first.obj
    buffers.put_back(memoryview(bytearray(2 * LONG)))
    buffers.put_back(b"x" * 2 * LONG)
    assert buffers.free_bytes == 0


def test_free_buffers_are_limited_and_recent_sizes_replace_old_ones() -> None:
    buffers = Buffers(4 * LONG)
    small, large = [buffers.borrow(LONG) for _ in range(6)], buffers.borrow(3 * LONG)
    for buffer in small:
        buffers.put_back(buffer)
    assert buffers.free_bytes <= 4 * LONG
    buffers.put_back(large)
    assert buffers.borrow(3 * LONG).obj is large.obj
    huge = buffers.borrow(5 * LONG)
    buffers.put_back(huge)
    assert buffers.borrow(5 * LONG).obj is not huge.obj


def test_malformed_lengths_are_refused_when_receiving_into_buffers() -> None:
    with pytest.raises(DelimitedError, match="a message of 200 bytes is too long: at most 128"):
        _received(DelimitedBuffers(128, Buffers(0)), delimited(bytes(200)))
    with pytest.raises(DelimitedError, match="do not start with the length of a message"):
        _received(DelimitedBuffers(128, Buffers(0)), b"\xff" * 5)


@pytest.mark.parametrize("length", [129, 20_000, 1 << 20, 1 << 34])
def test_a_message_that_is_too_long_is_refused_by_its_length(length: int) -> None:
    prefix, rest = bytearray(), length
    while rest > 0x7F:
        prefix.append(rest & 0x7F | 0x80)
        rest >>= 7
    prefix.append(rest)
    with pytest.raises(DelimitedError, match=f"a message of {length} bytes is too long: at most 128"):
        DelimitedReader(128).receive(bytes(prefix) + b"x")


def test_a_message_in_a_single_read_has_the_same_limit() -> None:
    with pytest.raises(DelimitedError, match="a message of 200 bytes is too long"):
        DelimitedReader(128).receive(delimited(bytes(200)))


def test_a_malformed_length_is_refused() -> None:
    reader = DelimitedReader(128)
    assert reader.receive(b"\xff\xff") == []
    with pytest.raises(DelimitedError, match="do not start with the length of a message"):
        reader.receive(b"\xff\xff\xff")
