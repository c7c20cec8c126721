"""Parse a flood of regular `#Sensor` lines to numbers at once, in numpy.

The lines have one shape, `#Sensor1234:ADC1=283,ADC2=1305,ADC3=2,DIO=0!` with whole numbers: what devices nearly always
send. `LineReader` parses all other lines one by one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLUMNS = 4  # smoke, flame, gas in ADC counts; digital flame as 0 or 1
MAX_DIGITS = 6

_SHAPE = re.compile(rb"(#Sensor:?([0-9A-Za-z_.-]{0,128}):)ADC1(:?)=\d+,ADC2(:?)=\d+,ADC3(:?)=\d+,(DIO|MPY30)(:?)=\d+!")
_DIGITS = b"0123456789"
_BANG, _COMMA, _EQUALS, _RETURN, _NEWLINE, _HASH = b"!,=\r\n#"


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of one device's regular lines."""

    prefix: bytes  # up to the first key
    location: str  # in the prefix; "" if there is none
    skeleton: bytes  # a line without its digits
    separator: bytes  # between two lines
    variant: tuple[int, int, int, int, int]  # 1 for each key followed by a colon; length of the digital key

    def may_match(self, segment: bytes, lines: int) -> bool:
        """True if the `lines` lines of `segment` may all have this shape; `parse_rows` checks the digits."""
        if segment.count(self.prefix) != lines:
            return False
        bare = segment.translate(None, _DIGITS)
        start = len(self.separator) if self.separator and bare.startswith(self.separator) else 0
        return bare[start:] == (self.skeleton + self.separator) * (lines - 1) + self.skeleton


def shape_of(text: bytes) -> Shape | None:
    """The shape of the last reading in `text`; None if it is not regular."""
    start = text.rfind(b"#Sensor")
    match = _SHAPE.match(text, start) if start >= 0 else None
    if match is None:
        return None
    colons = [len(match[group]) for group in (3, 4, 5, 7)]
    separator = b"\r\n" if text.startswith(b"\r\n", match.end()) or text.endswith(b"\r\n", 0, start) else b""
    return Shape(
        prefix=match[1],
        location=match[2].decode(),
        skeleton=match[0].translate(None, _DIGITS),
        separator=separator,
        variant=(colons[0], colons[1], colons[2], colons[3], len(match[6])),
    )


def parse_rows(segments: Sequence[bytes], shapes: Sequence[Shape]) -> list[NDArray[np.float64] | None]:
    """The readings in each segment, as (lines, 4); None if a segment has a line of another shape.

    A segment is one or more whole lines, including the last `!`.
    """
    blocks: list[NDArray[np.float64] | None] = [None] * len(segments)
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, (segment, shape) in enumerate(zip(segments, shapes, strict=True)):
        lines = segment.count(b"!")
        if shape.may_match(segment, lines):
            groups.setdefault(shape.variant, []).append((number, lines))
    for variant, members in groups.items():
        _parse_group(segments, shapes, variant, members, blocks)
    return blocks


def _parse_group(
    segments: Sequence[bytes],
    shapes: Sequence[Shape],
    variant: tuple[int, ...],
    members: list[tuple[int, int]],
    blocks: list[NDArray[np.float64] | None],
) -> None:
    counts = np.array([lines for _, lines in members])
    lengths = np.repeat(np.array([len(shapes[number].prefix) for number, _ in members]), counts)
    numbers, regular = _parse(b"".join([segments[number] for number, _ in members]), lengths, variant)
    everything = bool(regular.all())
    start = 0
    for number, lines in members:
        stop = start + lines
        if everything or regular[start:stop].all():
            blocks[number] = numbers[start:stop]
        start = stop


def _parse(
    text: bytes, prefix_lengths: NDArray[np.int64], variant: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The numbers of each line, and True for each line whose digits are where they belong.

    All lines have the same characters apart from digits; it remains to check that no digit is among the letters.
    """
    characters = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero((characters == _EQUALS) | (characters == _COMMA) | (characters == _BANG))
    grid = marks.reshape(-1, 2 * COLUMNS)  # = , = , = , = !
    lines = len(grid)
    equals, stops = grid[:, 0::2], grid[:, 1::2]
    starts = np.empty(lines, np.int64)
    starts[0] = 0
    starts[1:] = grid[:-1, -1] + 1
    starts += characters[starts] == _RETURN
    starts += characters[starts] == _NEWLINE
    regular = characters[starts] == _HASH
    regular &= equals[:, 0] - variant[0] - 4 == starts + prefix_lengths
    for column, key in enumerate(b"123"):
        regular &= characters[equals[:, column] - variant[column] - 1] == key
        if column:
            regular &= equals[:, column] - variant[column] - 5 == stops[:, column - 1]
    digital = equals[:, 3] - variant[3]
    regular &= digital - variant[4] - 1 == stops[:, 2]
    if variant[4] == len("MPY30"):
        regular &= (characters[digital - 1] == ord("0")) & (characters[digital - 2] == ord("3"))
    lengths = stops - equals - 1
    longest = int(lengths.max())
    regular &= (lengths > 0).all(axis=1)
    if longest > MAX_DIGITS:
        regular &= (lengths <= MAX_DIGITS).all(axis=1)
    numbers = (characters[stops - 1] - 48).astype(np.float64)
    for place in range(2, min(longest, MAX_DIGITS) + 1):
        digits = characters[stops - place] - 48
        digits *= lengths >= place
        numbers += digits * 10.0 ** (place - 1)
    numbers[:, 3] = numbers[:, 3] != 0
    return numbers, regular
