"""Small ONNX graphs for tests, with known results."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from embereye.levels import Kind
from embereye.v1.shard_pb2 import Model, ModelClass

SIDE = 64  # pixels of the input
FLAME, SMOKE = Kind.FLAME, Kind.SMOKE
BOTH = (ModelClass(index=0, kind=FLAME.wire, threshold=0.5), ModelClass(index=1, kind=SMOKE.wire, threshold=0.6))
RUNTIMES = [Model.RUNTIME_OPENCV, Model.RUNTIME_ONNXRUNTIME]


def graph(nodes: list, shape: tuple, constants: dict, side: int = SIDE) -> bytes:
    """Return the file of a model from "images" to "out"."""
    tensors = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()]
    picture = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, side, side])
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, list(shape))
    made = helper.make_graph(nodes, "test", [picture], [output], tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def constant(values: object, side: int = SIDE) -> bytes:
    """Return a model whose output is always `values`."""
    outputs = np.asarray(values, np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["outputs", "nothing"], ["out"]),
    ]
    return graph(nodes, outputs.shape, {"outputs": outputs, "zero": [0.0]}, side)


def channel_means() -> bytes:
    """Return a classification model whose scores are the means of its input's three channels."""
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["out"], axes=[2, 3], keepdims=0),
    ]
    return graph(nodes, (1, 3), {})


def redness() -> bytes:
    """Return a yolov8 model with one box, the whole picture, whose flame score is the mean of red."""
    box = np.zeros((1, 6, 1), np.float32)
    box[0, :4, 0] = SIDE / 2, SIDE / 2, SIDE, SIDE
    pick = np.zeros((1, 3, 1, 1), np.float32)
    pick[0, 0] = 1
    nodes = [
        helper.make_node("Mul", ["images", "pick"], ["red"]),
        helper.make_node("ReduceSum", ["red"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "share"], ["mean"]),
        helper.make_node("Mul", ["mean", "where"], ["scores"]),
        helper.make_node("Add", ["box", "scores"], ["out"]),
    ]
    where = np.zeros((1, 6, 1), np.float32)
    where[0, 4, 0] = 1
    return graph(nodes, (1, 6, 1), {"pick": pick, "share": [1 / SIDE**2], "where": where, "box": box})


def settings(decoder: int, runtime: int = Model.RUNTIME_OPENCV, **changes: Any) -> Model:
    """Return the settings that a fleet declares for the models of this module."""
    given: dict[str, Any] = {
        "width": SIDE,
        "height": SIDE,
        "scale": 1 / 255,
        "classes": BOTH,
        "decoder": decoder,
        "runtime": runtime,
    }
    return Model(**(given | changes))
