"""Read H.265's NAL units (ITU-T H.265, clauses 7.3 and 7.4)."""

from embereye.wire.video.bits import BitReader, BitsError
from embereye.wire.video.nal import NalKind, NalUnit, VideoError, checked_size, remembering

LAST_SLICE, FIRST_KEY, LAST_KEY, CRA = 31, 16, 23, 21
VPS, SPS, PPS, DELIMITER, SEI = 32, 33, 34, 35, 39
_ENDS = frozenset({36, 37})  # end of a sequence, end of the stream; a header alone
SUBLAYER_SLICES = 14  # up to this type, slices with even types are not referred to by their own layer
_PREFIXES = frozenset({DELIMITER, SEI, *range(41, 45), *range(48, 56)})
_CHROMA_STEP = {0: (1, 1), 1: (2, 2), 2: (2, 1), 3: (1, 1)}  # pixels of the conformance window, across and down


class H265:
    """The H.265 `Codec`."""

    name = "H265"

    def inspect(self, nal: bytes) -> NalUnit:
        """Read the header of `nal`; VideoError if it must not be decoded."""
        if len(nal) < 2 or nal[0] & 0x80 or not nal[1] & 7:
            raise VideoError("not an H.265 NAL unit")
        kind, layer = nal[0] >> 1 & 0x3F, (nal[1] & 7) - 1
        if len(nal) < 3 and kind not in _ENDS:
            raise VideoError("not an H.265 NAL unit")
        if nal[0] & 1 or nal[1] >> 3:
            return NalUnit(NalKind.UNUSED)  # belongs to another view, or to a finer picture
        if kind <= LAST_SLICE:
            key = FIRST_KEY <= kind <= LAST_KEY
            reference = kind > SUBLAYER_SLICES or kind % 2 == 1
            return NalUnit(NalKind.SLICE, first_slice=nal[2] >= 0x80, key=key, closed=key and kind < CRA,
                           reference=reference, layer=layer)  # fmt: skip
        try:
            if kind == VPS:
                return NalUnit(NalKind.PARAMETERS, parameter=(VPS, nal[2] >> 4))
            if kind == SPS:
                return _sps(nal)
            if kind == PPS:
                return _pps(nal)
        except BitsError as error:
            raise VideoError(f"H.265 NAL unit of type {kind}: {error}") from error
        return NalUnit(NalKind.PREFIX if kind in _PREFIXES else NalKind.OTHER)

    def is_intra(self, nal: bytes) -> bool:
        """Always False: pictures that decoding can start at have separate types."""
        return False


@remembering
def _pps(nal: bytes) -> NalUnit:
    return NalUnit(NalKind.PARAMETERS, parameter=(PPS, BitReader(nal[2:12]).unsigned()))


@remembering
def _sps(nal: bytes) -> NalUnit:
    bits = BitReader(nal[2:])
    bits.skip(4)
    layers = bits.bits(3)
    bits.skip(1)
    _skip_profile(bits, layers)
    number, chroma = bits.unsigned(), bits.unsigned()
    if chroma > 3:
        raise BitsError(f"chroma format {chroma}, at most 3")
    if chroma == 3:
        bits.skip(1)
    width, height = bits.unsigned(), bits.unsigned()
    if bits.flag():
        left, right, top, bottom = (bits.unsigned() for _ in range(4))
        across, down = _CHROMA_STEP[chroma]
        width -= across * (left + right)
        height -= down * (top + bottom)
    return NalUnit(NalKind.PARAMETERS, parameter=(SPS, number), size=checked_size(width, height))


def _skip_profile(bits: BitReader, layers: int) -> None:
    """Skip profile_tier_level (7.3.3) of the first sub-layer and `layers` more."""
    bits.skip(88 + 8)
    present = [(bits.flag(), bits.flag()) for _ in range(layers)]
    if layers:
        bits.skip(2 * (8 - layers))
    for profile, level in present:
        bits.skip(88 * profile + 8 * level)
