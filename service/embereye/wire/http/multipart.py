"""Split multipart/x-mixed-replace as cameras send it: JPEG after JPEG in one HTTP response.

Cameras get boundaries and lengths wrong, so neither is trusted alone. A JPEG ends at its end-of-image marker, so it is
ready before the next boundary arrives. Any other part, and a truncated JPEG, ends at the next boundary. Searching
every picture for both costs more than receiving it. While pictures end exactly where their Content-Length says, they
are not searched.

| state | reads | next |
| --- | --- | --- |
| HUNT | lines between parts, up to a boundary or to headers without one | HEADERS, or BODY at a JPEG's first bytes |
| HEADERS | header lines up to an empty line | BODY; HUNT if the headers do not end |
| BODY | one part | HUNT |
"""

import re
from enum import Enum, auto

from embereye.wire.jpeg.header import EOI, SOI, end_of_image, scan_start

MAX_PART = 8 * 1024 * 1024  # bytes; a larger part is dropped
MAX_HEADERS = 8 * 1024  # bytes of headers of one part
MAX_LINE = 2 * 1024  # bytes searched for a line's end between parts
MAX_BOUNDARY = 200  # bytes; RFC 2046 allows 70
MAX_STEPS = 10_000  # between two parts, about one per line; cameras need ten, and short lines cost most
MAX_DASHES = 16  # before a boundary; RFC 2046 has two, cameras that repeat them in boundary= send four


class _State(Enum):
    HUNT = auto()  # between parts: searching for a boundary, or for headers without one
    HEADERS = auto()
    BODY = auto()


def boundary_of(content_type: str) -> bytes:
    """The boundary in a Content-Type header without its leading dashes; empty if there is none."""
    match = re.search(r'boundary\s*=\s*(?:"([^"]*)"|([^;\s]+))', content_type, re.IGNORECASE)
    if not match:
        return b""
    return (match[1] or match[2] or "").strip().encode("latin-1", "replace").lstrip(b"-")[:MAX_BOUNDARY]


