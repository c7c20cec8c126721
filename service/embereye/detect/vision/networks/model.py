"""A fleet's own ONNX model: runs on a picture and returns its detections of flame and smoke. Pure.

`ModelHost` loads a `Network` and runs it on one picture at a time. `prepare` fits the picture into the declared input,
OpenCV or onnxruntime runs the network, and `decode` reads its first output as the declared decoder says. Overlapping
boxes are merged. An output that differs from the declaration raises a ModelError that says what differs. Loading
includes trial runs, so that most such errors appear there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.networks.appearance import overlap_of
from embereye.detect.vision.pixels import Picture
from embereye.levels import Kind
from embereye.units import WHOLE, Box
from embereye.v1.shard_pb2 import Model

Floats = npt.NDArray[np.float32]

WARM_UPS = 2  # runs on a grey picture: the first ones allocate memory and choose kernels
GREY = 114  # of the bars next to a picture that retains its proportions, as the YOLO families are trained
OVERLAP = 0.45  # if the settings say 0
MAX_BOXES = 1000  # of a picture, by score, before overlapping ones are merged
RUNTIMES = {Model.RUNTIME_OPENCV: "opencv", Model.RUNTIME_ONNXRUNTIME: "onnxruntime"}


class ModelError(Exception):
    """The reason why a model, or its output for a picture, cannot be used. The text is for people."""


@dataclass(frozen=True)
class Detection:
    """One detection of a model."""

    kind: Kind
    score: float  # 0..1
    threshold: float  # 0..1, from which the detection counts
    box: Box


class Runtime(Protocol):
    """A runtime that runs a network. Not thread-safe."""

    def run(self, blob: Floats) -> Sequence[object]:
        """Return the outputs for `blob` (1, 3, height, width)."""


class _OpenCv:
    def __init__(self, data: bytes) -> None:
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8))
        if self._net.empty():
            raise ModelError("it contains no network")
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
                "runtime onnxruntime is not installed. Use an image built with the extra embereye[onnx], "
                "or runtime: opencv"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # cameras provide the parallelism
        options.log_severity_level = 4  # errors are raised instead
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise ModelError(
                f"it has {len(inputs)} inputs ({', '.join(entry.name for entry in inputs)}), not one picture"
            )
        self._input = inputs[0].name

    def run(self, blob: Floats) -> Sequence[object]:
        outputs: Sequence[object] = self._session.run(None, {self._input: blob})
        return outputs


class Network:
    """A loaded and warmed-up model. Not thread-safe."""

    def __init__(self, data: bytes, settings: Model) -> None:
        """Load `data`; raise ModelError if it is no model with the output that `settings` declare."""
        self._settings = settings
        kind = _OnnxRuntime if settings.runtime == Model.RUNTIME_ONNXRUNTIME else _OpenCv
        try:
            self._runtime: Runtime = kind(data)
        except ModelError:
            raise
        except Exception as error:  # each runtime has separate exceptions, some of them bare RuntimeErrors
            raise ModelError(f"{_runtime_name(settings)} cannot read it: {_short(error)}") from error
        grey = np.full((settings.height, settings.width, 3), GREY, np.uint8)
        for _ in range(WARM_UPS):
            self.detect_objects(grey)

    def detect_objects(self, picture: Picture) -> list[Detection]:
        """Return the model's detections in `picture` (BGR) of the declared kinds, with any score.

        Raises ModelError if it cannot be run or its output differs from the declared one.
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
    """The position of the picture in the model's input, in pixels of the input."""

    left: float
    top: float
    width: float
    height: float


