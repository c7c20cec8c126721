"""The trunk's features of pictures, plain and augmented.

The trunk computes the features of each picture as it is and of VERSIONS augmented versions of it. The random generator
depends only on the seed and the group's number. Versions are therefore the same in each run, and their features are
cached by the digest of the pictures and the trunk.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from embereye_training.augment import changed, distant, lit, painted
from embereye_training.data import Group, Pictures, squeezed
from embereye_training.network import INPUT_SIDE

Floats = npt.NDArray[np.float32]

VERSIONS = 4  # of each picture, in addition to the plain one
DISTANT = 0.12  # share of the fires' versions that are pasted into other scenes
PAINTED, LIT = 0.12, 0.15  # shares of the others' versions with flame-coloured things or lamps added
CROP_MIN, CROP_MIN_BURNING = 0.6, 0.75  # smallest crop of each side of a picture; of a clip's with fire
_BATCH = 32


@dataclass(frozen=True)
class Described:
    """The trunk's features of a group's pictures."""

    group: Group
    plain: Floats  # (count, channels)
    versions: Floats  # (VERSIONS * count, channels)


class Trunk:
    """The trunk in OpenCV, with all threads that are available."""

    def __init__(self, model: bytes, output: str = "pooled") -> None:
        self._output = output  # OpenCV computes all outputs or none
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
        self._digest = hashlib.sha256(model)

    def of(self, pictures: Sequence[npt.NDArray[np.uint8]] | Pictures) -> Floats:
        """Compute the features (count, channels) of `pictures`, BGR, of any square size."""
        batches = []
        for start in range(0, len(pictures), _BATCH):
            batch = [squeezed(picture, INPUT_SIDE) for picture in pictures[start : start + _BATCH]]
            self._net.setInput(cv2.dnn.blobFromImages(batch, 1 / 127.5, mean=(127.5, 127.5, 127.5)))
            batches.append(self._run().reshape(len(batch), -1).copy())
        return np.concatenate(batches)

    def _run(self) -> Floats:
        names = self._net.getUnconnectedOutLayersNames()
        outputs: dict[str, Floats] = dict(zip(names, self._net.forward(names), strict=True))  # type: ignore[arg-type]
        return outputs[self._output]

    def cached_features(self, group: Group, versions: Sequence[npt.NDArray[np.uint8]], cache: Path) -> Floats:
        """Compute the features of `versions`, cached in `cache` until they or the trunk change."""
        digest = self._digest.copy()
        for picture in versions:
            digest.update(picture.tobytes())
        path = cache / f"{group.name.replace('/', '-')}-{digest.hexdigest()[:16]}.npy"
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            np.save(path, self.of(versions))
        features: Floats = np.load(path)
        return features


class Versions:
    """Augmented pictures of groups; pasted things and scenes come from stills."""

    def __init__(self, stills: Sequence[Group], seed: int) -> None:
        self._seed = seed
        self._scenes = np.concatenate([group.pictures for group in stills if not group.fire])
        close = [group.pictures for group in stills if group.fire and group.name.endswith("close")]
        self._flames = np.concatenate(close) if close else self._scenes[:0]

    def of(self, group: Group, number: int) -> list[npt.NDArray[np.uint8]]:
        """Create VERSIONS of each picture of `group`, the group with this `number`."""
        random = np.random.default_rng((self._seed, number))
        least = CROP_MIN_BURNING if group.scene and group.fire else CROP_MIN
        return [
            self._version(picture, least, random, fire=group.fire)
            for picture in group.pictures
            for _ in range(VERSIONS)
        ]

    def _version(
        self, picture: npt.NDArray[np.uint8], least: float, random: np.random.Generator, *, fire: bool
    ) -> npt.NDArray[np.uint8]:
        made = random.random()
        if fire and made < DISTANT and len(self._flames):
            return changed(distant(self._scene(random), self._flame(random), random), random, INPUT_SIDE, 0.9)
        if not fire and made < PAINTED:
            picture = painted(picture, self._scene(random), random)
        elif not fire and made < PAINTED + LIT:
            picture = lit(picture, random)
        return changed(picture, random, INPUT_SIDE, least)

    def _scene(self, random: np.random.Generator) -> npt.NDArray[np.uint8]:
        picture: npt.NDArray[np.uint8] = self._scenes[random.integers(len(self._scenes))]
        return picture

    def _flame(self, random: np.random.Generator) -> npt.NDArray[np.uint8]:
        picture: npt.NDArray[np.uint8] = self._flames[random.integers(len(self._flames))]
        return picture
