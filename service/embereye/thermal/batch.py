"""Frames of many devices, each with its own calibration, to °C at once: what a tick of a sensor shard needs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embereye.thermal.mlx90640 import COLUMNS, ROWS, Calibration

Run = tuple[Calibration, NDArray[np.uint16], float]  # whose frames, (n, 834), their emissivity


def temperatures(runs: Sequence[Run]) -> NDArray[np.float32]:
    """°C of all frames of all runs, in order, as (n, 24, 32)."""
    found = [calibration.temperatures(frames, emissivity) for calibration, frames, emissivity in runs]
    return np.concatenate(found) if found else np.empty((0, ROWS, COLUMNS), np.float32)
