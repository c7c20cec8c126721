import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.model import host as model_module
from embereye.camera.model.camera_model import CameraModel
from embereye.camera.model.host import ModelHost, path_of
from embereye.camera.scheduling.mailbox import Tally
from embereye.detect.vision.networks.model import ModelError, Network
from embereye.detect.vision.observation import Observation
from embereye.levels import Kind, Level
from embereye.units import MILLISECOND, SECOND
from embereye.v1.shard_pb2 import Model, ModelClass

from ...detect.vision.networks.models import RUNTIMES, constant, redness, settings
from ..conftest import assignment, device, status_of

FLAME = [ModelClass(index=0, kind=Kind.FLAME.wire, threshold=0.5)]


def picture(red, seed=0):
    rng = np.random.default_rng(seed)
    frame = rng.normal(60, 3, (64, 64, 3))
    frame[..., 2] = red + rng.normal(0, 3, (64, 64))
    return cv2.imencode(".jpg", np.clip(frame, 0, 255).astype(np.uint8))[1].tobytes()


def with_model(epoch, path, *devices, **changes):
    made = assignment(epoch, *(devices or (device("c1"),)))
    given: dict[str, Any] = {
        "path": str(path),
        "classes": FLAME,
        "every_ns": 20 * MILLISECOND,
        "idle_ns": 40 * MILLISECOND,
        "alarm_ns": 300 * MILLISECOND,
        "budget_ns": 5 * SECOND,
    }
    made.camera.model.CopyFrom(settings(Model.DECODER_YOLOV8, **(given | changes)))
    return made


class Player:
    """Pushes one frame after the other to a camera."""

    def __init__(self, shard, camera="c1"):
        self.shard, self.camera, self.frames = shard, camera, 0

    async def show(self, red, until, seconds=20.0):
        """Show pictures with `red` until `until` is true of the camera's status."""

        def is_done():
            self.frames += 1
            self.shard.admit_pushed_frame(self.camera, picture(red, self.frames), 0, Tally())
            return until(status_of(self.shard, self.camera))

        async def paced():
            deadline = time.monotonic() + seconds
            while not is_done():
                assert time.monotonic() < deadline, status_of(self.shard, self.camera)
                await eventually(lambda: not self.shard._cameras[self.camera].arrivals.mailbox.ledger.waiting)
                await asyncio.sleep(0.01)

        await paced()
        return status_of(self.shard, self.camera)


def term(status, name):
    return next((term.value for term in status.latest if term.name == name), None)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(model_module, "CHECK_SECONDS", 0.02)


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_a_lasting_detection_of_a_model_becomes_evidence(running, tmp_path, runtime):
    (tmp_path / "m.onnx").write_bytes(redness())
    running.shard.apply(with_model(1, tmp_path / "m.onnx", runtime=runtime))
    player = Player(running.shard)
    quiet = await player.show(60, lambda status: (term(status, "model.run") or 0) > 0)
    assert (quiet.covered, quiet.degraded) == (True, "")
    assert not running.reports
    await player.show(240, lambda _: any(report.level == Level.ALARM for report in running.reports))
    alarm = next(report for report in running.reports if report.level == Level.ALARM)
    assert (alarm.kind, alarm.device) == (Kind.FLAME, "c1")
    names = {term.name: term.value for term in alarm.why}
    assert names["model.flame"] == pytest.approx(240 / 255, abs=0.03)
    assert names["model.lasted"] >= 0.3


