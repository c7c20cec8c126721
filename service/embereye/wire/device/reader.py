"""The one way from a device's bytes to what they say: `LineReader`.

Most lines of most devices look alike and change nothing, so there are three strategies behind it. They read the same
(`test_reader.py` holds them to it):

- a read of a few regular lines with quiet values: a regular expression for each (`quiet.py`), and nothing is kept;
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
QUIET_BYTES = 4096  # of a read whose lines are looked at one by one; from some 80 lines on numpy is quicker

Quiet = Callable[[bytes, int], re.Match[bytes] | None]  # `quiet_reading(...).match`: text, where values start


class Rows(NamedTuple):
    """Consecutive readings of one device."""

    location: str | None
    values: NDArray[np.float64]  # (n, 4): smoke, flame, gas in ADC counts; digital flame as 0 or 1

    def readings(self) -> list[SensorReading]:
        """The same, one by one."""
        return [
            SensorReading(self.location, smoke, flame, gas, digital != 0)
            for smoke, flame, gas, digital in self.values.tolist()
        ]


class LineReader:
    """Bytes of one connection in, messages out, the same ones however the stream is split.

    `receive` keeps bytes, `read` (or `read_together`, for many readers) parses them. A line that has not ended is kept
    until it does or is longer than MAX_LINE: then it becomes one `Garbage`, and what follows up to the next `!` is
    skipped. Bytes that were received and not read are not bounded here: the caller looks at `waiting`.
    """

    __slots__ = ("_chunks", "_expected", "_parsed", "_rest", "_skipping", "shape", "waiting")

    def __init__(self) -> None:
        self.waiting = 0  # bytes received since the last read
        self.shape: Shape | None = None  # of the latest regular line that was parsed by itself
        self._expected = NOTHING
        self._rest = b""  # a line that has not ended yet
        self._chunks: list[bytes] = []  # received after it
        self._parsed: list[Message] = []  # by `parse_ahead`
        self._skipping = False  # inside a line that was given up as too long

    @property
    def pending(self) -> int:
        """Bytes kept for a line that had not ended at the last read."""
        return len(self._rest)

    def expect(self, prefix: bytes) -> None:
        """Try `quiet` on reads that start with `prefix`, a shape's; NOTHING: on none."""
        self._expected = prefix

    def receive(self, data: bytes, quiet: Quiet | None = None) -> list[re.Match[bytes]]:
        """Keep `data` for the next read; or return its matches where it is whole expected lines that `quiet` matches.

        Nothing is kept of such lines: the four groups of a match are all that a line says. Nearly everything that a
        fleet sends takes this way.
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
        """`receive` and `read` in one: the messages that `data` completes."""
        self.receive(data)
        return self.read()

    def read(self) -> list[Message]:
        """The messages of all lines that have ended since the last read, in order."""
        messages = [*self._parsed, *self._parse(*self._cut())]
        self._parsed.clear()
        self.waiting = 0
        return messages

    def parse_ahead(self) -> list[Message]:
        """The messages of the lines that have ended, which the next read gives again without parsing them again."""
        messages = self._parse(*self._cut())
        self._parsed += messages
        return messages

    def _cut(self) -> tuple[bytes, bool]:
        """The whole lines that have arrived, with the blanks after them; whether the rest is given up as too long."""
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
    """What `read` gives of each reader; of one whose lines are all of its shape, `Rows` in place of messages.

    Numpy parses the lines of all such readers at once: of one reader at a time it would cost 27 µs for a single line.
    """
    found: list[list[Message | Rows]] = []
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
        found.append(items)
    blocks = parse_rows([lines.rstrip() for _, _, lines, _ in alike], shapes)
    for (reader, items, lines, given_up), shape, values in zip(alike, shapes, blocks, strict=True):
        if values is None:
            items.extend(reader._parse(lines, given_up))
            continue
        items.append(Rows(shape.location or None, values))
        if given_up:
            items.append(Garbage(TOO_LONG, MAX_LINE))
    return found
