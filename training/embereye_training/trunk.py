"""EfficientNet-Lite0 without its last convolution, with its makers' weights for a thousand classes.

Tan & Le, "EfficientNet: Rethinking model scaling for convolutional neural networks" (ICML 2019). The Lite variant has
neither attention nor swish, only convolutions and ReLU6, which OpenCV computes fast.

`read_weights` reads the makers' file without PyTorch and creates only arrays from it. `convolutions` folds each
normalisation into its convolution and yields them in order of computation, for `network` to write as ONNX.
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

CHANNELS = 320  # of the output
EPSILON = 1e-3  # of the normalisations, as set by its makers
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # start of a file from PyTorch before 1.6
# Per stage: blocks, kernel, stride of the first block, factor by which a block widens, channels.
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
    """One convolution with its normalisation folded in."""

    name: str
    kernel: Floats  # (after, before / groups, side, side)
    offset: Floats  # (after,)
    stride: int
    groups: int
    bounded: bool  # by ReLU6
    adds: bool = False  # add the block's input


def convolutions(weights: dict[str, Floats]) -> Iterator[Convolution]:
    """Yield the convolutions of `weights` in order of computation; the input is BGR, -1..1."""
    first = _folded(weights, "_conv_stem", "_bn0", stride=2)
    # the weights were learned from RGB, but cameras' pictures are BGR
    yield replace(first, kernel=first.kernel[:, ::-1])
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
    """Read the arrays, by name, of a file saved by PyTorch before 1.6; raise WeightsError if it is something else.

    The file consists of pickles, followed by the bytes of each storage. Only arrays are created from it.
    """
    with path.open("rb") as file:
        try:
            if pickle.load(file) != _MAGIC or pickle.load(file) != _PROTOCOL:
                raise WeightsError(f"{path}: not a weights file of PyTorch before 1.6")
            pickle.load(file)  # about the machine that saved it
            reader = _Reader(file)
            tensors: OrderedDict[str, _Tensor] = reader.load()
            storages = {key: _storage(file, reader.kinds[key]) for key in pickle.load(file)}
        except (pickle.UnpicklingError, EOFError, KeyError, AttributeError) as error:
            raise WeightsError(f"{path}: not a weights file of PyTorch before 1.6 ({error})") from error
    return {name: tensor.of(storages[tensor.key]) for name, tensor in tensors.items() if tensor.size}


def _storage(file: BinaryIO, kind: str) -> npt.NDArray[Any]:
    count = int.from_bytes(file.read(8), "little")
    dtype = np.dtype({"FloatStorage": "<f4", "LongStorage": "<i8"}[kind])
    return np.frombuffer(file.read(count * dtype.itemsize), dtype)


@dataclass(frozen=True)
class _Tensor:
    key: str
    first: int
    size: tuple[int, ...]
    steps: tuple[int, ...]  # elements between neighbours along each axis; kernels are saved transposed

    def of(self, storage: npt.NDArray[Any]) -> Floats:
        indices = np.full(self.size, self.first)
        for step, along in zip(self.steps, np.indices(self.size, sparse=True), strict=True):
            indices += step * along
        array: Floats = storage[indices].astype(np.float32)
        return array


class _Reader(pickle.Unpickler):
    """An unpickler that reads only descriptions of tensors and refuses everything else."""

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
        raise pickle.UnpicklingError(f"{module}.{name}: not expected in a weights file")

    def persistent_load(self, saved: Any) -> str:
        _, kind, key, *_ = saved
        self.kinds[key] = kind
        return str(key)
