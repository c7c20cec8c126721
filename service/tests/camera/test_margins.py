"""The margins of cameras: their strongest moment, and what suppressed it."""

import time
from dataclasses import replace

import pytest
from harness.settings import camera_settings

from embereye.camera.device.analyser import Analyser
from embereye.camera.device.peaks import Peaks
from embereye.camera.margins import margin_of, peak_of_finding
from embereye.camera.replay import START_NS, Replay
from embereye.detect.vision.observation import Finding
from embereye.levels import Kind, Level
from embereye.sim.scenes.scene import render
from embereye.units import SECOND
from embereye.v1.types_pb2 import Term

FAR = Finding(Kind.FLAME, Level.CLEAR, 0.2, needed_ns=3 * SECOND)
LONG = replace(FAR, lasted_ns=2 * SECOND, score=0.7)


def strongest(*findings: Finding) -> Finding:
    peaks = Peaks()
    for finding in findings:
        peaks.note([finding])
    (peak,) = peaks.take_all().values()
    assert not peaks.take_all()
    return peak


def test_the_strongest_finding_is_the_one_nearest_to_an_alarm() -> None:
    closer = replace(FAR, score=0.4)
    assert strongest(FAR, closer, FAR) == closer
    assert strongest(replace(LONG, lasted_ns=SECOND), LONG, closer) == LONG
    raised = replace(FAR, level=Level.PRE_ALARM)
    assert strongest(LONG, raised, LONG) == raised
    warm, hot = (Finding(Kind.HEAT, Level.CLEAR, decisive=("temperature.max", c, 60.0, "°C")) for c in (20.0, 25.0))
    assert strongest(warm, hot, warm) == hot


@pytest.fixture
def analyser() -> Analyser:
    return Replay(camera_settings()).camera.analyser


def test_a_sign_is_short_of_time_and_anything_else_of_its_score(analyser: Analyser) -> None:
    assert peak_of_finding(LONG, analyser)["nearest"] == ("flame.lasted", 2.0, 3.0, "s")
    least = analyser.setup.flame_threshold
    assert peak_of_finding(FAR, analyser)["nearest"] == ("flame.score", 0.2, pytest.approx(least, abs=1e-3), "1")
    model = replace(FAR, terms=(Term(name="model.fire", value=0.3, threshold=0.6, unit="1"),))
    assert peak_of_finding(model, analyser)["nearest"] == ("model.fire", 0.3, 0.6, "1")


def test_a_familiar_place_says_what_the_score_would_be_without_it(analyser: Analyser) -> None:
    known = replace(FAR, score=0.1, box=(0.1, 0.1, 0.05, 0.05), terms=(Term(name="flame.familiar.below", value=50),))
    (item,) = peak_of_finding(known, analyser)["suppressed"]
    assert item["by"] == "familiar"
    assert item["why"].startswith("this place is 50 % familiar: without that, its score would be 0.45 of ")
    analyser.usual_levels.set_marks([((0.1, 0.1, 0.05, 0.05), 0.01)])
    (item,) = peak_of_finding(known, analyser)["suppressed"]
    assert (item["by"], item["why"][:38]) == ("marked", "people marked this place as no fire: w")


def test_a_sign_that_cannot_raise_an_alarm_says_why(analyser: Analyser) -> None:
    (item,) = peak_of_finding(replace(LONG, needed_ns=None), analyser)["suppressed"]
    assert item["by"] == "colourless"
    (item,) = peak_of_finding(replace(LONG, kind=Kind.SMOKE, needed_ns=None), analyser)["suppressed"]
    assert item["by"] == "confirmation"


def test_a_drawn_fire_comes_nearer_until_it_is_an_alarm() -> None:
    replay, levels = Replay(camera_settings()), list[str]()
    loops = render(320, 240, 5, 10.0)
    for number, frame in enumerate([*loops.quiet[:30], *loops.growth[:90]]):
        replay.show(frame, number / 10.0)
        if number % 10 == 0 and (margin := margin_of(replay.camera, START_NS + number * SECOND // 10)):
            (flame,) = [peak for peak in margin["peaks"] if peak["kind"] == "flame"]
            levels.append(flame["level"])
    assert levels[0] == "clear"
    assert levels[-1] in {"alarm", "critical"}
    assert replay.alarms


def test_frames_that_were_shed_and_a_dark_camera_are_told() -> None:
    replay, now = Replay(camera_settings()), time.time_ns()
    assert margin_of(replay.camera, now) is None
    replay.camera.arrivals.mailbox.ledger.shed["replaced"] += 3
    margin = margin_of(replay.camera, now + 5 * SECOND)
    assert margin is not None
    assert (margin["shed"], margin["peaks"]) == ({"replaced": 3}, [])
    assert margin["blind"].startswith("never heard")
