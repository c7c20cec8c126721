"""Footage as a camera of other settings would have shown it: what is learnt of it must not hang on exposure alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye_bench.detection.footage import Footage

Table = npt.NDArray[np.uint8]  # (256, 3): what becomes of each count of blue, green and red


def _table(gain: tuple[float, float, float] = (1.0, 1.0, 1.0), gamma: float = 1.0, contrast: float = 1.0) -> Table:
    levels = np.arange(256)[:, None] / 255.0
    changed = 0.5 + contrast * ((np.array(gain) * levels).clip(0, 1) ** gamma - 0.5)
    return (255 * changed.clip(0, 1)).round().astype(np.uint8)


CHANGES: Mapping[str, Table] = {
    "exposed more": _table(gain=(1.5, 1.5, 1.5)),
    "brighter": _table(gamma=0.7),
    "warmer": _table(gain=(0.75, 0.95, 1.15)),
    "of more contrast": _table(contrast=1.35),
}


@dataclass(frozen=True)
class ChangedFootage(Footage):
    """Footage whose every picture, close looks too, went through a table."""

    table: Table | None = None

    def closer(self, number: int) -> npt.NDArray[np.uint8]:
        """Picture `number` with the pixels that a close look finds."""
        assert self.table is not None
        if self.jpegs is None:
            return np.asarray(self.pictures[number])
        return applied(self.table, super().closer(number))


def applied(table: Table, picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """`picture` (height, width, 3), changed by `table`."""
    return cv2.LUT(picture, table[None])  # type: ignore[return-value]


def changed(film: Footage, change: str) -> Footage:
    """`film` after one of CHANGES."""
    table = CHANGES[change]
    pictures = np.stack([applied(table, np.asarray(picture)) for picture in film.pictures])
    return ChangedFootage(film.clip, pictures, film.seconds, film.jpegs, table)
