"""What the trunk makes of pictures, plain and changed as cameras change them."""

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

VERSIONS = 4  # of each picture, beside the plain one
DISTANT = 0.12  # of the fires' versions are pasted into other scenes
PAINTED, LIT = 0.12, 0.15  # of the others' have things of a flame's colour, or lamps, in them
KEPT_LEAST, KEPT_LEAST_BURNING = 0.6, 0.75  # of each side of a picture; of a clip's with fire
_BATCH = 32


@dataclass(frozen=True)
class Described:
    """What the trunk makes of the pictures of a group."""

    group: Group
    plain: Floats  # (count, channels)
    versions: Floats  # (VERSIONS * count, channels)


class Trunk:
    """The trunk in OpenCV, with all threads that it may have."""

    def __init__(self, model: bytes) -> None:
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
        self._digest = hashlib.sha256(model)

    def of(self, pictures: Sequence[npt.NDArray[np.uint8]] | Pictures) -> Floats:
        """(count, channels) of `pictures`, BGR, of any square size."""
        found = []
        for start in range(0, len(pictures), _BATCH):
            batch = [squeezed(picture, INPUT_SIDE) for picture in pictures[start : start + _BATCH]]
            self._net.setInput(cv2.dnn.blobFromImages(batch, 1 / 127.5, mean=(127.5, 127.5, 127.5)))
            found.append(self._net.forward().reshape(len(batch), -1).copy())
        return np.concatenate(found)

    def kept(self, group: Group, versions: Sequence[npt.NDArray[np.uint8]], cache: Path) -> Floats:
        """The same of `versions`, kept in `cache` for as long as neither they nor the trunk change."""
        digest = self._digest.copy()
        for picture in versions:
            digest.update(picture.tobytes())
        path = cache / f"{group.name.replace('/', '-')}-{digest.hexdigest()[:16]}.npy"
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            np.save(path, self.of(versions))
        kept: Floats = np.load(path)
        return kept


class Versions:
    """Changed pictures of groups; what is put into a picture comes from stills."""

    def __init__(self, stills: Sequence[Group], seed: int) -> None:
        self._seed = seed
        self._scenes = np.concatenate([group.pictures for group in stills if not group.fire])
        close = [group.pictures for group in stills if group.fire and group.name.endswith("close")]
        self._flames = np.concatenate(close) if close else self._scenes[:0]

    def of(self, group: Group, number: int) -> list[npt.NDArray[np.uint8]]:
        """VERSIONS of each picture of `group`, the `number`th."""
        random = np.random.default_rng((self._seed, number))
        least = KEPT_LEAST_BURNING if group.scene and group.fire else KEPT_LEAST
        return [
            self._one(picture, least, random, fire=group.fire) for picture in group.pictures for _ in range(VERSIONS)
        ]

    def _one(
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
