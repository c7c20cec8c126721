"""Export of the network, with a check that OpenCV computes the same as the fitted head."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embereye_training.features import Trunk
from embereye_training.head import odds
from embereye_training.network import INPUT_SIDE, Head, SmokeHeads, model
from embereye_training.trunk import Convolution

SAME = 1e-3  # largest difference of log odds between the head and OpenCV's run of the file


class ExportError(Exception):
    """OpenCV's result differs from the fitted one."""


def export(trunk: Sequence[Convolution], head: Head, smoke: SmokeHeads, path: Path) -> None:
    """Write the network to `path`; raise ExportError unless OpenCV's log odds equal those of `head`."""
    path.write_bytes(model(trunk, head, smoke).SerializeToString())
    whole, channels = Trunk(path.read_bytes(), "odds"), Trunk(model(trunk, None).SerializeToString())
    random = np.random.default_rng(1)
    pictures = random.integers(0, 256, (8, INPUT_SIDE, INPUT_SIDE, 3)).astype(np.uint8)
    theirs, ours = whole.of(pictures)[:, 0], odds(head, channels.of(pictures))
    difference = float(np.abs(ours - theirs).max())
    if difference > SAME * max(1.0, float(np.abs(ours).max())):
        raise ExportError(f"{path}: OpenCV's log odds differ from the fitted ones by {difference:.6f}")
