"""Read a long field of a protobuf message without a copy; the library makes two, in parsing and on access."""

from google.protobuf.message import DecodeError

from embereye.wire.delimited import LENGTH_DELIMITED, Buffer

VARINT, FIXED_64, FIXED_32 = 0, 1, 5  # protobuf's other wire types; groups are not supported
MAX_VARINT = 10  # bytes


def split_field(message: Buffer, number: int) -> tuple[bytes, memoryview]:
    """Split `message` into its bytes without bytes field `number`, and that field's content (empty if absent).

    The field must not be repeated. DecodeError if the message is malformed.
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
            raise DecodeError(f"wire type {kind} is not supported")
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
    """(value, offset behind it)."""
    value = 0
    for place, byte in enumerate(view[start : start + MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    raise DecodeError("the message ends within a number, or a number is too long")