class MultipartParser:
    """Splits a stream of bytes into parts. Raises no exceptions: unusable input is counted."""

    def __init__(self, content_type: str = "", *, max_part: int = MAX_PART) -> None:
        self.oversized = 0  # parts larger than max_part
        self.malformed = 0  # header blocks without end
        self._boundary = boundary_of(content_type)
        self._max_part = max_part
        self._buffer = bytearray()
        self._state = _State.HUNT
        self._headers = 0  # bytes of the present header block
        self._steps = 0  # since the last part
        self._length = 0  # bytes of the present part according to its headers; 0: unknown
        self._truthful = False  # the previous part was as long as its headers said
        self._reset_body()

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Return the parts that `data` completes."""
        self._buffer += data
        parts: list[bytes] = []
        step = {_State.HUNT: self._hunt, _State.HEADERS: self._read_header, _State.BODY: self._read_body}
        while not self.is_astray and step[self._state](parts):
            self._steps += 1
        if self.is_astray:
            self._buffer.clear()
        return parts

    @property
    def is_astray(self) -> bool:
        """True if the rest of the stream is ignored, because too much came without a part."""
        return self._steps > MAX_STEPS

    @property
    def buffered(self) -> int:
        """Bytes of an incomplete part or line."""
        return len(self._buffer)

    def _reset_body(self) -> None:
        self._delimiter_at = 0  # where the search for a boundary resumes
        self._segment_at = 2  # where the walk over JPEG segments resumes
        self._scan_at = 0  # where the search for the end of the image resumes; 0: not in a scan yet

    def _enter(self, state: _State, consumed: int) -> bool:
        del self._buffer[:consumed]
        self._state = state
        self._headers = 0
        if state is not _State.BODY:
            self._length = 0
        self._reset_body()
        return True

    def _is_delimiter(self, line: bytes) -> bool:
        return line.startswith(b"--") and line.lstrip(b"-").startswith(self._boundary)

    def _line(self) -> bytes | None:
        """The next line with its end, or MAX_LINE bytes if it is longer; None if it is incomplete."""
        end = self._buffer.find(b"\n", 0, MAX_LINE)
        if end >= 0:
            return bytes(self._buffer[: end + 1])
        return bytes(self._buffer[:MAX_LINE]) if len(self._buffer) >= MAX_LINE else None

    def _hunt(self, _: list[bytes]) -> bool:
        if self._buffer[:2] == SOI:
            return self._enter(_State.BODY, 0)
        line = self._line()
        if line is None:
            return False
        if line.lower().startswith(b"content-"):  # headers without a boundary before them
            return self._enter(_State.HEADERS, 0)
        if not self._is_delimiter(line):
            return self._enter(_State.HUNT, len(line))
        if not self._boundary:  # the header named none: the first boundary defines it
            self._boundary = line.strip().lstrip(b"-")[:MAX_BOUNDARY]
        return self._enter(_State.HEADERS, len(line))

    def _read_header(self, _: list[bytes]) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line.strip(b"\r\n"):
            return self._enter(_State.BODY, len(line))
        if self._is_delimiter(line):  # an empty part
            return self._enter(_State.HEADERS, len(line))
        if line[:15].lower() == b"content-length:" and (text := line[15:].strip()).isdigit():
            self._length = int(text) if len(text) < 9 else 0
        del self._buffer[: len(line)]
        self._headers += len(line)
        if self._headers > MAX_HEADERS:
            self.malformed += 1
            return self._enter(_State.HUNT, 0)
        return True

    def _read_body(self, parts: list[bytes]) -> bool:
        buffer = self._buffer
        empty = b"\r\n" if buffer.startswith(b"\r") else b"\n"
        if len(buffer) < len(empty) + 2 and empty.startswith(buffer[: len(empty)]):
            return False  # too few bytes to distinguish an empty line before the picture from the end of an empty part
        if buffer.startswith(empty) and not buffer.startswith(b"--", len(empty)):
            return self._enter(_State.BODY, len(empty))
        if self._truthful and 0 < self._length <= self._max_part:
            length = self._length
            if len(buffer) < length:
                return False
            if buffer.startswith(SOI) and buffer.startswith(EOI, length - 2):
                self._steps = 0
                parts.append(bytes(memoryview(buffer)[:length]))
                return self._enter(_State.HUNT, length)
        picture_end = self._find_picture_end()
        limit = len(buffer) if picture_end < 0 else picture_end
        body_end, resume = self._find_delimiter(limit)
        end = body_end if body_end >= 0 else picture_end
        if end < 0 or end > self._max_part:
            if end < 0 and len(buffer) <= self._max_part + MAX_DASHES + MAX_BOUNDARY + 4:
                return False  # a boundary that ends the part in time may be on its way
            self.oversized += 1
            # Drop the part at the same byte however the stream was split.
            return self._enter(_State.HUNT, self._max_part)
        self._truthful = body_end < 0 and picture_end == self._length
        if end:
            self._steps = 0
            parts.append(bytes(buffer[:end]))
        return self._enter(_State.HUNT, resume if body_end >= 0 else end)

    def _find_picture_end(self) -> int:
        """The offset behind the end-of-image marker of a JPEG body, or -1."""
        if self._buffer[:2] != SOI:
            return -1
        if not self._scan_at:
            self._segment_at, self._scan_at, malformed = scan_start(self._buffer, self._segment_at)
            if malformed or not self._scan_at:
                return -1
        end = end_of_image(self._buffer, self._scan_at)
        if end < 0:
            self._scan_at = max(self._scan_at, len(self._buffer) - 1)
        return end

    def _find_delimiter(self, limit: int) -> tuple[int, int]:
        """(end of the body, offset of the boundary) for the first boundary before `limit`, or (-1, -1)."""
        buffer = self._buffer
        position = self._delimiter_at
        while not self.is_astray:
            self._steps += 1
            # A body may be empty: then its boundary is its first line.
            start = 0 if position == 0 and buffer[:2] == b"--" else buffer.find(b"\n--", position, limit)
            if start < 0:
                self._delimiter_at = max(position, limit - 2)
                return -1, -1
            line = start if buffer[start] == 0x2D else start + 1
            text = line
            while text < len(buffer) and buffer[text] == 0x2D and text - line < MAX_DASHES:
                text += 1
            seen = bytes(buffer[text : text + len(self._boundary)])
            if seen == self._boundary and text < len(buffer):
                end = start
                if line != start and end and buffer[end - 1] == 0x0D:
                    end -= 1
                return end, line
            if self._boundary.startswith(seen) and text + len(self._boundary) >= len(
                buffer
            ):  # the boundary is incomplete
                self._delimiter_at = start
                return -1, -1
            position = start + 1
        return -1, -1
