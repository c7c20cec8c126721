"""Write one H.264 or H.265 stream as fragmented MP4 (ISO/IEC 14496-12 and -15) without recoding, for browsers.

Pictures are written as they come. After a crash the file is complete up to its last fragment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from embereye.wire.video.bits import without_emulation_prevention
from embereye.wire.video.nal import nal_units

TIMESCALE = 90_000  # ticks in a second
FRAGMENT_SAMPLES = 16  # pictures in a fragment at most; the next one starts at a key frame, or after this many
LONGEST_TICKS = 10 * TIMESCALE  # between two pictures
LIVE_TICKS = TIMESCALE  # duration of a live picture; players discard pictures after a gap of twice as long
_KEY, _OTHER = (
    0x0200_0000,
    0x0101_0000,
)  # flags of a sample: it depends on no other; it does, and decoding cannot start there
_MATRIX = b"".join(value.to_bytes(4) for value in (0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x4000_0000))
_TYPES = {"H264": (0, 0x1F), "H265": (1, 0x3F)}  # position of a NAL unit's type in its first byte: shift, mask
_SLICES = {"H264": range(1, 6), "H265": range(32)}
_SETS: dict[str, Sequence[int]] = {"H264": (7, 8), "H265": (32, 33, 34)}  # types of parameter sets
_MAIN_10 = 2  # H.265 profile


class Mp4Error(ValueError):
    """The pictures cannot be put into an MP4 file."""


@dataclass(frozen=True)
class _Sample:
    data: bytes
    shown: int  # ticks
    key: bool


class Mp4Muxer:
    """Makes one file: `begin`, then `sample` for each access unit in decoding order, then `finish`; join the bytes."""

    def __init__(self, encoding: str, width: int, height: int) -> None:
        self._encoding = encoding
        self.width, self.height = width, height
        self._first_ns: int | None = None
        self._decoded = -1  # ticks of the latest sample written
        self._waiting: list[_Sample] = []
        self._latest = -1  # ticks at which the last of all samples so far is shown
        self._fragments = 0

    def begin(self, first: bytes) -> bytes:
        """The head of the file. `first` is its first access unit (annex B) with its parameter sets.

        Mp4Error if they are missing.
        """
        entry = self._entry(list(nal_units(first)))
        stsd = _full("stsd", 0, 0, (1).to_bytes(4), entry)
        empty = [_full(name, 0, 0, bytes(size)) for name, size in (("stts", 4), ("stsc", 4), ("stsz", 8), ("stco", 4))]
        dinf = _box("dinf", _full("dref", 0, 0, (1).to_bytes(4), _full("url ", 0, 1)))
        minf = _box("minf", _full("vmhd", 0, 1, bytes(8)), dinf, _box("stbl", stsd, *empty))
        mdhd = _full("mdhd", 0, 0, bytes(8), TIMESCALE.to_bytes(4), bytes(4), b"\x55\xc4\0\0")
        hdlr = _full("hdlr", 0, 0, bytes(4), b"vide", bytes(12), b"video\0")
        size = (self.width << 16).to_bytes(4) + (self.height << 16).to_bytes(4)
        tkhd = _full("tkhd", 0, 3, bytes(8), (1).to_bytes(4), bytes(4 + 4 + 8 + 8), _MATRIX, size)
        trak = _box("trak", tkhd, _box("mdia", mdhd, hdlr, minf))
        mvhd = _full("mvhd", 0, 0, bytes(8), TIMESCALE.to_bytes(4), bytes(4), (0x10000).to_bytes(4), b"\1\0",
                     bytes(10), _MATRIX, bytes(24), (2).to_bytes(4))  # fmt: skip
        mvex = _box("mvex", _full("trex", 0, 0, (1).to_bytes(4), (1).to_bytes(4), bytes(12)))
        brands = b"iso5" + (512).to_bytes(4) + b"iso5iso6mp41"
        return _box("ftyp", brands) + _box("moov", mvhd, trak, mvex)

    def _entry(self, nals: Sequence[bytes]) -> bytes:
        """The sample entry, which configures the decoder."""
        kinds = _SETS[self._encoding]
        sets = [[nal for nal in nals if self._type(nal) == kind] for kind in kinds]
        if not all(sets) or max(map(len, sets)) > 31:
            raise Mp4Error(f"its first picture has no parameter sets of types {kinds}")
        config = _box("avcC", _avc(*sets)) if self._encoding == "H264" else _box("hvcC", _hevc(kinds, sets))
        name = "avc1" if self._encoding == "H264" else "hvc1"
        size = self.width.to_bytes(2) + self.height.to_bytes(2)
        return _box(
            name, bytes(6), b"\0\1", bytes(16), size, b"\0\x48\0\0\0\x48\0\0", bytes(4), b"\0\1", bytes(32),
            b"\0\x18\xff\xff", config,
        )  # fmt: skip

    def _type(self, nal: bytes) -> int:
        shift, mask = _TYPES[self._encoding]
        return nal[0] >> shift & mask

    def has_slice(self, data: bytes) -> bool:
        """True if an access unit (annex B) has a part of its picture. FFmpeg and browsers stop at a sample without."""
        return any(self._type(nal) in _SLICES[self._encoding] for nal in nal_units(data))

    def sample(self, data: bytes, time_ns: int, *, key: bool) -> bytes:
        """Add an access unit (annex B) to be shown at `time_ns`; return the bytes to write now, which may be empty."""
        if self._first_ns is None:
            self._first_ns = time_ns
        shown = (time_ns - self._first_ns) * TIMESCALE // 1_000_000_000
        shown = max(0, min(shown, self._latest + LONGEST_TICKS) if self._latest >= 0 else shown)
        written = b""
        # Samples behind the latest picture so far may be shown before it, so a fragment ends before a later one.
        if self._waiting and shown > self._latest and (key or len(self._waiting) >= FRAGMENT_SAMPLES):
            written = self._fragment(shown)
        lengths = b"".join(len(nal).to_bytes(4) + nal for nal in nal_units(data))
        self._waiting.append(_Sample(lengths, shown, key))
        self._latest = max(self._latest, shown)
        return written

    def finish(self) -> bytes:
        """Return the rest of the file."""
        return self._fragment(self._latest + TIMESCALE // 15) if self._waiting else b""

    def _fragment(self, following: int) -> bytes:
        """Write the waiting samples; the next one is shown after `following` ticks at the earliest.

        Samples are decoded in order of arrival, at the sorted times at which they are shown.
        """
        samples, self._waiting = self._waiting, []
        self._fragments += 1
        decoded: list[int] = []
        for shown in sorted(sample.shown for sample in samples):
            self._decoded = max(self._decoded + 1, shown)
            decoded.append(self._decoded)
        ends = [*decoded[1:], max(self._decoded + 1, following)]
        rows = [
            _row(len(sample.data), begin, end, sample.shown, key=sample.key)
            for sample, begin, end in zip(samples, decoded, ends, strict=True)
        ]
        return _moof(self._fragments, decoded[0], rows) + _box("mdat", *(sample.data for sample in samples))


class LiveMuxer:
    """Makes one fragment of each access unit at once, for a player that joins at any key frame.

    The head of a file precedes each key frame. Media times are nanoseconds since the Unix epoch in ticks, so
    players need no other clock. The time until the next picture is not known yet. Each one is said to last
    `LIVE_TICKS`, and the next one replaces it.
    """

    def __init__(self) -> None:
        self._decoded = 0  # ticks of the latest fragment; 0: none
        self._lead = 0  # ticks by which pictures are decoded before they are shown, where some are shown out of order
        self._latest = 0  # ticks at which the last of all pictures so far is shown
        self._fragments = 0

    def fragment(self, encoding: str, size: tuple[int, int], data: bytes, time_ns: int, *, key: bool) -> bytes:
        """The bytes of the access unit `data` (annex B), to be shown at `time_ns`, Unix epoch.

        Empty before the first key frame, and where a player could not continue; then the next key frame helps.
        Mp4Error if a key frame has no parameter sets.
        """
        muxer = Mp4Muxer(encoding, *size)
        shown = time_ns * TIMESCALE // 1_000_000_000
        if not (key or self._decoded) or not muxer.has_slice(data):
            return b""
        if self._decoded and abs(shown - self._latest) > LONGEST_TICKS:  # the clock was set, or pictures were away
            self._decoded = self._lead = self._latest = 0
            if not key:
                return b""
        self._lead = max(self._lead, self._latest - shown)
        self._latest = max(self._latest, shown)
        self._decoded = max(self._decoded + 1, shown - self._lead)
        self._fragments += 1
        lengths = b"".join(len(nal).to_bytes(4) + nal for nal in nal_units(data))
        row = _row(len(lengths), self._decoded, self._decoded + LIVE_TICKS, shown, key=key)
        moof = _moof(self._fragments, self._decoded, [row])
        return (muxer.begin(data) if key else b"") + moof + _box("mdat", lengths)


def is_start_of_video(data: bytes) -> bool:
    """True if `data`, made by `LiveMuxer`, begins with a head: a player can start here."""
    return data[4:8] == b"ftyp"


def _row(size: int, begin: int, end: int, shown: int, *, key: bool) -> bytes:
    """A sample in a fragment's table: duration, size, flags, and time from decoding to presentation."""
    flags = _KEY if key else _OTHER
    return (end - begin).to_bytes(4) + size.to_bytes(4) + flags.to_bytes(4) + (shown - begin).to_bytes(4, signed=True)


