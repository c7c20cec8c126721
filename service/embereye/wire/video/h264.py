"""Read H.264's NAL units (ITU-T H.264, clauses 7.3 and 7.4).

`H264.inspect` reads only the fields that decide about an access unit: the NAL unit's kind, the start of a picture, key
frames, recovery points, the id of a parameter set and its pictures' size. Slices are judged by their first two bytes.
What our decoder cannot or must not decode raises VideoError.
"""

import contextlib
import re
from functools import cache

from embereye.wire.video.bits import BitReader, BitsError, without_emulation_prevention
from embereye.wire.video.nal import NalKind, NalUnit, VideoError, checked_size, remembering

NON_IDR, PARTITIONS, IDR, SEI, SPS, PPS = 1, (2, 3, 4), 5, 6, 7, 8
RECOVERY_POINT = 6  # type of supplemental information
SEI_MESSAGES, SEI_BYTES = 32, 4_096  # most that are read in one NAL unit
_FULL_BYTES = re.compile(rb"\xff*")
_SLICES = frozenset({NON_IDR, IDR})
_PREFIXES = frozenset({SEI, 9, 15, 16, 17, 18})  # 9: the delimiter
_ENDS = frozenset({10, 11})  # end of a sequence, end of the stream; a single byte
_UNUSED = frozenset({14, 20, 21})  # scalable and multiview extensions
_CHROMA_PROFILES = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_CHROMA_STEP = {0: (1, 1), 1: (2, 2), 2: (2, 1), 3: (1, 1)}  # pixels of cropping, across and down
_INTRA = frozenset({2, 4, 7, 9})  # slice types


class H264:
    """The H.264 `Codec`."""

    name = "H264"

    def inspect(self, nal: bytes) -> NalUnit:
        """Read the header of `nal`; VideoError if it must not be decoded."""
        if not nal or nal[0] & 0x80:
            raise VideoError("not an H.264 NAL unit")
        kind, reference = nal[0] & 0x1F, nal[0] >> 5 != 0
        if kind in _ENDS:
            return NalUnit(NalKind.OTHER)
        if len(nal) < 2:
            raise VideoError("not an H.264 NAL unit")
        if kind in _SLICES:
            return _slice(first_slice=nal[1] >= 0x80, key=kind == IDR, reference=reference)
        if kind in PARTITIONS:
            raise VideoError("data partitioning is not supported")
        try:
            if kind == SPS:
                return _sps(nal)
            if kind == PPS:
                return _pps(nal)
            if kind == SEI:
                return NalUnit(NalKind.PREFIX, recovery=_recovery(nal))
        except BitsError as error:
            raise VideoError(f"H.264 NAL unit of type {kind}: {error}") from error
        if kind in _PREFIXES:
            return NalUnit(NalKind.PREFIX)
        return NalUnit(NalKind.UNUSED if kind in _UNUSED else NalKind.OTHER)

    def is_intra(self, nal: bytes) -> bool:
        """True if the slice `nal` refers to no other picture."""
        bits = BitReader(nal[1:20])
        try:
            bits.unsigned()
            return bits.unsigned() in _INTRA
        except BitsError:
            return False


@cache
def _slice(*, first_slice: bool, key: bool, reference: bool) -> NalUnit:
    return NalUnit(NalKind.SLICE, first_slice=first_slice, key=key, closed=key, reference=reference)


def _recovery(nal: bytes) -> int:
    """The count of a recovery point (annex D.1.8) in supplemental information; -1 if there is none."""
    nal = without_emulation_prevention(nal[:SEI_BYTES])
    at = 1
    for _ in range(SEI_MESSAGES):
        kind, at = _sei_number(nal, at)
        size, at = _sei_number(nal, at)
        if kind == RECOVERY_POINT:
            with contextlib.suppress(BitsError):  # proprietary data of cameras may be shorter than stated
                return BitReader(nal[at : at + size + 1]).unsigned()
            return -1
        at += size
        if at + 2 >= len(nal):
            break
    return -1


def _sei_number(nal: bytes, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and the offset behind it: 255 for each byte ff, plus the byte behind these."""
    match = _FULL_BYTES.match(nal, at)
    end = match.end() if match else at
    total = 255 * (end - at)
    return (total + nal[end], end + 1) if end < len(nal) else (total, end)


@remembering
def _pps(nal: bytes) -> NalUnit:
    return NalUnit(NalKind.PARAMETERS, parameter=(PPS, BitReader(nal[1:12]).unsigned()))


@remembering
def _sps(nal: bytes) -> NalUnit:
    bits = BitReader(nal[1:])
    profile = bits.bits(8)
    bits.skip(16)
    number = bits.unsigned()
    chroma = _read_chroma(bits) if profile in _CHROMA_PROFILES else 1
    bits.unsigned()  # log2_max_frame_num
    order = bits.unsigned()
    if order == 0:
        bits.unsigned()
    elif order == 1:
        bits.skip(1)
        bits.signed()
        bits.signed()
        for _ in range(_bounded(bits.unsigned(), 255)):
            bits.signed()
    bits.unsigned()  # max_num_ref_frames
    bits.skip(1)
    width, height = 16 * (bits.unsigned() + 1), 16 * (bits.unsigned() + 1)
    frames_only = bits.flag()
    if not frames_only:
        height *= 2
        bits.skip(1)
    bits.skip(1)
    across, down = _CHROMA_STEP[chroma]
    if bits.flag():
        left, right, top, bottom = (bits.unsigned() for _ in range(4))
        width -= across * (left + right)
        height -= down * (1 if frames_only else 2) * (top + bottom)
    return NalUnit(NalKind.PARAMETERS, parameter=(SPS, number), size=checked_size(width, height))


def _read_chroma(bits: BitReader) -> int:
    """Read the chroma format, and skip what follows it up to the frame number."""
    chroma = _bounded(bits.unsigned(), 3)
    if chroma == 3:
        bits.skip(1)
    bits.unsigned()
    bits.unsigned()
    bits.skip(1)
    if bits.flag():
        for number in range(12 if chroma == 3 else 8):
            if bits.flag():
                _skip_scaling_list(bits, 16 if number < 6 else 64)
    return chroma


def _skip_scaling_list(bits: BitReader, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.signed()) % 256
        last = following or last


def _bounded(value: int, most: int) -> int:
    if value > most:
        raise BitsError(f"{value}, at most {most}")
    return value
