"""The margins of sensors: see `embereye.margins`.

Readings that change nothing are not assessed one by one. So the highest of them are read here, from the recent data
that is in memory for recordings, many devices at once.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.mq135 import Mq135, ppm
from embereye.detect.sensing.thresholds import Thresholds
from embereye.detect.thermal.heat import HeatAssessment
from embereye.levels import Kind
from embereye.margins import Margin, Peak, Suppressed, measured, measured_terms, nearest_of, peak_of
from embereye.sensor.device.arrivals import Row, row_of
from embereye.sensor.device.levels import CLEAR, Assessed
from embereye.sensor.device.recent import PieceKind, RecentData
from embereye.sensor.device.sensor import SensorDevice
from embereye.wire.device.messages import SensorReading
from embereye.wire.device.reader import LineReader
from embereye.wire.device.rows import parse_rows, shape_of

CHANNELS = (Kind.SMOKE, Kind.FLAME, Kind.GAS)  # of a row
UNCONFIRMED = ("not confirmed", "two in a row")  # in the note of a result that awaits more


def margins_of(devices: Iterable[SensorDevice], now_ns: int, deadline_ns: int) -> Iterator[Margin]:
    """Yield the margins of `devices` since the last call for them; none for a device's first call."""
    begun = list[tuple[SensorDevice, Margin]]()
    for device in devices:
        margin = device.span.begin_margin(device.spec.id, device.arrivals.ledger, now_ns)
        if margin is None:
            device.levels.take_peaks()
        else:
            begun.append((device, margin))
    highest = highest_rows([(device.arrivals.recent, margin["fromNs"]) for device, margin in begun])
    for (device, margin), row in zip(begun, highest, strict=True):
        if why := device.reason(now_ns, deadline_ns):
            margin["blind"] = why
        latest = device.arrivals.row if margin.get("analysed") else None
        margin["peaks"] = peaks_of(device, latest if row is None else row, now_ns)
        yield margin


def highest_rows(recent: Sequence[tuple[RecentData, int]]) -> list[Row | None]:
    """Find the highest value of each channel in devices' recent data, each from a time on; None if there is none."""
    texts, blocks = list[bytes](), list[list[NDArray[np.float64]]]()
    for data, from_ns in recent:
        lines = list[bytes]()
        for time_ns, text in reversed(data.short):
            if time_ns < from_ns:
                break
            lines.append(text)
        rows = list[NDArray[np.float64]]()
        for piece in data.newest(from_ns):
            if piece.kind == PieceKind.LINES:
                lines.append(piece.data)
            elif piece.kind == PieceKind.ROWS:
                rows.append(np.frombuffer(piece.data, np.float64).reshape(-1, 4))
        texts.append(b"".join(lines).translate(None, b"\r\n "))  # blanks between lines vary
        blocks.append(rows)
    shapes = [shape_of(text) for text in texts]
    regular = [number for number, shape in enumerate(shapes) if shape is not None]
    parsed = parse_rows([texts[number] for number in regular], [shape for shape in shapes if shape is not None])
    for number, values in zip(regular, parsed, strict=True):
        blocks[number].append(_read_one_by_one(texts[number]) if values is None else values)
    return [_highest(rows) for rows in blocks]


def _read_one_by_one(text: bytes) -> NDArray[np.float64]:
    readings = [message for message in LineReader().feed(text) if isinstance(message, SensorReading)]
    return np.array([row_of(reading) for reading in readings], np.float64).reshape(-1, 4)


def _highest(blocks: list[NDArray[np.float64]]) -> Row | None:
    rows = np.concatenate(blocks) if len(blocks) > 1 else blocks[0] if blocks else np.empty((0, 4))
    if not len(rows):
        return None
    highest: list[float] = np.fmax.reduce(rows).tolist()
    return highest


def peaks_of(device: SensorDevice, row: Row | None, now_ns: int) -> list[Peak]:
    """The peaks of a device: its strongest results, and for channels without one the highest value in `row`."""
    results, testing = device.levels.take_peaks(), device.states.is_testing(now_ns)
    peaks = [_peak(kind, result, testing=testing) for kind, result in results.items()]
    if row is not None:
        peaks += _quiet_peaks(row, device.readings.thresholds, results)
    return peaks


def _quiet_peaks(row: Row, thresholds: Thresholds, assessed: Collection[Kind]) -> Iterator[Peak]:
    """Yield the peaks of readings that changed nothing, except of the kinds that were `assessed`."""
    full_scale = thresholds.full_scale
    for kind, value in zip(CHANNELS, row, strict=False):
        if kind in assessed or not 0 <= value <= full_scale:  # NaN is not in this range either
            continue
        steps = thresholds.gas if kind == Kind.GAS else thresholds.flame if kind == Kind.FLAME else thresholds.smoke
        measured_value = _ppm(value, thresholds.board, full_scale) if kind == Kind.GAS else value / full_scale * 100
        nearest = measured(kind.word, measured_value, max(steps), "ppm" if kind == Kind.GAS else "%")
        yield {"kind": kind.word, "level": CLEAR.word, "score": 0.0, "nearest": nearest}


@lru_cache(maxsize=4096)
def _ppm(adc: float, board: Mq135, full_scale: float) -> float:
    return float(ppm(adc, board, full_scale))


def _peak(kind: Kind, result: Assessed, *, testing: bool) -> Peak:
    nearest = result.decisive or nearest_of(measured_terms(result.terms))
    suppressed = list[Suppressed]()
    if any(words in result.note for words in UNCONFIRMED):
        suppressed.append(Suppressed(by="confirmation", why=result.note))
    if isinstance(result, HeatAssessment) and result.relative:
        nearest = None
        suppressed.append(Suppressed(by="uncalibrated", why="without its calibration, heat is a pre-alarm at most"))
    if testing:
        suppressed.append(Suppressed(by="test", why="its test button was pressed: it raises no alarm for a minute"))
    return peak_of(kind, result, nearest, result.note, suppressed)
