"""Reading a long field without a copy gives the same content as protobuf's parser."""

import os

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from embereye.v1.clips_pb2 import Clip, StoreRequest
from embereye.wire.fields import split_field

DATA = StoreRequest.DATA_FIELD_NUMBER
FIXED = b"\x79" + bytes(8) + b"\x7d" + bytes(4)  # unknown fields 15, of 8 and of 4 bytes
UNKNOWN = b"\xf8\x01\x96\x01" + FIXED + b"\xfa\x01\x02hi"


@given(
    st.binary(max_size=300),
    st.integers(0, 2**64 - 1),
    st.one_of(st.none(), st.text(max_size=40)),
    st.lists(st.sampled_from(("clip", "offset", "data", "unknown")), max_size=6),
)
def test_fields_in_any_order_are_read_like_by_the_parser(
    data: bytes, offset: int, device: str | None, order: list[str]
) -> None:
    clip = StoreRequest(clip=None if device is None else Clip(device=device))
    parts = {
        "clip": clip.SerializeToString(),
        "offset": StoreRequest(offset=offset).SerializeToString(),
        "data": StoreRequest(data=data).SerializeToString(),
        "unknown": UNKNOWN,
    }
    message = b"".join(parts[name] for name in order)
    rest, content = split_field(message, DATA)
    request = StoreRequest.FromString(rest)
    assert not request.data
    request.data = bytes(content)
    expected = StoreRequest.FromString(message)
    assert (request.clip, request.offset, request.data) == (expected.clip, expected.offset, expected.data)


def test_the_content_is_not_copied() -> None:
    message = StoreRequest(offset=7, data=os.urandom(1000)).SerializeToString()
    assert split_field(memoryview(message), DATA)[1].obj is message


@pytest.mark.parametrize(
    "message",
    [b"\x1a", b"\x1a\x05abcd", b"\x1a\xff", b"\x10", b"\x10" + b"\xff" * 10, b"\x0b\x0c", b"\x79abc", b"\x1f"],
)
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(DecodeError):
        split_field(message, DATA)


def test_any_bytes_are_split_or_refused_like_by_the_parser() -> None:
    for _ in range(3_000):
        message = os.urandom(6)
        try:
            rest, content = split_field(message, DATA)
        except DecodeError:
            continue  # the parser supports groups, which no message here has
        try:
            expected = StoreRequest.FromString(message)
        except DecodeError:
            with pytest.raises(DecodeError):
                StoreRequest.FromString(rest)
        else:
            assert (StoreRequest.FromString(rest).offset, bytes(content)) == (expected.offset, expected.data)