async def test_a_model_is_not_run_on_every_frame(running, tmp_path):
    (tmp_path / "m.onnx").write_bytes(redness())
    running.shard.apply(with_model(1, tmp_path / "m.onnx", every_ns=SECOND, idle_ns=3600 * SECOND))
    player = Player(running.shard)
    camera = running.shard._cameras["c1"]
    await player.show(60, lambda _: camera.analyser.model.runs)
    await player.show(60, lambda status: status.ledger.analysed > player.frames * 0.8 and player.frames > 30)
    assert camera.analyser.model.runs == 1


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "m.onnx: cannot be read: No such file or directory. Set detection.model.path to a file"),
        (b"no model", "m.onnx: opencv cannot read it"),
        (constant([[0.5]]), "its output has the shape (1, 1), not (1, 5 or more, boxes) as decoder yolov8"),
        (constant(np.full((1, 5, 1), np.nan)), "its output contains values that are not numbers"),
    ],
)
async def test_an_unusable_model_degrades_its_cameras_but_they_keep_watching(running, tmp_path, data, sentence):
    if data is not None:
        (tmp_path / "m.onnx").write_bytes(data)
    running.shard.apply(with_model(1, tmp_path / "m.onnx"))
    status = await Player(running.shard).show(60, lambda status: status.degraded and status.covered)
    assert status.degraded.startswith("detection.model: ")
    assert sentence in status.degraded
    assert status.reason == ""
    assert [term.name for term in status.latest if term.name == "flame.score"]  # from the built-in detector


async def test_a_camera_with_only_a_failing_model_is_dark(running, tmp_path):
    running.shard.apply(with_model(1, tmp_path / "m.onnx", device("c1", detectors=["model"])))
    status = await Player(running.shard).show(60, lambda status: status.degraded)
    assert not status.covered
    assert status.reason == status.degraded


async def test_a_camera_with_only_an_undeclared_model_is_dark(running):
    running.shard.apply(assignment(1, device("c1", detectors=["model"])))
    status = await Player(running.shard).show(60, lambda status: status.ledger.analysed)
    assert status.reason == "model is its only detector, but its fleet declares no detection.model"


async def test_a_camera_with_its_own_detectors_uses_the_model_only_if_declared(running, tmp_path):
    (tmp_path / "m.onnx").write_bytes(redness())
    devices = device("c1", detectors=["flame"]), device("c2", detectors=["flame", "model"]), device("c3")
    running.shard.apply(with_model(1, tmp_path / "m.onnx", *devices))
    assert [bool(running.shard._cameras[name].analyser.model) for name in ("c1", "c2", "c3")] == [False, True, True]


async def test_a_model_file_that_appears_later_or_is_replaced_is_loaded(running, tmp_path):
    path = tmp_path / "m.onnx"
    running.shard.apply(with_model(1, path))
    player = Player(running.shard)
    await player.show(60, lambda status: "No such file" in status.degraded)
    path.write_bytes(redness())
    await player.show(60, lambda status: not status.degraded and term(status, "model.run"))
    partial = tmp_path / "partial"
    partial.write_bytes(b"broken")
    partial.replace(path)
    assert "cannot read it" in (await player.show(60, lambda status: status.degraded)).degraded
    path.unlink()
    path.write_bytes(constant([[[32], [32], [64], [64], [0.9]]]))
    await player.show(60, lambda _: running.reports)
    assert not status_of(running.shard, "c1").degraded


async def test_a_model_that_fails_on_a_picture_has_no_finding_not_a_clear_one(running, tmp_path, monkeypatch):
    (tmp_path / "m.onnx").write_bytes(redness())
    running.shard.apply(with_model(1, tmp_path / "m.onnx"))
    player = Player(running.shard)
    await player.show(60, lambda status: term(status, "model.run"))

    def fail(self, shown):
        raise ModelError("it ran out of memory")

    monkeypatch.setattr(Network, "detect_objects", fail)
    status = await player.show(60, lambda status: status.degraded)
    assert status.degraded == "detection.model: it ran out of memory"
    assert running.shard._cameras["c1"].analyser.model.watch.findings == ()
    assert status.covered
    monkeypatch.undo()
    monkeypatch.setattr(model_module, "CHECK_SECONDS", 0.02)
    await player.show(60, lambda status: not status.degraded)


