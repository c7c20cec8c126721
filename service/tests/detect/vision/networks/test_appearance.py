import hashlib
import re
from importlib import resources
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from embereye.camera.decode.shipped import FILE, load_network
from embereye.detect.vision.networks.appearance import (
    EVERY_NS,
    FOR_SMOKE,
    HURRIED,
    ONLY_SMOKE,
    PLACES,
    SIDE,
    SMOKE_SIDE,
    UNHURRIED_NS,
    VALID_NS,
    AppearanceNetwork,
    Inspection,
    Inspections,
    Interest,
    close_up_of,
)
from embereye.units import SECOND

SHIPPED = resources.files("embereye.detect.vision.networks").joinpath(FILE)
CARD = Path(__file__).parents[5] / "docs/evidence/appearance.md"
MOST_BYTES = 6_000_000
START = 1_700_000_000 * SECOND
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def network():
    return load_network()


def test_the_shipped_file_matches_its_model_card():
    data = SHIPPED.read_bytes()
    assert len(data) <= MOST_BYTES
    assert re.findall(r"`([0-9a-f]{64})`", CARD.read_text()) == [hashlib.sha256(data).hexdigest()]


def test_the_shipped_network_has_one_input_and_outputs_for_flame_smoke_and_places():
    onnx = pytest.importorskip("onnx")
    graph = onnx.load_from_string(SHIPPED.read_bytes()).graph
    assert [entry.name for entry in graph.input] == ["pixels"]
    assert [entry.name for entry in graph.output] == ["odds", "smoke", "places"]


def test_smoke_is_judged_only_on_request_in_the_whole_picture_and_each_place(network):
    picture = RNG.integers(0, 256, (90, 160, 3), np.uint8)
    boxes = [(0.1, 0.1, 0.5, 0.5)]
    flames = network.logits(picture, boxes)
    logits = network.logits(picture, [*boxes, FOR_SMOKE])
    assert logits[:2] == pytest.approx(flames, abs=1e-4)
    assert len(logits) == 2 + 1 + PLACES**2
    inspection = Inspection.of(START, [*boxes, FOR_SMOKE], logits)
    assert inspection.close_ups == ((boxes[0], logits[1]),)
    assert inspection.smoke.whole == pytest.approx(logits[2])
    assert inspection.smoke.places.shape == (PLACES, PLACES)
    assert inspection.smoke.places[1, 0] == pytest.approx(logits[3 + PLACES])
    assert Inspection.of(START, boxes, flames).smoke is None
    only = network.logits(picture, [ONLY_SMOKE])
    assert only == pytest.approx((0.0, *logits[2:]), abs=1e-4)
    assert Inspection.of(START, [ONLY_SMOKE], only).close_ups == ()


def test_a_flame_in_a_mask_is_not_judged(network):
    room = RNG.integers(60, 120, (120, 160, 3)).astype(np.uint8)
    mask = [(0.5, 0.25), (1.0, 0.25), (1.0, 1.0), (0.5, 1.0)]
    fire = room.copy()
    fire[40:110, 90:150] = 30, 150, 255
    [of_room], [of_fire] = network.logits(room, ()), network.logits(fire, ())
    assert abs(of_fire - of_room) > 0.05
    assert network.logits(fire, (), masked=[mask]) == network.logits(room, (), masked=[mask])
    flame, smoke = network.logits(fire, (FOR_SMOKE,)), network.logits(fire, (FOR_SMOKE,), masked=[mask])
    assert smoke[1:] == flame[1:], "smoke has places, which are ignored later"


@pytest.mark.parametrize("corners", [[(0, 0), (1, 0), (1, 1), (0, 1)], [(0.2, 0.2), (0.2, 0.2), (0.2, 0.2)]])
def test_a_mask_may_cover_everything_or_nothing(network, corners):
    picture = RNG.integers(0, 256, (90, 160, 3), np.uint8)
    assert np.isfinite(network.logits(picture, (), masked=[corners])).all()


