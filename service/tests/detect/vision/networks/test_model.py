"""Custom models: the meaning of their outputs, and invalid outputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as checked
from hypothesis import strategies as st

from embereye.detect.vision.networks.model import Detection, ModelError, Network, Placed, decode, prepare
from embereye.v1.shard_pb2 import Model, ModelClass

from .models import BOTH, FLAME, RUNTIMES, SIDE, SMOKE, channel_means, constant, settings

V5, V8, CLASSES = Model.DECODER_YOLOV5, Model.DECODER_YOLOV8, Model.DECODER_CLASSIFICATION
PICTURE = np.full((48, 64, 3), 90, np.uint8)  # letterboxed to 64 x 64: 8 rows of grey above and below
WHERE = Placed(0, 8, 64, 48)


def counted(detections: list[Detection]) -> list[Detection]:
    """Return the detections that count."""
    return [detection for detection in detections if detection.score >= detection.threshold]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_yolov5_multiplies_by_objectness_and_yolov8_has_none(runtime: int) -> None:
    rows = [[32, 32, 16, 12, 0.9, 0.8, 0.1], [10, 20, 8, 8, 0.2, 0.9, 0.9]]
    [flame] = counted(Network(constant([rows]), settings(V5, runtime)).detect_objects(PICTURE))
    assert (flame.kind, flame.score) == (FLAME, pytest.approx(0.72))
    assert flame.box == pytest.approx((24 / 64, 18 / 48, 16 / 64, 12 / 48))
    columns = np.array([[[*row[:4], *row[5:]] for row in rows]]).transpose(0, 2, 1)
    detections = counted(Network(constant(columns), settings(V8, runtime)).detect_objects(PICTURE))
    # The second box scores higher for flame and is also smoke; the first is another flame.
    assert [(detection.kind, round(detection.score, 3)) for detection in detections] == [
        (FLAME, 0.9),
        (FLAME, 0.8),
        (SMOKE, 0.9),
    ]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_overlapping_boxes_are_merged_and_separate_ones_are_not(runtime: int) -> None:
    rows = [[32, 32, 16, 16, 1, s, 0] for s in (0.7, 0.9, 0.8)] + [[50, 32, 16, 16, 1, 0.6, 0]]
    detections = counted(Network(constant([rows]), settings(V5, runtime)).detect_objects(PICTURE))
    assert [round(detection.score, 2) for detection in detections] == [0.9, 0.6]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_without_detections_the_best_score_is_returned(runtime: int) -> None:
    detections = Network(constant([[[32, 32, 16, 16, 0.1, 0.5, 0.2]]]), settings(V5, runtime)).detect_objects(PICTURE)
    assert counted(detections) == []
    assert [round(detection.score, 3) for detection in detections] == [0.05, 0.02]
    assert decode(np.zeros((1, 0, 7), np.float32), settings(V5), WHERE) == []


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("bgr", "order"), [(False, (0, 1, 2)), (True, (2, 1, 0))])
def test_pixels_are_scaled_and_normalised_per_channel_in_the_declared_order(
    runtime: int, bgr: bool, order: tuple[int, ...]
) -> None:
    three = [ModelClass(index=number, kind=FLAME.wire, threshold=0.5) for number in range(3)]
    mean, std = (0.1, 0.0, 0.2), (1.0, 2.0, 4.0)
    declared = settings(CLASSES, runtime, classes=three, stretch=True, bgr=bgr, mean=mean, std=std)
    rgb = np.array([255, 102, 204])
    picture = np.full((30, 50, 3), rgb[::-1], np.uint8)
    detections = Network(channel_means(), declared).detect_objects(picture)
    wanted = [(rgb[channel] / 255 - mean[n]) / std[n] for n, channel in enumerate(order)]
    assert [detection.score for detection in detections] == pytest.approx(wanted, abs=2e-3)
    assert detections[0].box == (0, 0, 1, 1)


def test_boxes_in_a_letterbox_are_converted_back_to_the_picture() -> None:
    blob, placed = prepare(np.full((100, 200, 3), 255, np.uint8), settings(V8))
    assert (placed, blob.shape) == (Placed(0, 16, 64, 32), (1, 3, 64, 64))
    assert blob[0, :, 0, 0] == pytest.approx(114 / 255)
    assert blob[0, :, 32, 32] == pytest.approx(1.0)
    output = np.array([[[32], [32], [64], [32], [0.9], [0]]], np.float32)
    assert decode(output, settings(V8), placed)[0].box == pytest.approx((0, 0, 1, 1))
    beyond = np.array([[[0], [0], [500], [500], [0.9], [0]]], np.float32)
    assert decode(beyond, settings(V8), placed)[0].box == pytest.approx((0, 0, 1, 1))
    negative = np.array([[[32], [32], [-16], [-17], [0.9], [0]]], np.float32)
    assert decode(negative, settings(V8), placed)[0].box == pytest.approx((0.5, 0.5, 0, 0))


@pytest.mark.parametrize(
    ("activation", "scores"),
    [(Model.ACTIVATION_SIGMOID, [0.982, 0.119]), (Model.ACTIVATION_SOFTMAX, [0.998, 0.002])],
)
def test_raw_scores_are_converted_by_the_declared_activation(activation: int, scores: list[float]) -> None:
    detections = decode(np.array([[4.0, -2.0]]), settings(CLASSES, activation=activation), WHERE)
    assert [detection.score for detection in detections] == pytest.approx(scores, abs=1e-3)
    with pytest.raises(ModelError, match="its scores go from -2 to 4, not from 0 to 1"):
        decode(np.array([[4.0, -2.0]]), settings(CLASSES), WHERE)


@pytest.mark.parametrize(
    ("decoder", "output", "sentence"),
    [
        (V5, np.zeros((1, 5, 6)), r"shape \(1, 5, 6\), not \(1, boxes, 7 or more\) as decoder yolov5"),
        (V8, np.zeros((1, 5, 100)), r"not \(1, 6 or more, boxes\) as decoder yolov8"),
        (V5, np.zeros((2, 5, 7)), "shape"),
        (V8, np.zeros((5, 7)), "shape"),
        (CLASSES, np.zeros((1, 1)), r"not \(1, 2 or more\)"),
        (CLASSES, np.zeros((1, 2, 2)), "shape"),
        (CLASSES, np.zeros(()), "shape"),
        (V5, np.full((1, 5, 7), np.nan), "not numbers"),
        (V8, np.full((1, 6, 3), np.inf), "not numbers"),
        (CLASSES, np.full((1, 2), np.nan), "not numbers"),
        (CLASSES, np.array([["flame", "smoke"]], object), "no numbers"),
        (V8, np.full((1, 6, 3), "flame", object), "no numbers"),
        (CLASSES, [{"flame": 0.9}], "no numbers"),
        (V5, [np.zeros((1, 5, 7)), np.zeros((1, 5, 6))], "no numbers"),
        (V5, np.full((1, 5, 7), 3.0), "not from 0 to 1"),
    ],
)
def test_an_output_that_does_not_match_the_decoder_is_explained(decoder: int, output: object, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        decode(output, settings(decoder), WHERE)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "data",
    [b"", b"no model", np.random.default_rng(1).bytes(4096), constant([[0.5, 0.5]])[:-40]],
    ids=["empty", "text", "noise", "truncated"],
)
def test_an_invalid_model_file_is_refused_when_it_is_loaded(runtime: int, data: bytes) -> None:
    with pytest.raises(ModelError, match=r"cannot (read|run) it"):
        Network(data, settings(CLASSES, runtime))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_model_with_another_input_or_output_is_refused_when_it_is_loaded(runtime: int) -> None:
    assert Network(constant([[0.5, 0.5]]), settings(CLASSES, runtime))
    with pytest.raises(ModelError, match="as decoder yolov8"):
        Network(constant([[0.5, 0.5]]), settings(V8, runtime))
    with pytest.raises(ModelError, match="cannot run it on a picture of 96 x 96"):
        Network(convolution(), settings(V8, runtime, width=96, height=96))


def convolution() -> bytes:
    """Return a model that accepts only pictures of one size."""
    from onnx import helper

    from .models import graph

    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["out"]),
    ]
    return graph(nodes, (1, 2), {"weights": np.zeros((3 * SIDE * SIDE, 2))})


def test_a_runtime_that_is_not_installed_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"embereye\[onnx\], or runtime: opencv"):
        Network(constant([[0.5, 0.5]]), settings(CLASSES, Model.RUNTIME_ONNXRUNTIME))


numbers = st.floats(width=32) | st.floats(0, 1, width=32) | st.floats(-100, 900, width=32)


@checked(max_examples=200, deadline=None)
@given(
    st.sampled_from([V5, V8, CLASSES]),
    st.lists(st.integers(0, 8), max_size=4),
    st.data(),
)
def test_an_arbitrary_output_gives_detections_or_a_model_error(
    decoder: int, shape: list[int], data: st.DataObject
) -> None:
    size = int(np.prod(shape))
    values = data.draw(st.lists(numbers, min_size=size, max_size=size))
    try:
        detections = decode(np.array(values, np.float32).reshape(shape), settings(decoder), WHERE)
    except ModelError:
        return
    for detection in detections:
        assert -1e-3 <= detection.score <= 1.001
        assert all(0 <= value <= 1 for value in detection.box)
    assert {detection.kind for detection in detections} <= {entry.kind for entry in BOTH}
