"""EfficientNet-Lite0 without its last convolution, as its makers' weights for a thousand classes of things have it.

Tan & Le, "EfficientNet: Rethinking model scaling for convolutional neural networks" (ICML 2019). The Lite kind has
neither attention nor swish: convolutions and ReLU6 alone, which OpenCV computes fast.
"""

import pickle
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

CHANNELS = 320  # of what comes out
EPSILON = 1e-3  # of the normalisations, as its makers set it
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how a file of PyTorch's before 1.6 begins
# Of each stage: blocks, kernel, stride of the first, factor by which a block widens, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


@dataclass(frozen=True)
class Convolution:
    """One convolution, its normalisation folded into it."""

    name: str
    kernel: Floats  # (after, before / groups, side, side)
    offset: Floats  # (after,)
    stride: int
    groups: int
    bounded: bool  # by ReLU6
    adds: bool = False  # to what went into its block


def convolutions(weights: dict[str, Floats]) -> Iterator[Convolution]:
    """The trunk of `weights`, its input BGR, -1..1, in the order in which it is computed."""
    first = _folded(weights, "_conv_stem", "_bn0", stride=2)
    yield replace(first, kernel=first.kernel[:, ::-1])  # they were learnt from RGB, and cameras' pictures are BGR
    before, number = 32, 0
    for blocks, _, stride, widening, after in _STAGES:
        for block in range(blocks):
            name, once = f"_blocks.{number}", stride if block == 0 else 1
            if widening > 1:
                yield _folded(weights, f"{name}._expand_conv", f"{name}._bn0")
            yield _folded(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride=once, groups=before * widening)
            adds = once == 1 and before == after
            yield _folded(weights, f"{name}._project_conv", f"{name}._bn2", bounded=False, adds=adds)
            before, number = after, number + 1


def _folded(
    weights: dict[str, Floats],
    name: str,
    normalisation: str,
    *,
    stride: int = 1,
    groups: int = 1,
    bounded: bool = True,
    adds: bool = False,
) -> Convolution:
    factor = weights[f"{normalisation}.weight"] / np.sqrt(weights[f"{normalisation}.running_var"] + EPSILON)
    offset = weights[f"{normalisation}.bias"] - weights[f"{normalisation}.running_mean"] * factor
    kernel = weights[f"{name}.weight"] * factor[:, None, None, None]
    return Convolution(name.removeprefix("_"), kernel, offset, stride, groups, bounded, adds)


class WeightsError(Exception):
    """A file of weights cannot be read."""


def read_weights(path: Path) -> dict[str, Floats]:
    """The arrays of a file that PyTorch before 1.6 saved, by name; WeightsError where it is something else.

    The file is a few pickles, then the bytes of each storage. Nothing but arrays is made of what it says.
    """
    with path.open("rb") as file:
        try:
            if pickle.load(file) != _MAGIC or pickle.load(file) != _PROTOCOL:
                raise WeightsError(f"{path} is no file of weights that PyTorch before 1.6 saved")
            pickle.load(file)  # about the machine that saved it
            reader = _Reader(file)
            tensors: OrderedDict[str, _Tensor] = reader.load()
            storages = {key: _storage(file, reader.kinds[key]) for key in pickle.load(file)}
        except (pickle.UnpicklingError, EOFError, KeyError, AttributeError) as error:
            raise WeightsError(f"{path} is no file of weights that PyTorch before 1.6 saved: {error}") from error
    return {name: its.of(storages[its.key]) for name, its in tensors.items() if its.size}


def _storage(file: BinaryIO, kind: str) -> npt.NDArray[Any]:
    count = int.from_bytes(file.read(8), "little")
    dtype = np.dtype({"FloatStorage": "<f4", "LongStorage": "<i8"}[kind])
    return np.frombuffer(file.read(count * dtype.itemsize), dtype)


@dataclass(frozen=True)
class _Tensor:
    key: str
    first: int
    size: tuple[int, ...]
    steps: tuple[int, ...]  # elements from one to the next along each axis: kernels are saved transposed

    def of(self, storage: npt.NDArray[Any]) -> Floats:
        places = np.full(self.size, self.first)
        for step, along in zip(self.steps, np.indices(self.size, sparse=True), strict=True):
            places += step * along
        found: Floats = storage[places].astype(np.float32)
        return found


class _Reader(pickle.Unpickler):
    """Takes tensors for what they say of themselves, and refuses everything else."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.kinds: dict[str, str] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda key, first, size, steps, *_: _Tensor(key, first, tuple(size), tuple(steps))
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is not expected in it")

    def persistent_load(self, saved: Any) -> str:
        _, kind, key, *_ = saved
        self.kinds[key] = kind
        return str(key)
