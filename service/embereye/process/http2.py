"""The frames of an HTTP/2 connection (RFC 9113). Pure."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = struct.Struct(">HBBBI")  # a frame's header: length in 2 + 1 bytes, type, flags, stream
HEADER = FRAME.size
MAX_STREAM = 2**31 - 1  # the bit above is reserved, and ignored
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4  # types
CALL_FRAMES = frozenset({DATA, HEADERS, RST_STREAM, 8, 9})  # and WINDOW_UPDATE, CONTINUATION
ACK = 1  # flag of SETTINGS
ACKNOWLEDGEMENT = bytes((0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0))
MAX_SETTINGS = 1_024  # bytes of a client's settings, 6 for each


def greeting_length(data: bytes) -> int:
    """The bytes that preface and settings of a client have at the start of `data`; 0 if they are incomplete.

    ValueError if it is not HTTP/2.
    """
    start = len(PREFACE)
    if data[:start] != PREFACE[: len(data)]:
        raise ValueError("not HTTP/2")
    if len(data) < start + HEADER:
        return 0
    length, kind, flags = int.from_bytes(data[start : start + 3]), data[start + 3], data[start + 4]
    if kind != SETTINGS or flags & ACK or length > MAX_SETTINGS:
        raise ValueError("the first frame has no valid settings")
    end = start + HEADER + length
    return end if len(data) >= end else 0