def prepare(picture: Picture, settings: Model) -> tuple[Floats, Placed]:
    """Return the input (1, 3, height, width) for `picture` (BGR), and the picture's position in it."""
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
    """Decode a model's `output` as declared; raise ModelError if it does not match the declared decoder."""
    if not isinstance(output, np.ndarray) or not np.issubdtype(output.dtype, np.number):
        raise ModelError("its first output contains no numbers. Export the model without the names of its classes")
    classes = settings.classes
    needed = max(entry.index for entry in classes) + 1
    shape = tuple(output.shape)
    if settings.decoder == Model.DECODER_CLASSIFICATION:
        if output.ndim < 2 or shape[0] != 1 or output.size < needed or output.size != max(shape):
            raise ModelError(f"its output has the shape {shape}, not (1, {needed} or more) as decoder classification")
        scores = _scores(output.reshape(1, -1), settings)[0]
        return [Detection(Kind(entry.kind), float(scores[entry.index]), entry.threshold, WHOLE) for entry in classes]
    five = settings.decoder == Model.DECODER_YOLOV5
    columns = (5 if five else 4) + needed
    wanted = f"(1, boxes, {columns} or more)" if five else f"(1, {columns} or more, boxes)"
    if output.ndim != 3 or shape[0] != 1 or shape[2 if five else 1] < columns:
        name = "yolov5" if five else "yolov8"
        raise ModelError(f"its output has the shape {shape}, not {wanted} as decoder {name}. See docs/how-to/models.md")
    rows = np.asarray(output[0] if five else output[0].T, np.float32)
    if not np.isfinite(rows).all():
        raise ModelError("its output contains values that are not numbers")
    scores = _scores(rows[:, 5:] if five else rows[:, 4:], settings)
    if five:
        scores = scores * _scores(rows[:, 4:5], settings)
    boxes = _boxes(rows[:, :4], placed)
    detections = []
    for entry in classes:
        distinct = _distinct(boxes, scores[:, entry.index], entry.threshold, settings.overlap or OVERLAP)
        detections += [
            Detection(Kind(entry.kind), float(scores[number, entry.index]), entry.threshold, _box(boxes[number]))
            for number in distinct
        ]
    return detections


def _scores(values: npt.NDArray[Any], settings: Model) -> Floats:
    scores = np.asarray(values, np.float32)
    if not np.isfinite(scores).all():
        raise ModelError("its output contains values that are not numbers")
    if settings.activation == Model.ACTIVATION_SIGMOID:
        scores = (1 / (1 + np.exp(-np.clip(scores, -60, 60)))).astype(np.float32)
    elif settings.activation == Model.ACTIVATION_SOFTMAX:
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    if scores.size and (scores.min() < -1e-3 or scores.max() > 1 + 1e-3):
        raise ModelError(
            f"its scores go from {scores.min():.3g} to {scores.max():.3g}, not from 0 to 1. "
            "Set activation to sigmoid or softmax if it needs one"
        )
    return scores


def _boxes(rows: Floats, placed: Placed) -> Floats:
    """Convert centre and size in the input's pixels to (n, 4): left, top, width, height as shares of the picture.

    A box whose size is negative is empty, around its centre.
    """
    boxes = np.empty_like(rows)
    ends = []
    for axis, (start, length) in enumerate(((placed.left, placed.width), (placed.top, placed.height))):
        half = np.maximum(rows[:, 2 + axis], 0) / 2
        low = np.clip((rows[:, axis] - half - start) / length, 0, 1)
        ends.append(np.clip((rows[:, axis] + half - start) / length, 0, 1))
        boxes[:, axis] = low
        boxes[:, 2 + axis] = ends[axis] - low
    return boxes


def _distinct(boxes: Floats, scores: Floats, threshold: float, overlap: float) -> list[int]:
    """Return the numbers of the distinct boxes, by score; if all are below `threshold`, only the best."""
    order = np.argsort(-scores)[:MAX_BOXES]
    distinct: list[int] = []
    for number in order[scores[order] >= threshold].tolist():
        if all(overlap_of(boxes[number], boxes[other]) <= overlap for other in distinct):
            distinct.append(number)
    return distinct or order[:1].tolist()


def _box(values: Floats) -> Box:
    left, top, width, height = (float(value) for value in values)
    return (left, top, width, height)


def _runtime_name(settings: Model) -> str:
    return RUNTIMES.get(settings.runtime, "opencv")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
