"""A model's sign has to persist, and is merged with the built-in detectors' findings."""

from typing import Any

import pytest

from embereye.detect.vision.networks.model import Detection
from embereye.detect.vision.networks.persistence import ModelWatch, merged
from embereye.detect.vision.observation import Finding
from embereye.levels import Kind, Level
from embereye.units import SECOND, WHOLE
from embereye.v1.shard_pb2 import Model
from embereye.v1.types_pb2 import Mask, Term

from .models import FLAME, SMOKE, settings

CLEAR, PRE_ALARM, ALARM = Level.CLEAR, Level.PRE_ALARM, Level.ALARM
BOX = (0.4, 0.4, 0.2, 0.2)


class Watched:
    def __init__(self, *masks: Mask) -> None:
        self.watch = ModelWatch(settings(Model.DECODER_YOLOV8), masks)
        self.now = 1_700_000_000 * SECOND

    def see(self, score: float, seconds: float = 1.0, **more: Any) -> Finding:
        self.now += int(seconds * SECOND)
        self.watch.observe([Detection(FLAME, score, 0.5, more.pop("box", BOX))], self.now, **more)
        return next(finding for finding in self.watch.findings if finding.kind == FLAME)


def test_a_sign_becomes_pre_alarm_and_alarm_by_lasting() -> None:
    watched = Watched()
    levels = [watched.see(0.9).level for _ in range(6)]
    assert levels == [CLEAR, PRE_ALARM, PRE_ALARM, PRE_ALARM, ALARM, ALARM]
    finding = watched.see(0.9)
    assert finding.score == pytest.approx(0.9)
    assert [(term.name, term.threshold, term.unit) for term in finding.terms] == [
        ("model.flame", 0.5, "1"),
        ("model.lasted", 4.0, "s"),
    ]


def test_the_first_detection_is_suspected_so_that_the_next_run_is_sooner() -> None:
    assert Watched().see(0.9).lasted_ns > 0


def test_a_model_that_errs_now_and_then_never_alarms() -> None:
    watched = Watched()
    assert all(watched.see(0.9 if number % 3 == 0 else 0.1).level == CLEAR for number in range(100))


def test_a_sign_survives_one_missed_run_and_ends_after_seconds() -> None:
    watched = Watched()
    for _ in range(20):
        watched.see(0.9)
    assert watched.see(0.1).level == ALARM
    assert [watched.see(0.1).level for _ in range(3)][-1] == CLEAR


def test_two_lucky_runs_an_hour_apart_are_no_fire() -> None:
    watched = Watched()
    watched.see(0.9)
    assert watched.see(0.9, seconds=3600).level == PRE_ALARM


def test_setting_a_senders_clock_back_delays_no_alarm() -> None:
    watched = Watched()
    watched.see(0.1)
    watched.now -= 50 * SECOND
    assert [watched.see(0.9).level for _ in range(6)][-1] == ALARM


def test_detections_in_a_mask_or_a_lost_part_are_ignored() -> None:
    mask = Mask(x=[0.3, 0.7, 0.7, 0.3], y=[0.3, 0.3, 0.7, 0.7])
    masked, open_ = Watched(mask), Watched()
    for _ in range(10):
        assert masked.see(0.9).level == CLEAR
        assert open_.see(0.9, lost=((0.0, 0.4, 1.0, 0.2),)).level == CLEAR
    assert masked.see(0.9, box=(0.0, 0.0, 0.2, 0.2)).lasted_ns
    assert masked.see(0.9, box=WHOLE).lasted_ns


def test_kinds_persist_separately_and_a_failed_model_has_no_findings() -> None:
    watched = Watched()
    watched.see(0.9)
    assert {finding.kind: finding.level for finding in watched.watch.findings} == {FLAME: CLEAR, SMOKE: CLEAR}
    watched.watch.forget()
    assert watched.watch.findings == ()


def finding(kind: Kind, level: Level, name: str, lasted_ns: int = 0) -> Finding:
    return Finding(kind, level, 0.5, None, (Term(name=name),), lasted_ns)


def test_findings_of_one_kind_are_merged_the_stronger_first() -> None:
    ours = (finding(FLAME, PRE_ALARM, "ours", 5),)
    both = merged(ours, (finding(FLAME, ALARM, "model", 3), finding(SMOKE, CLEAR, "smoke")))
    assert [(finding.kind, finding.level, finding.lasted_ns) for finding in both] == [
        (FLAME, ALARM, 5),
        (SMOKE, CLEAR, 0),
    ]
    assert [term.name for term in both[0].terms] == ["model", "ours"]
    assert merged(ours, ()) == ours
