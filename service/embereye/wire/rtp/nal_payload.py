"""H.264 and H.265 in RTP (RFC 6184, RFC 7798): payloads to parts of NAL units, and NAL units to payloads."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from embereye.units import counted
from embereye.wire.rtp.payload_header import PayloadError
from embereye.wire.video.nal import begins_with_start_code

MAX_PAYLOAD = 1_400  # bytes of a payload that fits into one packet of Ethernet
FU_START, FU_END = 0x80, 0x40
STAP_A, FU_A = 24, 28  # RFC 6184
AP, FU, PACI = 48, 49, 50  # RFC 7798
_IGNORED = frozenset({0, 30, 31})  # RFC 6184, 5.2; cameras have data of their own in them


class NalPart(NamedTuple):
    """A NAL unit, or a part of one. `start` and `end` say whether it has the first and the last byte."""

    data: bytes
    start: bool = True
    end: bool = True
    head: bytes = b""  # of a part: the header of the whole


class NalFormat(Protocol):
    """How one codec's NAL units travel."""

    fragment_header: int  # bytes before the part of a NAL unit in a payload that holds a part

    def inner_fragment(self, payload: memoryview) -> bytes:
        """The header of the NAL unit of which `payload` holds neither the first nor the last part; else b"".

        The payload is longer than `fragment_header`.
        """
        ...

    def parts(self, payload: memoryview) -> Sequence[NalPart]:
        """The NAL units in a packet's `payload`; PayloadError where it is none that is understood.

        Packets without a payload, which keep a way open, and types that receivers are to ignore, hold none.
        """
        ...

    def payloads(self, nals: Iterable[bytes], limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
        """The payloads of one access unit's `nals`, of `limit` bytes at most: small ones joined, large ones cut."""
        ...


class H264Format:
    """RFC 6184 with packetization modes 0 and 1; the interleaved mode 2 is not understood."""

    fragment_header = 2

    def inner_fragment(self, payload: memoryview) -> bytes:
        """The header of the NAL unit of which `payload` holds neither the first nor the last part; else b""."""
        if payload[0] & 0x1F != FU_A or payload[1] & (FU_START | FU_END):
            return b""
        return bytes((payload[0] & 0xE0 | payload[1] & 0x1F,))

    def parts(self, payload: memoryview) -> Sequence[NalPart]:
        """The NAL units in `payload`; PayloadError where it is none that is understood."""
        if not payload:
            return ()
        kind = payload[0] & 0x1F
        if 1 <= kind <= 23 or (kind == 0 and begins_with_start_code(payload)):
            return (NalPart(bytes(payload)),)
        if kind in _IGNORED:
            return ()
        if len(payload) < 2:
            raise PayloadError(f"{counted(len(payload), 'byte')} of payload, type {kind} has 2 at least")
        if kind == STAP_A:
            return _aggregated(payload, 1)
        if kind == FU_A:
            start = payload[1] >= FU_START
            head = bytes((payload[0] & 0xE0 | payload[1] & 0x1F,))
            data = head + payload[2:] if start else bytes(payload[2:])
            return (NalPart(data, start, bool(payload[1] & FU_END), head),)
        raise PayloadError(f"NAL unit type {kind}: packetization-mode 2 is not understood, set the camera to mode 1")

    def payloads(self, nals: Iterable[bytes], limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
        """The payloads of `nals`."""
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
        """The header of the NAL unit of which `payload` holds neither the first nor the last part; else b""."""
        if payload[0] >> 1 & 0x3F != FU or payload[2] & (FU_START | FU_END):
            return b""
        return bytes((payload[0] & 0x81 | (payload[2] & 0x3F) << 1, payload[1]))

    def parts(self, payload: memoryview) -> Sequence[NalPart]:
        """The NAL units in `payload`; PayloadError where it is none that is understood."""
        if not payload:
            return ()
        kind = payload[0] >> 1 & 0x3F
        if kind < AP:
            return (NalPart(bytes(payload)),)
        if kind > PACI:
            return ()
        if len(payload) < 3:
            raise PayloadError(f"{counted(len(payload), 'byte')} of payload, type {kind} has 3 at least")
        if kind == AP:
            return _aggregated(payload, 2)
        if kind == FU:
            start = payload[2] >= FU_START
            head = bytes((payload[0] & 0x81 | (payload[2] & 0x3F) << 1, payload[1]))
            data = head + payload[3:] if start else bytes(payload[3:])
            return (NalPart(data, start, bool(payload[2] & FU_END), head),)
        raise PayloadError(f"NAL unit type {kind} is not understood")

    def payloads(self, nals: Iterable[bytes], limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
        """The payloads of `nals`."""
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
    while any(payload[start:]):  # some senders have padding behind the last one
        size = int.from_bytes(payload[start : start + 2])
        end = start + 2 + size
        if not size or end > len(payload):
            raise PayloadError("an aggregation packet cut short")
        parts.append(NalPart(bytes(payload[start + 2 : end])))
        start = end
    return parts


def _joined(group: Iterable[bytes]) -> bytes:
    return b"".join(len(nal).to_bytes(2) + nal for nal in group)


def _grouped(nals: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """`nals` in groups that fit into one payload of `limit` bytes, two more for each; larger ones alone."""
    group: list[bytes] = []
    held = 0
    for nal in nals:
        if group and held + len(nal) + 2 > limit:
            yield group
            group, held = [], 0
        group.append(nal)
        held += len(nal) + 2
    if group:
        yield group


def _cut(data: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(data), limit):
        flags = FU_START * (start == 0) | FU_END * (start + limit >= len(data))
        yield flags, data[start : start + limit]
