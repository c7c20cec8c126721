"""A protobuf message's long field, read without a copy: the library makes two, one to parse and one to hand out."""

from google.protobuf.message import DecodeError

from embereye.wire.delimited import LENGTH_DELIMITED, Buffer

VARINT, FIXED_64, FIXED_32 = 0, 1, 5  # protobuf's other wire types; groups are not read
MAX_VARINT = 10  # bytes


def split_field(message: Buffer, number: int) -> tuple[bytes, memoryview]:
    """(`message` without its bytes field `number`, which is not repeated; the content of that field, empty if absent).

    DecodeError where it is no message.
    """
    view = memoryview(message)
    rest, content = list[memoryview](), view[:0]
    start = 0
    while start < len(view):
        tag, at = _varint(view, start)
        kind = tag & 7
        if kind == LENGTH_DELIMITED:
            size, at = _varint(view, at)
        elif kind == VARINT:
            size, at = 0, _varint(view, at)[1]
        elif kind in (FIXED_64, FIXED_32):
            size = 8 if kind == FIXED_64 else 4
        else:
            raise DecodeError(f"wire type {kind} is not read here")
        end = at + size
        if end > len(view):
            raise DecodeError("the message ends within a field")
        if kind == LENGTH_DELIMITED and tag >> 3 == number:
            content = view[at:end]
        else:
            rest.append(view[start:end])
        start = end
    return b"".join(rest), content


def _varint(view: memoryview, start: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = 0
    for place, byte in enumerate(view[start : start + MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    raise DecodeError("the message ends within a number, or has one that is too long")
