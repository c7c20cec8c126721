"""A JPEG's header, parsed without decoding a pixel (ITU-T T.81, annex B).

Frames are checked here before any decoder sees them. `read_header` walks the segments up to the first scan, and refuses
what is too large, has too many scans, or cannot be decoded. `Headers` does the same for one camera, whose header rarely
changes: if a frame starts with the same bytes and ends with the end marker, the previous result is valid.
"""

from dataclasses import dataclass

from embereye.units import counted

MAX_SIDE = 8_192  # pixels; cameras have fewer, decompression bombs more
MAX_PIXELS = 40_000_000
MAX_SCANS = 100  # each scan, even an empty one, is a pass over the whole picture: thousands take minutes to decode
MAX_SEGMENTS = 512  # before the first scan
SOI, EOI, SOS = b"\xff\xd8", b"\xff\xd9", 0xDA
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length: TEM, RST0..7
_FRAMES = frozenset(set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC})  # SOF0..15 less DHT, JPG, DAC
_DECODABLE = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended sequential, progressive; Huffman coded


class JpegError(ValueError):
    """The bytes are not a picture that may be decoded; `reason` labels the error in the ledger."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(frozen=True)
class JpegHeader:
    """The properties of a JPEG. `complete` is False if the end marker is missing, and perhaps more."""

    width: int  # pixels
    height: int  # pixels
    components: int  # 1: grey, 3: colour, 4: CMYK
    is_multi_scan: bool  # it has, or may have, several scans
    complete: bool


def scan_start(data: bytes | bytearray | memoryview, offset: int = 2) -> tuple[int, int, bool]:
    """Walk the segments from `offset` to the first scan: (offset reached, offset behind SOS or 0, malformed).

    With more bytes, continue at the offset reached. Embedded thumbnails are inside segments, so an end-of-image marker
    behind SOS belongs to the picture itself.
    """
    size = len(data)
    while offset + 4 <= size:
        if data[offset] != 0xFF:
            return offset, 0, True
        marker = data[offset + 1]
        if marker == 0xFF:  # fill byte
            offset += 1
        elif marker in _STANDALONE:
            offset += 2
        else:
            length = data[offset + 2] << 8 | data[offset + 3]
            if length < 2 or marker in {0x00, 0xD8, 0xD9}:
                return offset, 0, True
            if marker == SOS:
                return offset, offset + 2 + length, False
            offset += 2 + length
    return offset, 0, False


def read_header(data: bytes) -> JpegHeader:  # noqa: C901, PLR0912 -- one loop over the segments, a branch for each kind
    """The header of a JPEG. JpegError if it is not a JPEG, or one that must not be decoded."""
    if data[:2] != SOI:
        raise JpegError("not a JPEG", f"starts with {data[:2].hex() or 'nothing'}, not ffd8")
    size, offset, frame = len(data), 2, None
    for _ in range(MAX_SEGMENTS):
        if offset + 4 > size:
            raise JpegError("truncated", f"ends after {counted(size, 'byte')}, inside its header")
        if data[offset] != 0xFF:
            raise JpegError("not a JPEG", f"byte {offset} is not a marker")
        marker = data[offset + 1]
        if marker == 0xFF:
            offset += 1
            continue
        if marker in _STANDALONE:
            offset += 2
            continue
        length = int.from_bytes(data[offset + 2 : offset + 4])
        if marker == 0xD9:
            raise JpegError("truncated", "ends before its first scan")
        if length < 2 or marker in {0x00, 0xD8}:
            raise JpegError("not a JPEG", f"segment ff{marker:02x} at byte {offset} has a length of {length}")
        if marker in _FRAMES:
            frame = _read_frame(data, offset, marker, length)
        if marker == SOS:
            break
        offset += 2 + length
    else:
        raise JpegError("not a JPEG", f"more than {MAX_SEGMENTS} segments before its first scan")
    if frame is None:
        raise JpegError("not a JPEG", "a scan without a frame header")
    width, height, components, progressive = frame
    # A sequential picture has several scans if the first does not contain all components.
    multi_scan = progressive or data[offset + 4 : offset + 5] != bytes([components])
    if multi_scan and data.count(b"\xff\xda", offset) > MAX_SCANS:
        raise JpegError("too large", f"more than {MAX_SCANS} scans")
    # Nearly all frames end with the marker. Searching the others takes as long as the rest of this function.
    complete = data.endswith(EOI) or data.find(EOI, offset + 2 + length) >= 0
    return JpegHeader(width, height, components, multi_scan, complete)


def is_finished(data: bytes | memoryview) -> bool:
    """True if `data` is no JPEG whose end marker is missing."""
    try:
        return read_header(bytes(data)).complete
    except JpegError:
        return True


def finished(data: bytes) -> bytes:
    """Return the JPEG `data` with an end marker, because players need one."""
    return data if data.endswith(EOI) or is_finished(data) else data + EOI


class Headers:
    """Reads the headers of one camera's frames; caches the latest, because it rarely changes."""

    def __init__(self) -> None:
        self._text = b""  # the cached header, up to the first scan; empty: none
        self._header = JpegHeader(0, 0, 0, is_multi_scan=False, complete=True)

    def read(self, data: bytes) -> JpegHeader:
        """Read the header of `data`, as `read_header` does; raise the same errors."""
        if self._text and data.startswith(self._text) and data.endswith(EOI):
            return self._header
        header = read_header(data)
        self._text = b""
        if header.complete and not header.is_multi_scan:  # scans are counted each time
            self._text, self._header = data[: scan_start(data)[1]], header
        return header


def _read_frame(data: bytes, offset: int, marker: int, length: int) -> tuple[int, int, int, bool]:
    if marker not in _DECODABLE:
        raise JpegError("unsupported JPEG", f"coding process SOF{marker - 0xC0}")
    if offset + 10 > len(data):
        raise JpegError("truncated", "ends inside its frame header")
    precision, components = data[offset + 4], data[offset + 9]
    height = int.from_bytes(data[offset + 5 : offset + 7])
    width = int.from_bytes(data[offset + 7 : offset + 9])
    if precision != 8 or components not in {1, 3, 4} or length != 8 + 3 * components:
        raise JpegError("unsupported JPEG", f"{precision} bits, {components} components, length {length}")
    if not width or not height:
        raise JpegError("unsupported JPEG", f"a size of {width}x{height}")
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise JpegError("too large", f"{width}x{height} pixels, at most {MAX_SIDE} a side and {MAX_PIXELS} in all")
    return width, height, components, marker == 0xC2


def end_of_image(data: bytes | bytearray, scan: int) -> int:
    """The offset behind the end-of-image marker that follows byte `scan` of the entropy-coded data, or -1."""
    end = data.find(EOI, scan)
    return end + 2 if end >= 0 else -1
