"""Count a device's gRPC batches in its ledger, and analyse every new reading exactly once.

Ingest calls it, through the shard, with the waiting batches of one device. A reading is new if its sequence is above
the device's watermark, which then advances. A batch of a later epoch resets the watermark; one of an earlier epoch is
rejected. Successive batches that contain only columns, as nearly all do, are decoded together. A batch that cannot be
decoded is counted as rejected.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.tick import TickBatcher
from embereye.wire.batches import Blocks, decode_columns, decode_readings
from embereye.wire.device.messages import PIXEL_WORDS, RAM_WORDS

MAX_SEQUENCE = 1 << 62
FRAME_BYTES = (PIXEL_WORDS * 2, RAM_WORDS * 2)
NO_COLUMNS = Blocks([], [], np.empty((0, 4)))


def analyse_batches(device: SensorDevice, batches: Iterable[Any], batcher: TickBatcher, now_ns: int) -> None:
    """Analyse new readings in `batches` of `wire.batches.Request`, in order, and advance the device's watermark.

    A sequence up to the watermark, or repeated within a batch, is a duplicate. A gap is accepted: the device's previous
    owner acknowledged its readings.
    """
    bulk: list[Sequence[bytes]] = []  # successive batches that have only columns, as nearly all have
    for batch in batches:
        if (
            batch.columns
            and batch.epoch == device.arrivals.epoch
            and not (batch.readings or batch.frames or batch.calibration)
        ):
            bulk.append(batch.columns)
            continue
        _analyse_bulk(device, bulk, batcher, now_ns)
        bulk = []
        _analyse_batch(device, batch, batcher, now_ns)
    _analyse_bulk(device, bulk, batcher, now_ns)


def _analyse_bulk(device: SensorDevice, bulk: list[Sequence[bytes]], batcher: TickBatcher, now_ns: int) -> None:
    if not bulk:
        return
    try:
        blocks = decode_columns(bulk)
    except DecodeError:
        if len(bulk) == 1:
            device.arrivals.refuse("bad batch")
            return
        for columns in bulk:
            _analyse_bulk(device, [columns], batcher, now_ns)
        return
    _analyse_columns(device, blocks, batcher, now_ns)


def _analyse_batch(device: SensorDevice, batch: Any, batcher: TickBatcher, now_ns: int) -> None:
    arrivals = device.arrivals
    single = len(batch.readings) + len(batch.frames)
    try:
        columns = decode_columns([batch.columns]) if batch.columns else NO_COLUMNS
    except DecodeError:
        arrivals.refuse("bad batch", single + 1)
        return
    count = single + len(columns.rows)
    if batch.epoch < arrivals.epoch:
        if count := count + bool(batch.calibration):
            arrivals.refuse("older epoch", count)
        return
    if batch.epoch > arrivals.epoch:
        arrivals.epoch, arrivals.sequence = batch.epoch, 0
    if batch.calibration:
        batcher.calibrate(device, batch.calibration, now_ns)
    if single:
        _analyse_mixed(device, batch, columns, batcher, now_ns)
    elif count:
        _analyse_columns(device, columns, batcher, now_ns)


def _analyse_columns(device: SensorDevice, blocks: Blocks, batcher: TickBatcher, now_ns: int) -> None:
    """Analyse blocks of readings with consecutive sequences."""
    arrivals = device.arrivals
    fresh: list[slice] = []
    start = new = 0
    for first, count in zip(blocks.firsts, blocks.counts, strict=True):
        known = min(max(arrivals.sequence - first + 1, 0), count)
        if first + count > MAX_SEQUENCE:
            arrivals.refuse("bad batch", count)
        else:
            arrivals.count_duplicates(known)
            if known < count:
                arrivals.sequence = first + count - 1
                fresh.append(slice(start + known, start + count))
                new += count - known
        start += count
    rows = blocks.rows if new == start else np.concatenate([blocks.rows[part] for part in fresh or [slice(0)]])
    if new:
        batcher.analyse_rows(device, rows, now_ns)


def _analyse_mixed(device: SensorDevice, batch: Any, columns: Blocks, batcher: TickBatcher, now_ns: int) -> None:
    arrivals, frames = device.arrivals, batch.frames
    count = len(batch.readings) + len(frames) + len(columns.rows)
    try:
        sequences, rows = _rows(batch.readings, columns)
        if frames:
            numbers = np.array([frame.sequence for frame in frames], np.int64)
            sequences = np.concatenate([sequences, numbers])
    except (DecodeError, OverflowError):
        arrivals.refuse("bad batch", count)
        return
    fresh = _fresh(sequences, arrivals.sequence)
    duplicates = count - int(fresh.sum())
    arrivals.count_duplicates(duplicates)
    arrivals.sequence = max(arrivals.sequence, int(sequences.max()))
    chosen = fresh[: len(rows)]
    if not chosen.all():
        rows = rows[chosen]
    if len(rows):
        batcher.analyse_rows(device, rows, now_ns)
    for frame, new in zip(frames, fresh[len(fresh) - len(frames) :].tolist(), strict=True):
        if not new:
            continue
        if len(frame.words) in FRAME_BYTES:
            batcher.add_frame(device, frame.words, now_ns)
        else:
            arrivals.refuse("bad frame")
    if frames:
        batcher.analyse_collected(now_ns)


def _rows(readings: Sequence[bytes], columns: Blocks) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The sequences (n) and values (n, 4) of all readings, in order of their sequences."""
    sequences, rows = decode_readings(readings)
    if len(columns.rows):
        (first,), (count,) = columns.firsts, columns.counts
        more = np.arange(first, first + count, dtype=np.int64)
        sequences, rows = np.concatenate([sequences, more]), np.concatenate([rows, columns.rows])
    if len(sequences) > 1 and not (sequences[1:] > sequences[:-1]).all():
        order = np.argsort(sequences, kind="stable")
        sequences, rows = sequences[order], rows[order]
    return sequences, rows


def _fresh(sequences: NDArray[np.int64], watermark: int) -> NDArray[np.bool_]:
    """A mask of the `sequences` that are above the watermark and did not occur before."""
    fresh = sequences > watermark
    if len(sequences) > 1 and not (sequences[1:] > sequences[:-1]).all():
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        fresh &= first
    return fresh
