"""The appearance network as ONNX: the trunk, its pooled channels, and linear heads for flame and smoke.

All sides of the input that are multiples of 32 give the same padding, so one graph serves both sides: flame looks at
INPUT_SIDE pixels, smoke at SMOKE_SIDE.

`model` adds the trunk's convolutions to a `_Graph` in order of computation, then the heads. Without heads the outputs
are the maps that fitting needs. The kernels of the trunk are stored as 16-bit floats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from embereye_training.trunk import Convolution

INPUT_SIDE = 96  # pixels, for flame
SMOKE_SIDE = 128  # pixels, for smoke
SOURCE = "blocks.10._project_conv.sum"  # the map of 112 channels, a 16th of the input's side
SOURCE_CHANNELS = 112
LAST = "blocks.15._project_conv"  # the map of 320 channels, a 32nd of the input's side
OPSET = 13

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Head:
    """The linear map from pooled channels to natural log odds."""

    kernel: Floats  # (2 * CHANNELS,): for the means, then for the maxima
    offset: float


@dataclass(frozen=True)
class SmokeHeads:
    """The linear maps to natural log odds of smoke, in the whole picture and in each of its places."""

    # For the whole picture: means and maxima of the source map, then of the trunk's last map.
    whole: Head
    # For a place: the source map's channels, then those of the last map, at that place.
    place: Head


def parameter_count(trunk: Sequence[Convolution], head: Head, smoke: SmokeHeads | None = None) -> int:
    """Count the network's parameters."""
    heads = (head, smoke.whole, smoke.place) if smoke else (head,)
    layers = sum(layer.kernel.size + layer.offset.size for layer in trunk)
    return layers + sum(entry.kernel.size + 1 for entry in heads)


def flame_head(path: Path) -> Head:
    """Read the head for flames of the network in the file `path`."""
    arrays = {array.name: numpy_helper.to_array(array) for array in onnx.load(str(path)).graph.initializer}
    prefix = "odds" if "odds.kernel" in arrays else "head"
    return Head(arrays[f"{prefix}.kernel"].ravel(), float(arrays[f"{prefix}.offset"][0]))


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.constant("least", np.float32(0))
        self.constant("most", np.float32(6))

    def constant(self, name: str, value: npt.NDArray[np.generic] | np.generic) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def half(self, name: str, value: Floats) -> str:
        """Add `value` as 16-bit floats: half the file size, with almost no difference."""
        self.constant(f"{name}.half", value.astype(np.float16))
        return self.node("Cast", [f"{name}.half"], name, to=TensorProto.FLOAT)

    def convolution(self, before: str, layer: Convolution, side: int) -> str:
        """Add the convolution `layer` to `before`, which is `side` pixels wide and high."""
        inputs = [
            before,
            self.half(f"{layer.name}.kernel", layer.kernel),
            self.constant(f"{layer.name}.offset", layer.offset),
        ]
        reach = layer.kernel.shape[2]
        # TensorFlow's padding: an odd pixel goes to the end.
        padding = max(0, (-(-side // layer.stride) - 1) * layer.stride + reach - side)
        before_it, behind = padding // 2, padding - padding // 2
        return self.node(
            "Conv",
            inputs,
            layer.name,
            kernel_shape=[reach] * 2,
            strides=[layer.stride] * 2,
            pads=[before_it] * 2 + [behind] * 2,
            group=layer.groups,
        )


def model(trunk: Sequence[Convolution], head: Head | None, smoke: SmokeHeads | None = None) -> onnx.ModelProto:
    """Build the network: input "pixels" (count, 3, side, side), BGR, -1..1.

    Outputs: "odds" (count, 1, 1, 1), the log odds of a flame; with `smoke` also "smoke" (count, 1, 1, 1), those of
    smoke in the whole picture, and "places" (count, 1, side / 16, side / 16), those in each place. Without a `head`,
    the outputs are what heads need: "pooled", "source" and "last".
    """
    graph, x, entry, width = _Graph(), "pixels", "pixels", INPUT_SIDE
    for number, layer in enumerate(trunk):
        x = graph.convolution(x, layer, width)
        width = -(-width // layer.stride)
        if layer.bounded:
            x = graph.node("Clip", [x, "least", "most"], f"{x}.bounded")
        else:
            x = graph.node("Add", [x, entry], f"{x}.sum") if layer.adds else x
            entry = x
        entry = x if number == 0 else entry
    channels = layer.kernel.shape[0]
    pooled = _pooled(graph, x, "")
    if head is None:
        outputs = {pooled: (2 * channels, 1), SOURCE: (SOURCE_CHANNELS, 16), x: (channels, 32)}
    else:
        outputs = {_head(graph, pooled, head, "odds"): (1, 1)}
        if smoke:
            both = graph.node("Concat", [_pooled(graph, SOURCE, "source."), pooled], "pooled.both", axis=1)
            outputs[_head(graph, both, smoke.whole, "smoke")] = (1, 1)
            outputs[_places(graph, x, smoke.place)] = (1, 16)
    return _whole_model(graph, outputs)


def _pooled(graph: _Graph, x: str, prefix: str) -> str:
    graph.node("GlobalAveragePool", [x], f"{prefix}mean")
    graph.node("GlobalMaxPool", [x], f"{prefix}most.of.all")
    return graph.node("Concat", [f"{prefix}mean", f"{prefix}most.of.all"], f"{prefix}pooled", axis=1)


def _head(graph: _Graph, x: str, head: Head, name: str) -> str:
    kernel = graph.constant(f"{name}.kernel", head.kernel.astype(np.float32).reshape(1, -1, 1, 1))
    offset = graph.constant(f"{name}.offset", np.array([head.offset], np.float32))
    return graph.node("Conv", [x, kernel, offset], name, kernel_shape=[1, 1])


def _places(graph: _Graph, last: str, head: Head) -> str:
    """Add the head for places: one convolution per map, the coarse map's doubled in width and height."""
    near = _head(graph, SOURCE, Head(head.kernel[:SOURCE_CHANNELS], head.offset), "places.near")
    far = _head(graph, last, Head(head.kernel[SOURCE_CHANNELS:], 0.0), "places.far")
    graph.constant("no.region", np.zeros(0, np.float32))
    graph.constant("doubled", np.array([1, 1, 2, 2], np.float32))
    far = graph.node(
        "Resize", [far, "no.region", "doubled"], "places.doubled", mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    return graph.node("Add", [near, far], "places")


def _whole_model(graph: _Graph, outputs: Mapping[str, tuple[int, int]]) -> onnx.ModelProto:
    """Close `graph` with `outputs`, each with its channels and the pixels per place (1: a single place)."""
    described = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT, ["count", channels, *([1, 1] if pixels == 1 else [f"side/{pixels}"] * 2)]
        )
        for name, (channels, pixels) in outputs.items()
    ]
    made = helper.make_graph(
        graph.nodes,
        "appearance",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["count", 3, "side", "side"])],
        described,
        graph.constants,
    )
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(whole)
    return whole
