"""Writes the network as ONNX, normalisations folded into its convolutions, weights as 16-bit floats."""

from pathlib import Path

import cv2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from embereye_training.network import CHANNELS, INPUT_SIDE, RESIDUAL_FROM, Tree, folded, forward

OPSET = 13
SAME = 1e-4  # largest difference of a logit between the network and what OpenCV makes of the file


class ExportError(Exception):
    """OpenCV does not compute what was trained."""


def export(parameters: Tree, statistics: Tree, path: Path) -> None:
    """Write the network to `path`; its input is (1, 3, side, side), BGR, -1..1, its output the logit."""
    path.write_bytes(_model(folded(parameters, statistics)).SerializeToString())
    _compare(parameters, statistics, path)


def _model(layers: dict[str, tuple[np.ndarray, np.ndarray]]) -> onnx.ModelProto:
    nodes, constants = [], []

    def constant(name: str, value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def half(name: str, value: np.ndarray) -> str:
        constant(f"{name}.half", value.astype(np.float16))
        nodes.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
        return name

    def convolution(name: str, before: str, stride: int) -> str:
        kernel, offset = layers[name]
        inputs = [before, half(f"{name}.kernel", kernel.transpose(3, 2, 0, 1)), constant(f"{name}.offset", offset)]
        nodes.append(helper.make_node("Conv", inputs, [name], kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4))
        return name

    def relu(before: str) -> str:
        nodes.append(helper.make_node("Relu", [before], [f"{before}.relu"]))
        return f"{before}.relu"

    x = "pixels"
    for stage in range(len(CHANNELS)):
        x = relu(convolution(f"down{stage}", x, 2))
        if stage >= RESIDUAL_FROM:
            beside = convolution(f"same{stage}", x, 1)
            nodes.append(helper.make_node("Add", [x, beside], [f"sum{stage}"]))
            x = relu(f"sum{stage}")
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["mean"]))
    nodes.append(helper.make_node("GlobalMaxPool", [x], ["most"]))
    nodes.append(helper.make_node("Concat", ["mean", "most"], ["pooled"], axis=1))
    kernel, offset = layers["logit"]
    inputs = [
        "pooled",
        constant("logit.kernel", kernel.reshape(1, -1, 1, 1)),
        constant("logit.offset", offset.reshape(1)),
    ]
    nodes.append(helper.make_node("Conv", inputs, ["logit"], kernel_shape=[1, 1]))
    graph = helper.make_graph(
        nodes,
        "appearance",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, 3, INPUT_SIDE, INPUT_SIDE])],
        [helper.make_tensor_value_info("logit", TensorProto.FLOAT, [1, 1, 1, 1])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _compare(parameters: Tree, statistics: Tree, path: Path) -> None:
    """ExportError unless OpenCV's logits are the network's, but for the weights' rounding to 16 bits."""
    rounded = {name: dict(its) for name, its in parameters.items()}
    layers = folded(parameters, statistics)
    plain = {}
    for name, (kernel, offset) in layers.items():
        short = kernel if name == "logit" else kernel.astype(np.float16).astype(np.float32)
        rounded[name] = {"kernel": short, "offset": offset, "scale": np.ones_like(offset)}
        plain[name] = {"mean": np.zeros_like(offset), "variance": np.ones_like(offset) - 1e-5}
    network = cv2.dnn.readNetFromONNX(str(path))
    random = np.random.default_rng(1)
    for _ in range(8):
        picture = random.uniform(-1, 1, (1, INPUT_SIDE, INPUT_SIDE, 3)).astype(np.float32)
        ours = float(forward(rounded, plain, picture, train=False)[0][0])
        network.setInput(picture.transpose(0, 3, 1, 2))
        theirs = float(network.forward().ravel()[0])
        if abs(ours - theirs) > SAME * max(1.0, abs(ours)):
            raise ExportError(f"{path}: OpenCV's logit is {theirs:.6f}, the network's {ours:.6f}")
