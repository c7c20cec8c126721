"""Show footage as cameras with other settings would, so that no fit depends on exposure alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye_bench.detection.footage import Footage

Table = npt.NDArray[np.uint8]  # (256, 3): the new value of each count of blue, green and red


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
    """Footage with a table applied to every picture, including close-ups."""

    table: Table | None = None

    def closer(self, number: int) -> npt.NDArray[np.uint8]:
        """Picture `number` in the resolution of close-ups."""
        assert self.table is not None
        if self.jpegs is None:
            return np.asarray(self.pictures[number])
        return apply_table(self.table, super().closer(number))


def apply_table(table: Table, picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Apply `table` to `picture` (height, width, 3)."""
    return cv2.LUT(picture, table[None])  # type: ignore[return-value]


def changed(film: Footage, change: str) -> Footage:
    """Apply one of CHANGES to `film`."""
    table = CHANGES[change]
    pictures = np.stack([apply_table(table, np.asarray(picture)) for picture in film.pictures])
    return ChangedFootage(film.clip, pictures, film.seconds, film.jpegs, table)
