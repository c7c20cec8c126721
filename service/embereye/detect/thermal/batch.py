"""Conversion of many devices' frames, each with its own calibration, to °C in one batch per tick of a shard.

A run is a calibration with some frames. The tick passes all runs at once; they are divided into chunks that fit into
the CPU's cache. The scalars of the calibrations become columns with a row per frame, so that numpy calculates a whole
chunk together. Only three steps run per device: compensating the pixels, refining temperatures outside the basic range,
and replacing bad pixels. The formulas are in `mlx90640`. Pure.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.mlx90640 import (
    COLUMNS,
    KELVIN,
    PIXELS,
    ROWS,
    Calibration,
    Scalars,
    auxiliary_of,
    coefficients_of,
    mask_unmeasured,
    object_temperatures,
)

CHUNK = 32  # frames calculated at a time, so that intermediate results stay in the CPU's cache
Run = tuple[Calibration, NDArray[np.uint16], float]  # calibration, frames (n, 834), emissivity 0..1


def temperatures(runs: Sequence[Run]) -> NDArray[np.float32]:
    """Convert all frames of all runs to °C, (n, 24, 32), in order; see `Calibration.temperatures`.

    The time per frame is near that of a large batch of one device, however few frames each device has.
    """
    if not runs:
        return np.empty((0, ROWS, COLUMNS), np.float32)
    if len(runs) == 1:
        calibration, frames, emissivity = runs[0]
        return calibration.temperatures(frames, emissivity)
    return np.concatenate([_chunk(chunk) for chunk in _chunks(runs)]).reshape(-1, ROWS, COLUMNS)


def _chunks(runs: Sequence[Run]) -> list[list[Run]]:
    chunks: list[list[Run]] = [[]]
    room = CHUNK
    for calibration, frames, emissivity in runs:
        start = 0
        while start < len(frames):
            part = frames[start : start + room]
            chunks[-1].append((calibration, part, emissivity))
            start += len(part)
            room -= len(part)
            if not room:
                chunks.append([])
                room = CHUNK
    return [chunk for chunk in chunks if chunk]


def _chunk(runs: list[Run]) -> NDArray[np.float32]:
    counts = np.array([len(frames) for _, frames, _ in runs])
    owners = np.repeat(np.arange(len(runs)), counts)
    frames = np.concatenate([part for _, part, _ in runs])
    table = np.array([(*calibration.scalars, emissivity) for calibration, _, emissivity in runs], np.float64)[owners]
    columns = list(table.T)
    device = Scalars(*columns[:-1])
    device = device._replace(control=device.control.astype(np.int64), chess=device.chess.astype(np.bool_))
    known = auxiliary_of(device, frames)
    coefficients, scale, background = coefficients_of(device, frames, known, columns[-1])
    signal = np.empty((len(frames), PIXELS), np.float32)
    parts = []
    start = 0
    for (calibration, part, _), count in zip(runs, counts.tolist(), strict=True):
        rows = slice(start, start + count)
        signal[rows] = calibration.compensated(part[:, :PIXELS], coefficients[rows], scale[rows])
        parts.append((calibration, rows))
        start += count
    ranges = np.array([(c.ks_to[1], c.corners[1], c.corners[2]) for c, _, _ in runs], np.float32)[owners]
    root, outside = object_temperatures(signal, background, ranges[:, :1], ranges[:, 1], ranges[:, 2])
    if outside is not None:
        for calibration, rows in parts:
            if (far := np.flatnonzero(outside[rows]) + rows.start).size:
                root[far] = calibration.extended(signal[far], background[far], root[far])
    root -= np.float32(KELVIN)
    mask_unmeasured(frames, known, root)
    for calibration, rows in parts:
        calibration.mend(root[rows])
    return root
