"""Parse a device's bytes into messages: `LineReader` is the only way in.

Most lines of most devices look alike and change nothing, so there are three strategies. All give the same result
(`test_reader.py` checks it):

- a read of a few regular lines with quiet values: a regular expression for each (`quiet.py`); nothing is stored;
- many regular lines, of many devices at once: numpy (`rows.py`), 0.06 µs a line in a flood;
- everything else: line by line (`lines.py`), 0.5 µs for a regular line.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.wire.device.lines import parse_line
from embereye.wire.device.messages import TOO_LONG, Garbage, Message, SensorReading
from embereye.wire.device.rows import Shape, parse_rows, shape_of

MAX_LINE = 16 * 1024  # bytes of a line; the longest real one, 834 spaced words, has about 4,200
NOTHING = b"\xff\xff"  # no line starts like this
QUIET_BYTES = 4096  # longest read checked line by line; from some 80 lines on numpy is quicker

Quiet = Callable[[bytes, int], re.Match[bytes] | None]  # `quiet_reading(...).match`: text, start of the values


class Rows(NamedTuple):
    """Consecutive readings of one device."""

    location: str | None
    values: NDArray[np.float64]  # (n, 4): smoke, flame, gas in ADC counts; digital flame as 0 or 1

    def readings(self) -> list[SensorReading]:
        """Convert the rows to readings."""
        return [
            SensorReading(self.location, smoke, flame, gas, digital != 0)
            for smoke, flame, gas, digital in self.values.tolist()
        ]


class LineReader:
    """Parses the bytes of one connection into messages; the result is the same however the stream is split.

    `receive` buffers bytes; `read` (or `read_together`, for many readers) parses them. An incomplete line waits for its
    end. If it exceeds MAX_LINE, it becomes one `Garbage`, and all bytes up to the next `!` are skipped. The caller must
    bound the bytes that wait to be read: see `waiting`.
    """

    __slots__ = ("_chunks", "_expected", "_parsed", "_rest", "_skipping", "shape", "waiting")

    def __init__(self) -> None:
        self.waiting = 0  # bytes received since the last read
        self.shape: Shape | None = None  # of the latest regular line that was parsed alone
        self._expected = NOTHING
        self._rest = b""  # an incomplete line
        self._chunks: list[bytes] = []  # received after `_rest`
        self._parsed: list[Message] = []  # by `parse_ahead`, and not read yet
        self._skipping = False  # inside a line that was dropped as too long

    @property
    def pending(self) -> int:
        """Bytes of the line that was incomplete at the last read."""
        return len(self._rest)

    def expect(self, prefix: bytes) -> None:
        """Apply `quiet` only to reads that start with `prefix`, the prefix of a shape; NOTHING: to none."""
        self._expected = prefix

    def receive(self, data: bytes, quiet: Quiet | None = None) -> list[re.Match[bytes]]:
        """Buffer `data` for the next read; or return its matches, if it is only whole expected lines matching `quiet`.

        Matched lines are not stored: the four groups of a match are their whole content. Nearly everything that a fleet
        sends is read this way.
        """
        if quiet is not None and not (self.waiting or self._rest or self._skipping) and len(data) <= QUIET_BYTES:
            prefix, start, matches = self._expected, 0, []
            while data.startswith(prefix, start) and (match := quiet(data, start + len(prefix))) is not None:
                matches.append(match)
                start = match.end()
                if start == len(data):
                    return matches
        self._chunks.append(data)
        self.waiting += len(data)
        return []

    def feed(self, data: bytes) -> list[Message]:
        """Receive `data` and return the messages that it completes."""
        self.receive(data)
        return self.read()

    def read(self) -> list[Message]:
        """Return the messages of all lines that have ended since the last read, in order."""
        messages = [*self._parsed, *self._parse(*self._cut())]
        self._parsed.clear()
        self.waiting = 0
        return messages

    def parse_ahead(self) -> list[Message]:
        """Return the messages of the lines that have ended. The next read returns them again, without parsing."""
        messages = self._parse(*self._cut())
        self._parsed += messages
        return messages

    def _cut(self) -> tuple[bytes, bool]:
        """Take the whole lines that have arrived, with the blanks after them.

        The second value is True if the rest was dropped as too long.
        """
        chunks = self._chunks
        text = chunks[0] if len(chunks) == 1 and not self._rest else b"".join((self._rest, *chunks))
        chunks.clear()
        start, end = 0, text.rfind(b"!") + 1
        if self._skipping:
            if not end:
                self._rest = b""
                return b"", False
            self._skipping = False
            start = text.find(b"!") + 1
        self._rest = text[end:].lstrip()
        stop = len(text) - len(self._rest) if end else 0
        if len(self._rest) > MAX_LINE:
            self._rest = b""
            self._skipping = True
        return text[start:stop], self._skipping

    def _parse(self, lines: bytes, given_up: bool) -> list[Message]:
        messages: list[Message] = []
        for line in lines.split(b"!")[:-1]:
            if len(line) > MAX_LINE and len(line.lstrip()) > MAX_LINE:
                messages.append(Garbage(TOO_LONG, MAX_LINE))
            else:
                parse_line(line, messages)
        if given_up:
            messages.append(Garbage(TOO_LONG, MAX_LINE))
        self.shape = shape_of(lines) or self.shape
        return messages


def read_together(readers: Sequence[LineReader]) -> list[list[Message | Rows]]:
    """Read each reader. Where all lines of a reader have its shape, return `Rows` instead of messages.

    Numpy parses the lines of all such readers at once: alone, a single line costs 27 µs.
    """
    results: list[list[Message | Rows]] = []
    alike: list[tuple[LineReader, list[Message | Rows], bytes, bool]] = []
    shapes: list[Shape] = []
    for reader in readers:
        items: list[Message | Rows] = [*reader._parsed]
        reader._parsed.clear()
        reader.waiting = 0
        lines, given_up = reader._cut()
        if reader.shape is None or not lines:
            items += reader._parse(lines, given_up)
        else:
            alike.append((reader, items, lines, given_up))
            shapes.append(reader.shape)
        results.append(items)
    blocks = parse_rows([lines.rstrip() for _, _, lines, _ in alike], shapes)
    for (reader, items, lines, given_up), shape, values in zip(alike, shapes, blocks, strict=True):
        if values is None:
            items.extend(reader._parse(lines, given_up))
            continue
        items.append(Rows(shape.location or None, values))
        if given_up:
            items.append(Garbage(TOO_LONG, MAX_LINE))
    return results