async def test_a_slow_model_is_reported_with_its_time_and_delays_no_frame(running, tmp_path, monkeypatch):
    (tmp_path / "m.onnx").write_bytes(redness())
    detect = Network.detect_objects
    monkeypatch.setattr(Network, "detect_objects", lambda self, shown: time.sleep(0.05) or detect(self, shown))
    running.shard.apply(with_model(1, tmp_path / "m.onnx", budget_ns=10 * MILLISECOND))
    player = Player(running.shard)
    status = await player.show(60, lambda status: status.degraded)
    assert "ms, its budget is 10 ms" in status.degraded
    assert status.covered
    assert status.ledger.analysed > 2 * running.shard._cameras["c1"].analyser.model.runs


async def test_a_hanging_model_is_reported_and_the_cameras_stay_covered(running, tmp_path, monkeypatch):
    import threading

    (tmp_path / "m.onnx").write_bytes(redness())
    running.shard.apply(with_model(1, tmp_path / "m.onnx"))
    player = Player(running.shard)
    await player.show(60, lambda status: term(status, "model.run"))
    release = threading.Event()
    monkeypatch.setattr("embereye.camera.model.threads.HANG_SECONDS", 0.1)
    monkeypatch.setattr(Network, "detect_objects", lambda self, shown: release.wait(20) and [])
    status = await player.show(60, lambda status: "has not ended for" in status.degraded)
    assert status.covered
    release.set()
    await player.show(60, lambda status: not status.degraded)


def test_a_model_that_does_not_keep_up_is_reported():
    now, host = [100 * SECOND], SimpleNamespace(field="detection.model", reason=lambda _: "", threads=SimpleNamespace())
    host.threads.submit = lambda camera: None  # runs never happen
    model = CameraModel("c1", cast("Any", host), Model(idle_ns=10 * SECOND), clock=lambda: now[0])
    frame, seen = cast("Any", SimpleNamespace(lost=())), Observation(0)
    for second in range(131):
        now[0] = (100 + second) * SECOND
        host.is_ready = second >= 100  # while it is not loaded it is not late
        model.offer_frame(frame, seen)
        assert second == 130 or not model.degraded(now[0])
    now[0] += SECOND
    model.offer_frame(frame, seen)
    assert "its last run was 32 s ago, it should run every 10 s" in model.degraded(now[0])


async def test_other_model_settings_preserve_the_built_in_detectors_state(running, tmp_path):
    running.shard.apply(with_model(1, tmp_path / "m.onnx"))
    camera = running.shard._cameras["c1"]
    analyst, before = camera.analyser.pictures, camera.analyser.model
    running.shard.apply(with_model(2, tmp_path / "other.onnx"))
    assert camera.analyser.pictures is analyst
    assert camera.analyser.model is not before
    running.shard.apply(assignment(3, device("c1")))
    assert camera.analyser.model is None
    assert status_of(running.shard, "c1").degraded == ""


async def test_without_a_model_there_is_no_model_thread(running):
    import threading

    def workers():
        return sum(thread.name == "camera-worker" for thread in threading.enumerate())

    before = workers()
    running.shard.apply(assignment(1, device("c1")))
    await Player(running.shard).show(60, lambda status: status.covered)
    assert workers() == before


def test_a_mounted_model_is_in_the_model_folder(monkeypatch):
    monkeypatch.setenv("EMBEREYE_MODEL", "/models")
    assert str(path_of(Model(mounted="v1/fire.onnx"))) == "/models/v1/fire.onnx"
    assert str(path_of(Model(path="fire.onnx"))) == "fire.onnx"
    monkeypatch.setenv("EMBEREYE_CANDIDATE_MODEL", "/others")
    assert str(path_of(Model(mounted="v2/fire.onnx", of_candidate=True))) == "/others/v2/fire.onnx"


def test_a_model_has_time_to_load_before_it_is_reported():
    now = [0]
    host = ModelHost(clock=lambda: now[0])
    host.configure(Model(path="x"))
    assert host.reason(5 * SECOND) == ""
    assert host.reason(11 * SECOND) == "it is still loading"
