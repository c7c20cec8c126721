"""Put received restart intervals of an incomplete picture in place and fill the lost ones with grey.

Restart intervals decode independently of each other, so any of them can be replaced. The place of a received one
follows from the start or the end of the scan, from the sender's count, or from its marker, which counts only to eight.
If several places are possible, it is dropped. Lost intervals become grey ones of the same number of MCUs. The result
decodes like any picture, and has the list of its lost regions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from embereye.units import Box
from embereye.wire.jpeg.tables import Geometry

BORDER = 2  # pixels next to a lost MCU whose colour is interpolated from it: half a chroma sample's reach, rounded up
RESTART_0 = b"\xff\xd0"  # the marker behind the first interval
_MARKERS = re.compile(rb"\xff([\xd0-\xd7])")
_IMPLAUSIBLE = 4  # an interval this many times smaller than the picture's average is not trusted


@dataclass(frozen=True, slots=True)
class Run:
    """Scan data that arrived without a gap."""

    offset: int  # bytes into the scan
    data: bytes
    last: bool = False  # it includes the end of the scan
    interval: int = -1  # the restart interval that it starts with, if the sender names it

    @property
    def end(self) -> int:
        """The offset behind the run."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Repaired:
    """A scan that decodes, and the regions of the picture that were lost."""

    scan: bytes
    lost_units: int  # MCUs
    lost: tuple[Box, ...]


@lru_cache(maxsize=64)
def grey(units: int, subsampling: int) -> bytes:
    """An interval of `units` MCUs without any coefficient, in the standard Huffman tables.

    A block is a difference of 0 ("00") and an end of block ("1010" luma, "00" chroma); types 0 and 1 have two and four
    luma blocks and two chroma blocks. Unused bits are ones (ITU-T T.81, F.1.2.3).
    """
    unit = "001010" * (4 if subsampling & 1 else 2) + "0000" * 2
    bits = unit * units
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8)


def smallest(units: int, subsampling: int) -> int:
    """The fewest bytes that `units` MCUs can take."""
    return (len("001010") * (4 if subsampling & 1 else 2) + 8) * units // 8


