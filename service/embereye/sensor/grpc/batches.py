"""A device's gRPC batch into its ledger and its detectors: what is new, once; the rest as duplicate or rejected."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.tick import Intake
from embereye.wire.batches import Blocks, columns_blocks, readings_block
from embereye.wire.device.lines import PIXEL_WORDS, RAM_WORDS

MOST = 1 << 62  # of a sequence
FRAME_BYTES = (PIXEL_WORDS * 2, RAM_WORDS * 2)
NO_COLUMNS = Blocks([], [], np.empty((0, 4)))


def take(device: SensorDevice, batches: Iterable[Any], intake: Intake, now_ns: int) -> None:
    """Analyse what is new in `batches` of `wire.batches.Request`, in order, and move the device's watermark on.

    Sequences up to the watermark are duplicates, and so is one that comes twice in a batch. A gap is accepted: what is
    in it was acknowledged by the shard that owned the device before.
    """
    bulk: list[Sequence[bytes]] = []  # nearly all that comes in bulk is columns and nothing else
    for batch in batches:
        if batch.columns and batch.epoch == device.epoch and not (batch.readings or batch.frames or batch.calibration):
            bulk.append(batch.columns)
            continue
        _take_bulk(device, bulk, intake, now_ns)
        bulk = []
        _take_batch(device, batch, intake, now_ns)
    _take_bulk(device, bulk, intake, now_ns)


def _take_bulk(device: SensorDevice, bulk: list[Sequence[bytes]], intake: Intake, now_ns: int) -> None:
    if not bulk:
        return
    try:
        blocks = columns_blocks(bulk)
    except DecodeError:
        if len(bulk) == 1:
            device.refuse("bad batch")
            return
        for columns in bulk:
            _take_bulk(device, [columns], intake, now_ns)
        return
    _take_columns(device, blocks, intake, now_ns)


def _take_batch(device: SensorDevice, batch: Any, intake: Intake, now_ns: int) -> None:
    others = len(batch.readings) + len(batch.frames)
    try:
        columns = columns_blocks([batch.columns]) if batch.columns else NO_COLUMNS
    except DecodeError:
        device.refuse("bad batch", others + 1)
        return
    count = others + len(columns.rows)
    if batch.epoch < device.epoch:
        if count := count + bool(batch.calibration):
            device.refuse("older epoch", count)
        return
    if batch.epoch > device.epoch:
        device.epoch, device.sequence = batch.epoch, 0
    if batch.calibration:
        intake.calibrate(device, batch.calibration, now_ns)
    if others:
        _take_any(device, batch, columns, intake, now_ns)
    elif count:
        _take_columns(device, columns, intake, now_ns)


def _take_columns(device: SensorDevice, blocks: Blocks, intake: Intake, now_ns: int) -> None:
    """Take readings whose sequences are known without looking at each."""
    fresh: list[slice] = []
    start = new = 0
    for first, count in zip(blocks.firsts, blocks.counts, strict=True):
        known = min(max(device.sequence - first + 1, 0), count)
        if first + count > MOST:
            device.refuse("bad batch", count)
        else:
            device.ledger.offered += known
            device.ledger.duplicate += known
            if known < count:
                device.sequence = first + count - 1
                fresh.append(slice(start + known, start + count))
                new += count - known
        start += count
    rows = blocks.rows if new == start else np.concatenate([blocks.rows[part] for part in fresh or [slice(0)]])
    if new:
        intake.take_rows(device, rows, now_ns)


def _take_any(device: SensorDevice, batch: Any, columns: Blocks, intake: Intake, now_ns: int) -> None:
    frames = batch.frames
    count = len(batch.readings) + len(frames) + len(columns.rows)
    try:
        sequences, rows = _rows(batch.readings, columns)
        if frames:
            numbers = np.array([frame.sequence for frame in frames], np.int64)
            sequences = np.concatenate([sequences, numbers])
    except (DecodeError, OverflowError):
        device.refuse("bad batch", count)
        return
    fresh = _fresh(sequences, device.sequence)
    duplicates = count - int(fresh.sum())
    device.ledger.offered += duplicates
    device.ledger.duplicate += duplicates
    device.sequence = max(device.sequence, int(sequences.max()))
    chosen = fresh[: len(rows)]
    if not chosen.all():
        rows = rows[chosen]
    if len(rows):
        intake.take_rows(device, rows, now_ns)
    for frame, new in zip(frames, fresh[len(fresh) - len(frames) :].tolist(), strict=True):
        if not new:
            continue
        if len(frame.words) in FRAME_BYTES:
            intake.add_frame(device, frame.words, now_ns)
        else:
            device.refuse("bad frame")
    if frames:
        intake.settle(now_ns)


def _rows(readings: Sequence[bytes], columns: Blocks) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All readings in order of their sequences."""
    sequences, rows = readings_block(readings)
    if len(columns.rows):
        (first,), (count,) = columns.firsts, columns.counts
        more = np.arange(first, first + count, dtype=np.int64)
        sequences, rows = np.concatenate([sequences, more]), np.concatenate([rows, columns.rows])
    if len(sequences) > 1 and not (sequences[1:] > sequences[:-1]).all():
        order = np.argsort(sequences, kind="stable")
        sequences, rows = sequences[order], rows[order]
    return sequences, rows


def _fresh(sequences: NDArray[np.int64], watermark: int) -> NDArray[np.bool_]:
    """Which of `sequences` are above the watermark and the first of their kind."""
    fresh = sequences > watermark
    if len(sequences) > 1 and not (sequences[1:] > sequences[:-1]).all():
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        fresh &= first
    return fresh