def _moof(number: int, decoded: int, rows: Sequence[bytes]) -> bytes:
    """The box before the data of a fragment that is decoded from `decoded` ticks on."""
    mfhd = _full("mfhd", 0, 0, (number & 0xFFFF_FFFF).to_bytes(4))
    tfhd = _full("tfhd", 0, 0x020000, (1).to_bytes(4))  # offsets count from the start of the fragment
    tfdt = _full("tfdt", 1, 0, decoded.to_bytes(8))
    # trun's data offset is that of mdat's content: the boxes before it and 8.
    size = 8 + len(mfhd) + 8 + len(tfhd) + len(tfdt) + 20 + sum(map(len, rows))
    trun = _full("trun", 1, 0xF01, len(rows).to_bytes(4), (size + 8).to_bytes(4), *rows)
    return _box("moof", mfhd, _box("traf", tfhd, tfdt, trun))


def complete_size(data: bytes) -> int:
    """The offset behind the last whole fragment in a file that `Mp4Muxer` wrote, even if it breaks off; 0 if none.

    Players stop at an incomplete fragment.
    """
    at = complete = 0
    while (size := int.from_bytes(data[at : at + 4])) >= 8 and at + size <= len(data):
        if data[at + 4 : at + 8] == b"mdat":
            complete = at + size
        at += size
    return complete