def test_the_odds_of_smoke_agree_with_the_reference_runtime(network):
    onnxruntime = pytest.importorskip("onnxruntime")
    reference = onnxruntime.InferenceSession(SHIPPED.read_bytes(), providers=["CPUExecutionProvider"])
    picture = RNG.integers(0, 256, (SMOKE_SIDE, SMOKE_SIDE, 3), np.uint8)
    blob = picture.astype(np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
    whole, places = reference.run(["smoke", "places"], {"pixels": blob})
    assert network.logits(picture, (FOR_SMOKE,))[1:] == pytest.approx([*whole.ravel(), *places.ravel()], abs=5e-3)


def test_the_output_agrees_with_the_reference_runtime(network):
    onnxruntime = pytest.importorskip("onnxruntime")
    reference = onnxruntime.InferenceSession(SHIPPED.read_bytes(), providers=["CPUExecutionProvider"])
    for _ in range(3):
        picture = RNG.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        blob = picture.astype(np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
        (expected,) = reference.run(["odds"], {"pixels": blob})
        assert network.logits(picture, ())[0] == pytest.approx(float(expected.ravel()[0]), abs=2e-3)


@pytest.mark.parametrize("shape", [(90, 160), (160, 90), (120, 160), (3, 5), (1, 1)])
def test_pictures_and_close_ups_of_any_shape_get_odds(network, shape):
    picture = RNG.integers(0, 256, (*shape, 3), np.uint8)
    logits = network.logits(picture, [(0.0, 0.0, 1.0, 1.0), (0.9, 0.9, 0.1, 0.1), (1.0, 1.0, 0.0, 0.0)])
    assert len(logits) == 4
    assert np.isfinite(logits).all()
    assert logits[1] == pytest.approx(logits[0], abs=1e-5), "a close-up of everything is the whole picture"


def test_a_file_that_is_no_network_is_refused():
    with pytest.raises(cv2.error):
        AppearanceNetwork(b"not a network")


def test_inspections_become_more_frequent_with_interest():
    for interest in Interest:
        assert len(asked(Inspections(), interest, 3.5)) == 1 + int(3.5 * SECOND / EVERY_NS[interest])


def test_a_lasting_suspicion_is_inspected_less_often():
    inspections = Inspections()
    first = asked(inspections, Interest.SUSPECTED, 60.0)
    assert first[HURRIED - 1] == START + (HURRIED - 1) * SECOND
    assert {after - before for before, after in pairwise(first[HURRIED - 1 :])} == {UNHURRIED_NS}
    assert UNHURRIED_NS < VALID_NS, "or it would expire between two inspections"
    for second in range(60, 120):
        inspections.start_if_due(START + second * SECOND, Interest.MOVES)
    again = asked(inspections, Interest.SUSPECTED, 3.5, START + 120 * SECOND)
    assert len(again) >= 3, "a later suspicion is new"


def test_cameras_that_start_together_are_not_inspected_together():
    cameras, every_ns = [Inspections((number + 0.5) / 100) for number in range(100)], EVERY_NS[Interest.STILL]
    times = range(START, START + 2 * every_ns, SECOND // 15)
    due = [[inspections.start_if_due(time, Interest.STILL) for inspections in cameras] for time in times]
    assert max(map(sum, due)) <= 2
    assert all(any(of) for of in zip(*due[: 15 * every_ns // SECOND + 1], strict=True)), (
        "each of them within the first period"
    )


def asked(inspections, interest, seconds, start=START):
    times = range(start, start + int(seconds * SECOND), SECOND // 10)
    return [time_ns for time_ns in times if inspections.start_if_due(time_ns, interest)]


def test_the_mean_of_the_latest_valid_inspections_counts():
    inspections, box, elsewhere = Inspections(), (0.1, 0.1, 0.3, 0.3), (0.6, 0.6, 0.3, 0.3)
    assert inspections.whole(START) is None
    for number, value in enumerate((9.0, 1.0, 2.0, 3.0)):
        inspections.note(Inspection(START + number * SECOND // 2, value, ((box, -value),)))
    now = START + 2 * SECOND
    assert inspections.whole(now) == pytest.approx(2.5)
    assert inspections.close_up((0.12, 0.1, 0.3, 0.3), now) == pytest.approx(-2.5)
    assert inspections.close_up(elsewhere, now) is None
    assert inspections.whole(now + VALID_NS) is None


def test_a_step_back_in_time_clears_the_inspections():
    inspections = Inspections()
    inspections.note(Inspection(START, 9.0))
    inspections.note(Inspection(START - SECOND, -1.0))
    assert inspections.whole(START - SECOND) == -1.0


@pytest.mark.parametrize("box", [(0.0, 0.0, 0.02, 0.02), (0.5, 0.5, 0.1, 0.3), (0.95, 0.9, 0.05, 0.1), (0, 0, 1, 1)])
@pytest.mark.parametrize("size", [(160, 90), (90, 160)])
def test_a_close_up_is_inside_the_picture_and_contains_its_site(box, size):
    x, y, w, h = close_up_of(box, *size)
    assert 0 <= x <= box[0] + 1e-9
    assert 0 <= y <= box[1] + 1e-9
    assert x + w >= box[0] + box[2] - 1e-9
    assert y + h >= box[1] + box[3] - 1e-9
    assert max(x + w, y + h) <= 1 + 1e-9
    if w < 1 and h < 1:
        assert w * size[0] == pytest.approx(h * size[1]), "a square, as in the training pictures"