def infer_interval(scan: bytes, geometry: Geometry) -> int:
    """The restart interval of a whole `scan` in MCUs, from the number of its markers; 0 if that is ambiguous.

    Encoders count in rows: among several possible intervals, the only one of whole rows is chosen.
    """
    count = 1 + len(_MARKERS.findall(scan))
    units, columns = geometry.units, geometry.columns
    fitting = range(-(-units // count), -(-units // (count - 1)) if count > 1 else units + 1)
    rows = [interval for interval in fitting if interval % columns == 0]
    chosen = fitting if len(fitting) == 1 else rows
    return chosen[0] if len(chosen) == 1 else 0


def repair(runs: Sequence[Run], geometry: Geometry, interval: int, least: int = 0) -> Repaired:
    """Put the restart intervals of `runs` (by offset, not overlapping) in place and fill the gaps with grey.

    `interval` is the restart interval in MCUs. Markers count only to eight. A run without a certain place is dropped,
    so that nothing is shown in a wrong place. The scan is empty if fewer than `least` MCUs are in place: otherwise a
    sender of one packet per picture could make us write thousands of intervals for each.
    """
    units = geometry.units
    total = -(-units // interval)
    intervals = _place(runs, total, smallest(interval, geometry.type))
    lost_units = units - sum(min(interval, units - number * interval) for number in intervals)
    if units - lost_units < least:
        return Repaired(b"", lost_units, ())
    parts, missing = [], []
    for number in range(total):
        size = min(interval, units - number * interval)
        piece = intervals.get(number)
        if piece is None:
            missing.append((number * interval, size))
            piece = grey(size, geometry.type)
        parts.append(piece)
        parts.append(bytes((0xFF, 0xD0 + number % 8)))
    return Repaired(b"".join(parts[:-1]), lost_units, tuple(_regions(_spans(missing), geometry)))


def _place(runs: Sequence[Run], total: int, least: int) -> Mapping[int, bytes]:
    """Find the place of each restart interval: interval number → data."""
    received = sum(len(run.data) for run in runs)
    seen = sum(1 + len(_MARKERS.findall(run.data)) for run in runs)
    least = max(least, received // max(1, seen) // _IMPLAUSIBLE)
    intervals: dict[int, bytes] = {}
    last_ended, unplaced, end = -1, 0, 0  # the last interval whose end was seen; bytes since then; their end
    to_come = sum(len(_MARKERS.findall(run.data)) for run in runs)
    for run in runs:
        marks = list(_MARKERS.finditer(run.data))
        to_come -= len(marks)
        before = unplaced + run.offset - end
        unplaced, end = before + len(run.data), run.end
        head = marks[0].start() if marks else 0
        first = _first(run, marks, total - to_come, last_ended + 1, (before + head) // least - 1)
        if first is None or first <= last_ended or not _in_sequence(marks, first):
            continue
        pieces = _pieces(run.data, marks)
        for number, (start, stop) in enumerate(pieces):
            cut = (number == 0 and run.offset > 0 and run.interval < 0) or (number == len(marks) and not run.last)
            if stop > start and not cut and first + number < total:
                intervals[first + number] = run.data[start:stop]
        if marks:
            last_ended, unplaced = first + len(marks) - 1, len(run.data) - marks[-1].end()
    return intervals


def _pieces(data: bytes, marks: Sequence["re.Match[bytes]"]) -> Iterator[tuple[int, int]]:
    """(start, end) of the bytes between `marks`; the first and the last may be empty."""
    start = 0
    for mark in marks:
        yield start, mark.start()
        start = mark.end()
    yield start, len(data)


def _first(run: Run, marks: Sequence["re.Match[bytes]"], total: int, earliest: int, hidden: int) -> int | None:
    """The number of the interval that `run` starts in and its first mark ends; None if that is ambiguous.

    There are `total` intervals, without those that later runs must have. The result is `earliest` or at most `hidden`
    intervals later: no more of them fit into the bytes before the first mark.
    """
    if run.offset == 0:
        return 0
    if run.interval >= 0:
        return run.interval - (1 if marks and marks[0].start() == 0 else 0)
    if run.last:
        return total - 1 - len(marks)
    if not marks:
        return None
    first = earliest + (marks[0][1][0] - 0xD0 - earliest) % 8
    latest = min(earliest + max(0, hidden), total - 1 - len(marks))
    return first if first + 8 > latest else None


def _in_sequence(marks: Sequence["re.Match[bytes]"], first: int) -> bool:
    return all(mark[1][0] - 0xD0 == (first + number) % 8 for number, mark in enumerate(marks))


def _spans(missing: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join neighbours: (first MCU, number of MCUs)."""
    start = size = 0
    for first, count in missing:
        if size and start + size == first:
            size += count
            continue
        if size:
            yield start, size
        start, size = first, count
    if size:
        yield start, size


def _regions(spans: Iterator[tuple[int, int]], geometry: Geometry) -> Iterator[Box]:
    """The rectangles that cover runs of MCUs, with a border where decoding interpolates across."""
    columns = geometry.columns
    for first, size in spans:
        done = 0
        while done < size:
            row, column = divmod(first + done, columns)
            whole = column == 0 and size - done >= columns
            rows = (size - done) // columns if whole else 1
            width = columns if whole else min(size - done, columns - column)
            yield _region(column, row, width, rows, geometry)
            done += rows * width


def _region(column: int, row: int, columns: int, rows: int, geometry: Geometry) -> Box:
    left, top = max(0, column * 16 - BORDER), max(0, row * geometry.unit_height - BORDER)
    right = min(geometry.width, (column + columns) * 16 + BORDER)
    bottom = min(geometry.height, (row + rows) * geometry.unit_height + BORDER)
    width, height = geometry.width, geometry.height
    return left / width, top / height, (right - left) / width, (bottom - top) / height