def _avc(sequences: Sequence[bytes], pictures: Sequence[bytes]) -> bytes:
    """AVCDecoderConfigurationRecord (ISO/IEC 14496-15, 5.3.3)."""
    first = sequences[0]
    record = [b"\1" + first[1:4] + b"\xff", bytes((0xE0 | len(sequences),))]
    record += [len(nal).to_bytes(2) + nal for nal in sequences]
    record.append(bytes((len(pictures),)))
    record += [len(nal).to_bytes(2) + nal for nal in pictures]
    return b"".join(record)


def _hevc(kinds: Sequence[int], sets: Sequence[Sequence[bytes]]) -> bytes:
    """HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3), for 4:2:0."""
    sequence = without_emulation_prevention(sets[1][0])
    layers, nested = (sequence[2] >> 1 & 7) + 1, sequence[2] & 1
    profile = sequence[3:15]  # the general part of profile_tier_level
    depth = 2 if profile[0] & 0x1F == _MAIN_10 else 0  # bits beyond 8
    head = b"\1" + profile + b"\xf0\0\xfc\xfd" + bytes((0xF8 | depth, 0xF8 | depth)) + b"\0\0"
    record = [head, bytes((layers << 3 | nested << 2 | 3, len(kinds)))]
    for kind, nals in zip(kinds, sets, strict=True):
        record.append(bytes((0x80 | kind,)) + len(nals).to_bytes(2))
        record += [len(nal).to_bytes(2) + nal for nal in nals]
    return b"".join(record)


def _box(name: str, *content: bytes) -> bytes:
    body = b"".join(content)
    return (8 + len(body)).to_bytes(4) + name.encode() + body


def _full(name: str, version: int, flags: int, *content: bytes) -> bytes:
    return _box(name, bytes((version,)) + flags.to_bytes(3), *content)
