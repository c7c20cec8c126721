"""A user's own ONNX model: its file's bytes and a picture in, what it sees of flame and smoke out. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.pixels import Picture
from embereye.levels import Kind
from embereye.units import WHOLE, Box
from embereye.v1.shard_pb2 import Model

Floats = npt.NDArray[np.float32]

WARM_UPS = 2  # runs on a grey picture: the first ones allocate and choose kernels
GREY = 114  # of the bars beside a picture that keeps its proportions: what the YOLO families are trained with
OVERLAP = 0.45  # where the settings leave it at 0
MOST_BOXES = 1000  # of a picture, by score, before those of one thing are made one
RUNTIMES = {Model.RUNTIME_OPENCV: "opencv", Model.RUNTIME_ONNXRUNTIME: "onnxruntime"}


class ModelError(Exception):
    """Why a model cannot be used, or what it said of a picture cannot be; the text is for people."""


@dataclass(frozen=True)
class Detection:
    """One thing that a model sees."""

    kind: Kind
    score: float  # 0..1
    threshold: float  # 0..1, from which on it counts
    box: Box


class Runtime(Protocol):
    """What runs a network; not safe for two threads at once."""

    def run(self, blob: Floats) -> Sequence[object]:
        """The outputs for `blob` (1, 3, height, width)."""
        ...


class _OpenCv:
    def __init__(self, data: bytes) -> None:
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8))
        if self._net.empty():
            raise ModelError("it holds no network")
        self._names = self._net.getUnconnectedOutLayersNames()

    def run(self, blob: Floats) -> Sequence[object]:
        self._net.setInput(blob)
        return self._net.forward(self._names)


class _OnnxRuntime:
    def __init__(self, data: bytes) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ModelError(
                "runtime onnxruntime is not installed here: use an image built with the extra embereye[onnx], "
                "or runtime: opencv"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # cameras are the parallelism
        options.log_severity_level = 4  # what goes wrong is raised
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise ModelError(
                f"it has {len(inputs)} inputs ({', '.join(each.name for each in inputs)}), not one picture"
            )
        self._input = inputs[0].name

    def run(self, blob: Floats) -> Sequence[object]:
        outputs: Sequence[object] = self._session.run(None, {self._input: blob})
        return outputs


class Network:
    """A loaded and warmed-up model. Not safe for two threads at once."""

    def __init__(self, data: bytes, settings: Model) -> None:
        """ModelError says why `data` is no model that gives what `settings` declare."""
        self._settings = settings
        kind = _OnnxRuntime if settings.runtime == Model.RUNTIME_ONNXRUNTIME else _OpenCv
        try:
            self._runtime: Runtime = kind(data)
        except ModelError:
            raise
        except Exception as error:  # each runtime has its own, some of them bare RuntimeErrors
            raise ModelError(f"{_runtime_name(settings)} cannot read it: {_short(error)}") from error
        grey = np.full((settings.height, settings.width, 3), GREY, np.uint8)
        for _ in range(WARM_UPS):
            self.detect_objects(grey)

    def detect_objects(self, picture: Picture) -> list[Detection]:
        """What the model sees in `picture` (BGR) of the kinds it is asked for, whatever the score.

        ModelError where it cannot be run or its output is not what is declared: then nothing is known.
        """
        blob, placed = prepare(picture, self._settings)
        try:
            outputs = self._runtime.run(blob)
        except Exception as error:
            raise ModelError(
                f"{_runtime_name(self._settings)} cannot run it on a picture of "
                f"{self._settings.width} x {self._settings.height}: {_short(error)}"
            ) from error
        if not outputs:
            raise ModelError("it has no output")
        return decode(outputs[0], self._settings, placed)


@dataclass(frozen=True)
class Placed:
    """Where in the model's input the picture lies, in its pixels."""

    left: float
    top: float
    width: float
    height: float


def prepare(picture: Picture, settings: Model) -> tuple[Floats, Placed]:
    """The input (1, 3, height, width) for `picture` (BGR), and where in it the picture lies."""
    height, width = picture.shape[:2]
    if settings.stretch:
        size = (settings.width, settings.height)
    else:
        factor = min(settings.width / width, settings.height / height)
        size = (max(1, round(width * factor)), max(1, round(height * factor)))
    shrinks = size[0] < width
    fitted = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    left, top = (settings.width - size[0]) // 2, (settings.height - size[1]) // 2
    if size != (settings.width, settings.height):
        right, bottom = settings.width - size[0] - left, settings.height - size[1] - top
        fitted = cv2.copyMakeBorder(fitted, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(GREY, GREY, GREY))
    values = fitted.astype(np.float32)
    if not settings.bgr:
        values = values[..., ::-1]
    values = values * np.float32(settings.scale)
    if settings.mean:
        values -= np.array(settings.mean, np.float32)
    if settings.std:
        values /= np.array(settings.std, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None]), Placed(left, top, *size)


