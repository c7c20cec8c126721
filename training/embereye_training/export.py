"""Writes the network, and holds what OpenCV computes of it against the head that was fitted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embereye_training.features import Trunk
from embereye_training.head import odds
from embereye_training.network import INPUT_SIDE, Head, model
from embereye_training.trunk import Convolution

SAME = 1e-3  # largest difference of a log odds between the head's and what OpenCV makes of the file


class ExportError(Exception):
    """OpenCV does not compute what was fitted."""


def export(trunk: Sequence[Convolution], head: Head, path: Path) -> None:
    """Write the network to `path`; ExportError unless OpenCV's log odds are those of `head`."""
    path.write_bytes(model(trunk, head).SerializeToString())
    whole, channels = Trunk(path.read_bytes()), Trunk(model(trunk, None).SerializeToString())
    random = np.random.default_rng(1)
    pictures = random.integers(0, 256, (8, INPUT_SIDE, INPUT_SIDE, 3)).astype(np.uint8)
    theirs, ours = whole.of(pictures)[:, 0], odds(head, channels.of(pictures))
    apart = float(np.abs(ours - theirs).max())
    if apart > SAME * max(1.0, float(np.abs(ours).max())):
        raise ExportError(f"{path}: OpenCV's log odds differ from the fitted ones by {apart:.6f}")
