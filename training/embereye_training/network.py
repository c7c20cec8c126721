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
    """What makes natural log odds of pooled channels."""

    kernel: Floats  # (2 * CHANNELS,): of their means, then of their maxima
    offset: float


def parameter_count(trunk: Sequence[Convolution], head: Head) -> int:
    """How many numbers the network consists of."""
    return sum(its.kernel.size + its.offset.size for its in trunk) + head.kernel.size + 1


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
        """`value`, kept as 16-bit floats: half the file, and next to no difference."""
        self.constant(f"{name}.half", value.astype(np.float16))
        return self.node("Cast", [f"{name}.half"], name, to=TensorProto.FLOAT)

    def convolution(self, before: str, its: Convolution, side: int) -> str:
        """`its` result for `before`, which is `side` pixels wide and high."""
        inputs = [before, self.half(f"{its.name}.kernel", its.kernel), self.constant(f"{its.name}.offset", its.offset)]
        reach = its.kernel.shape[2]
        # As TensorFlow pads: what is odd comes behind.
        padding = max(0, (-(-side // its.stride) - 1) * its.stride + reach - side)
        before_it, behind = padding // 2, padding - padding // 2
        return self.node(
            "Conv",
            inputs,
            its.name,
            kernel_shape=[reach] * 2,
            strides=[its.stride] * 2,
            pads=[before_it] * 2 + [behind] * 2,
            group=its.groups,
        )


def model(trunk: Sequence[Convolution], head: Head | None, side: int = INPUT_SIDE) -> onnx.ModelProto:
    """The network: its input is (1, 3, side, side), BGR, -1..1, its output (1, 1, 1, 1), the log odds.

    Without a `head` its output is what one would be given: (1, 2 * channels, 1, 1).
    """
    graph, x, entry, width = _Graph(), "pixels", "pixels", side
    for number, its in enumerate(trunk):
        x = graph.convolution(x, its, width)
        width = -(-width // its.stride)
        if its.bounded:
            x = graph.node("Clip", [x, "least", "most"], f"{x}.bounded")
        else:
            x = graph.node("Add", [x, entry], f"{x}.sum") if its.adds else x
            entry = x
        entry = x if number == 0 else entry
    graph.node("GlobalAveragePool", [x], "mean")
    graph.node("GlobalMaxPool", [x], "most.of.all")
    output, channels = graph.node("Concat", ["mean", "most.of.all"], "pooled", axis=1), 2 * its.kernel.shape[0]
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