def decode(output: object, settings: Model, placed: Placed) -> list[Detection]:
    """What a model's `output` says, as its decoder is declared; ModelError where it cannot be that decoder's output."""
    if not isinstance(output, np.ndarray) or not np.issubdtype(output.dtype, np.number):
        raise ModelError("its first output holds no numbers: export the model without the names of its classes")
    classes = settings.classes
    needed = max(entry.index for entry in classes) + 1
    shape = tuple(output.shape)
    if settings.decoder == Model.DECODER_CLASSIFICATION:
        if output.ndim < 2 or shape[0] != 1 or output.size < needed or output.size != max(shape):
            raise ModelError(f"its output has the shape {shape}, not (1, {needed} or more) as decoder classification")
        scores = _scores(output.reshape(1, -1), settings)[0]
        return [Detection(Kind(each.kind), float(scores[each.index]), each.threshold, WHOLE) for each in classes]
    five = settings.decoder == Model.DECODER_YOLOV5
    columns = (5 if five else 4) + needed
    wanted = f"(1, boxes, {columns} or more)" if five else f"(1, {columns} or more, boxes)"
    if output.ndim != 3 or shape[0] != 1 or shape[2 if five else 1] < columns:
        name = "yolov5" if five else "yolov8"
        raise ModelError(f"its output has the shape {shape}, not {wanted} as decoder {name}: see docs/how-to/models.md")
    rows = np.asarray(output[0] if five else output[0].T, np.float32)
    if not np.isfinite(rows).all():
        raise ModelError("its output holds values that are no numbers")
    scores = _scores(rows[:, 5:] if five else rows[:, 4:], settings)
    if five:
        scores = scores * _scores(rows[:, 4:5], settings)
    boxes = _boxes(rows[:, :4], placed)
    found = []
    for each in classes:
        kept = _distinct(boxes, scores[:, each.index], each.threshold, settings.overlap or OVERLAP)
        found += [
            Detection(Kind(each.kind), float(scores[number, each.index]), each.threshold, _box(boxes[number]))
            for number in kept
        ]
    return found


def _scores(values: npt.NDArray[Any], settings: Model) -> Floats:
    scores = np.asarray(values, np.float32)
    if not np.isfinite(scores).all():
        raise ModelError("its output holds values that are no numbers")
    if settings.activation == Model.ACTIVATION_SIGMOID:
        scores = (1 / (1 + np.exp(-np.clip(scores, -60, 60)))).astype(np.float32)
    elif settings.activation == Model.ACTIVATION_SOFTMAX:
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    if scores.size and (scores.min() < -1e-3 or scores.max() > 1 + 1e-3):
        raise ModelError(
            f"its scores go from {scores.min():.3g} to {scores.max():.3g}, not from 0 to 1: "
            "does it need activation sigmoid or softmax?"
        )
    return scores


def _boxes(rows: Floats, placed: Placed) -> Floats:
    """(n, 4): left, top, width, height as shares of the picture, from centre and size in the input's pixels."""
    boxes = np.empty_like(rows)
    ends = []
    for axis, (start, length) in enumerate(((placed.left, placed.width), (placed.top, placed.height))):
        half = rows[:, 2 + axis] / 2
        low = np.clip((rows[:, axis] - half - start) / length, 0, 1)
        ends.append(np.clip((rows[:, axis] + half - start) / length, 0, 1))
        boxes[:, axis] = low
        boxes[:, 2 + axis] = ends[axis] - low
    return boxes


def _distinct(boxes: Floats, scores: Floats, threshold: float, overlap: float) -> list[int]:
    """The numbers of the boxes that stand for one thing each, by score; of those below `threshold` only the best."""
    order = np.argsort(-scores)[:MOST_BOXES]
    kept: list[int] = []
    for number in order[scores[order] >= threshold].tolist():
        if all(_overlap(boxes[number], boxes[other]) <= overlap for other in kept):
            kept.append(number)
    return kept or order[:1].tolist()


def _overlap(one: Floats, other: Floats) -> float:
    """Intersection over union."""
    width = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    height = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = float(width * height)
    return shared / (float(one[2] * one[3] + other[2] * other[3]) - shared)


def _box(values: Floats) -> Box:
    left, top, width, height = (float(value) for value in values)
    return (left, top, width, height)


def _runtime_name(settings: Model) -> str:
    return RUNTIMES.get(settings.runtime, "opencv")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
