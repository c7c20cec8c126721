"""Convert H.264 and H.265 NAL units to RTP payloads and back (RFC 6184, RFC 7798).

Each codec has a class with the same methods and no state. A received payload has one NAL unit, several small ones, or
a fragment of a large one; `parts` returns them, and the receiver joins fragments from the one with `start` to the one
with `end`. `payloads` is the sender's direction, for simulators.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from embereye.units import counted
from embereye.wire.rtp.payload_header import PayloadError
from embereye.wire.video.nal import has_start_code

MAX_PAYLOAD = 1_400  # bytes of a payload that fits into one packet of Ethernet
FU_START, FU_END = 0x80, 0x40
STAP_A, FU_A = 24, 28  # RFC 6184
AP, FU, PACI = 48, 49, 50  # RFC 7798
_IGNORED = frozenset({0, 30, 31})  # RFC 6184, 5.2; cameras put proprietary data in them


class NalPart(NamedTuple):
    """A NAL unit, or a part of one. `start` and `end`: it has the first, the last byte."""

    data: bytes
    start: bool = True
    end: bool = True
    head: bytes = b""  # of a part: the header of the whole NAL unit


class NalFormat(Protocol):
    """The RTP payload format of one codec."""

    fragment_header: int  # bytes before the fragment of a NAL unit in a fragment's payload

    def inner_fragment(self, payload: memoryview) -> bytes:
        """The NAL unit's header if `payload` has a fragment of it that is neither the first nor the last; else b"".

        The payload is longer than `fragment_header`.
        """

    def parts(self, payload: memoryview) -> Sequence[NalPart]:
        """The NAL units in a packet's `payload`; PayloadError if it is malformed or unsupported.

        Empty payloads, which keep a NAT open, and types that receivers must ignore have none.
        """

    def payloads(self, nals: Iterable[bytes], limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
        """Yield the payloads, `limit` bytes at most, of one access unit's `nals`: small ones joined, large ones cut."""


class H264Format:
    """RFC 6184 with packetization modes 0 and 1; the interleaved mode 2 is not supported."""

    fragment_header = 2

    def inner_fragment(self, payload: memoryview) -> bytes:
        """The NAL unit's header if `payload` has a fragment of it that is neither the first nor the last; else b""."""
        if payload[0] & 0x1F != FU_A or payload[1] & (FU_START | FU_END):
            return b""
        return bytes((payload[0] & 0xE0 | payload[1] & 0x1F,))

    def parts(self, payload: memoryview) -> Sequence[NalPart]:
        """The NAL units in `payload`; PayloadError if it is malformed or unsupported."""
        if not payload:
            return ()
        kind = payload[0] & 0x1F
        if 1 <= kind <= 23 or (kind == 0 and has_start_code(payload)):
            return (NalPart(bytes(payload)),)
        if kind in _IGNORED:
            return ()
        if len(payload) < 2:
            raise PayloadError(f"{counted(len(payload), 'byte')} of payload, type {kind} needs at least 2")
        if kind == STAP_A:
            return _aggregated(payload, 1)
        if kind == FU_A:
            start = payload[1] >= FU_START
            head = bytes((payload[0] & 0xE0 | payload[1] & 0x1F,))
            data = head + payload[2:] if start else bytes(payload[2:])
            return (NalPart(data, start, bool(payload[1] & FU_END), head),)
        raise PayloadError(f"NAL unit type {kind}: packetization-mode 2 is not supported. Set the camera to mode 1.")

    def payloads(self, nals: Iterable[bytes], limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
        """Yield the payloads of `nals`."""
        for group in _grouped(nals, limit - 1):
            if len(group) > 1:
                importance = max(nal[0] & 0x60 for nal in group)
                yield bytes((importance | STAP_A,)) + _joined(group)
            elif len(group[0]) <= limit:
                yield group[0]
            else:
                nal = group[0]
                for flags, part in _cut(nal[1:], limit - 2):
                    yield bytes((nal[0] & 0xE0 | FU_A, flags | nal[0] & 0x1F)) + part


class H265Format:
    """RFC 7798 without decoding order numbers, which no camera sends."""

    fragment_header = 3

    def inner_fragment(self, payload: memoryview) -> bytes:
        """The NAL unit's header if `payload` has a fragment of it that is neither the first nor the last; else b""."""
        if payload[0] >> 1 & 0x3F != FU or payload[2] & (FU_START | FU_END):
            return b""
        return bytes((payload[0] & 0x81 | (payload[2] & 0x3F) << 1, payload[1]))

    def parts(self, payload: memoryview) -> Sequence[NalPart]:
        """The NAL units in `payload`; PayloadError if it is malformed or unsupported."""
        if not payload:
            return ()
        kind = payload[0] >> 1 & 0x3F
        if kind < AP:
            return (NalPart(bytes(payload)),)
        if kind > PACI:
            return ()
        if len(payload) < 3:
            raise PayloadError(f"{counted(len(payload), 'byte')} of payload, type {kind} needs at least 3")
        if kind == AP:
            return _aggregated(payload, 2)
        if kind == FU:
            start = payload[2] >= FU_START
            head = bytes((payload[0] & 0x81 | (payload[2] & 0x3F) << 1, payload[1]))
            data = head + payload[3:] if start else bytes(payload[3:])
            return (NalPart(data, start, bool(payload[2] & FU_END), head),)
        raise PayloadError(f"NAL unit type {kind} is not supported")

    def payloads(self, nals: Iterable[bytes], limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
        """Yield the payloads of `nals`."""
        for group in _grouped(nals, limit - 2):
            if len(group) > 1:
                layer = min((nal[0] & 1, nal[1]) for nal in group)
                yield bytes((AP << 1 | layer[0], layer[1])) + _joined(group)
            elif len(group[0]) <= limit:
                yield group[0]
            else:
                nal = group[0]
                for flags, part in _cut(nal[2:], limit - 3):
                    yield bytes((nal[0] & 0x81 | FU << 1, nal[1], flags | nal[0] >> 1 & 0x3F)) + part


def _aggregated(payload: memoryview, start: int) -> Sequence[NalPart]:
    parts = []
    while any(payload[start:]):  # some senders add padding behind the last one
        size = int.from_bytes(payload[start : start + 2])
        end = start + 2 + size
        if not size or end > len(payload):
            raise PayloadError("a truncated aggregation packet")
        parts.append(NalPart(bytes(payload[start + 2 : end])))
        start = end
    return parts


def _joined(group: Iterable[bytes]) -> bytes:
    return b"".join(len(nal).to_bytes(2) + nal for nal in group)


def _grouped(nals: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Group `nals` to fit into payloads of `limit` bytes, with two more bytes for each; larger ones are alone."""
    group: list[bytes] = []
    size = 0
    for nal in nals:
        if group and size + len(nal) + 2 > limit:
            yield group
            group, size = [], 0
        group.append(nal)
        size += len(nal) + 2
    if group:
        yield group


def _cut(data: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(data), limit):
        flags = FU_START * (start == 0) | FU_END * (start + limit >= len(data))
        yield flags, data[start : start + limit]
