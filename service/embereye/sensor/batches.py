"""A device's gRPC batch into its ledger and its detectors: what is new, once; the rest as duplicate or rejected."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from embereye.sensor.device import SensorDevice
from embereye.sensor.intake import Intake
from embereye.wire.batches import columns_block, readings_block
from embereye.wire.device import PIXEL_WORDS, RAM_WORDS

MOST = 1 << 62  # of a sequence
NOTHING = np.empty((0, 4))
FRAME_BYTES = (PIXEL_WORDS * 2, RAM_WORDS * 2)


def take(device: SensorDevice, batch: Any, intake: Intake, now_ns: int) -> None:
    """Analyse what is new in `batch` (of a `wire.batches.Request`) and move the device's watermark on.

    Sequences up to the watermark are duplicates, and so is one that comes twice in a batch. A gap is accepted: what is
    in it was acknowledged by the shard that owned the device before.
    """
    others = len(batch.readings) + len(batch.frames)
    try:
        first, columns = columns_block(batch.columns) if batch.columns else (0, NOTHING)
    except DecodeError:
        device.refuse("bad batch", others + 1)
        return
    count = others + len(columns)
    if batch.epoch < device.epoch:
        if count := count + bool(batch.calibration):
            device.refuse("older epoch", count)
        return
    if batch.epoch > device.epoch:
        device.epoch, device.sequence = batch.epoch, 0
    if batch.calibration:
        intake.calibrate(device, batch.calibration, now_ns)
    if not count:
        return
    if first + len(columns) > MOST:
        device.refuse("bad batch", count)
    elif not others:
        _take_columns(device, first, columns, intake, now_ns)
    else:
        _take_any(device, batch, (first, columns), intake, now_ns)


def _take_columns(device: SensorDevice, first: int, rows: NDArray[np.float64], intake: Intake, now_ns: int) -> None:
    """Nearly all that comes in bulk: nothing but columns, whose sequences are known without looking."""
    count = len(rows)
    known = min(max(device.sequence - first + 1, 0), count)
    if known:
        device.ledger.offered += known
        device.ledger.duplicate += known
        rows = rows[known:]
    if len(rows):
        device.sequence = first + count - 1
        intake.take_rows(device, rows, now_ns)


def _take_any(
    device: SensorDevice, batch: Any, columns: tuple[int, NDArray[np.float64]], intake: Intake, now_ns: int
) -> None:
    frames = batch.frames
    count = len(batch.readings) + len(frames) + len(columns[1])
    try:
        sequences, rows = _rows(batch.readings, *columns)
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


def _rows(
    readings: Sequence[bytes], first: int, columns: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All readings in order of their sequences."""
    sequences, rows = readings_block(readings)
    if len(columns):
        more = np.arange(first, first + len(columns), dtype=np.int64)
        sequences, rows = np.concatenate([sequences, more]), np.concatenate([rows, columns])
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
