"""The appearance network as ONNX: the trunk, its pooled channels, and a linear head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from embereye_training.trunk import Convolution

INPUT_SIDE = 96  # pixels
OPSET = 13

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Head:
    """The linear map from pooled channels to natural log odds."""

    kernel: Floats  # (2 * CHANNELS,): for the means, then for the maxima
    offset: float


def parameter_count(trunk: Sequence[Convolution], head: Head) -> int:
    """Count the network's parameters."""
    return sum(layer.kernel.size + layer.offset.size for layer in trunk) + head.kernel.size + 1


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


def model(trunk: Sequence[Convolution], head: Head | None, side: int = INPUT_SIDE) -> onnx.ModelProto:
    """Build the network: input (1, 3, side, side), BGR, -1..1; output (1, 1, 1, 1), the log odds.

    Without a `head`, the output is the head's input: (1, 2 * channels, 1, 1).
    """
    graph, x, entry, width = _Graph(), "pixels", "pixels", side
    for number, layer in enumerate(trunk):
        x = graph.convolution(x, layer, width)
        width = -(-width // layer.stride)
        if layer.bounded:
            x = graph.node("Clip", [x, "least", "most"], f"{x}.bounded")
        else:
            x = graph.node("Add", [x, entry], f"{x}.sum") if layer.adds else x
            entry = x
        entry = x if number == 0 else entry
    graph.node("GlobalAveragePool", [x], "mean")
    graph.node("GlobalMaxPool", [x], "most.of.all")
    output, channels = graph.node("Concat", ["mean", "most.of.all"], "pooled", axis=1), 2 * layer.kernel.shape[0]
    if head:
        inputs = ["pooled", graph.constant("head.kernel", head.kernel.reshape(1, -1, 1, 1))]
        inputs.append(graph.constant("head.offset", np.array([head.offset], np.float32)))
        output, channels = graph.node("Conv", inputs, "odds", kernel_shape=[1, 1]), 1
    made = helper.make_graph(
        graph.nodes,
        "appearance",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, 3, side, side])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, channels, 1, 1])],
        graph.constants,
    )
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(whole)
    return whole
