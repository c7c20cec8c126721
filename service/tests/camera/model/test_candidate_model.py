"""A candidate's model judges the same pictures as the settings in force, and disturbs nothing."""

import asyncio
import os
import threading
from fractions import Fraction

import numpy as np
import pytest
from av.codec.context import CodecContext
from av.video.frame import VideoFrame
from harness.eventually import eventually
from harness.settings import camera_settings

from embereye.camera.candidate import CameraCandidate
from embereye.camera.model import host as model_module
from embereye.camera.model.host import ModelHost
from embereye.camera.model.threads import LOWEST
from embereye.levels import Level
from embereye.process.tasks import beside
from embereye.units import MILLISECOND, SECOND
from embereye.v1.shard_pb2 import Assignment, Candidate
from embereye.wire.video.access_unit import AccessUnit

from ...detect.vision.networks.models import constant, redness
from ..conftest import assignment, device, status_of
from ..device.test_joined_frames import Hall
from .test_model import Player, with_model

NOTHING = constant(np.zeros((1, 5, 1)))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(model_module, "CHECK_SECONDS", 0.02)


def compared(folder, in_force, candidate):
    """Return an assignment with the models `in_force` and `candidate`; None: no such model, or no such file."""
    made = assignment(1, device("c1"))
    if in_force:
        (folder / "in-force.onnx").write_bytes(in_force)
        made = with_model(1, folder / "in-force.onnx")
    if candidate:
        (folder / "candidate.onnx").write_bytes(candidate)
    other = with_model(1, folder / "candidate.onnx", of_candidate=True)
    made.candidate.CopyFrom(Candidate(name="v2", id="1", camera=other.camera))
    return made


@pytest.mark.parametrize(
    ("in_force", "candidate", "side"),
    [(None, redness(), "candidate"), (redness(), NOTHING, "inForce"), (redness(), redness(), "")],
    ids=["only the candidate", "only in force", "both"],
)
async def test_an_alarm_of_only_one_model_is_a_difference(running, tmp_path, in_force, candidate, side):
    running.shard._is_busy = lambda: False  # other tests may keep the machine busy
    running.shard.apply(compared(tmp_path, in_force, candidate))
    player, judging = Player(running.shard), running.shard._candidate
    camera = running.shard._cameras["c1"]
    await player.show(60, lambda _: judging._shadows["c1"].model.runs and (not in_force or camera.analyser.model.runs))
    judging._comparison._unseen.clear()  # as if it had judged for a while
    if side:
        await player.show(240, lambda _: judging.counts.differences, 60)
    else:
        await player.show(240, lambda _: any(report.level == Level.ALARM for report in running.reports))
        since = asyncio.get_running_loop().time()
        await player.show(240, lambda _: asyncio.get_running_loop().time() - since > 5.5)
    assert dict(judging.counts.differences) == ({("flame", "alarm", side): 1} if side else {})
    assert any(report.level == Level.ALARM for report in running.reports) == bool(in_force)
    assert judging.counts.cpu_seconds > judging._shadows["c1"].model.cpu_seconds > 0
    assert status_of(running.shard, "c1").degraded == ""


async def test_a_candidates_model_that_cannot_be_loaded_is_reported_and_not_compared(running, tmp_path):
    running.shard.apply(compared(tmp_path, redness(), None))
    player, judging = Player(running.shard), running.shard._candidate
    await player.show(240, lambda _: any(report.level == Level.ALARM for report in running.reports))
    await player.show(240, lambda _: judging.counts.problem)
    assert judging.counts.problem == (
        f"c1: detection.candidate.model: {tmp_path}/candidate.onnx: cannot be read: No such file or directory. "
        "Set detection.candidate.model.path to a file that the shard can read"
    )
    assert judging._comparison.due(2**62) == []
    assert status_of(running.shard, "c1").degraded == ""


async def test_a_candidates_model_gives_way_to_all_other_threads(running, tmp_path):
    def priorities():
        threads = [thread.native_id for thread in threading.enumerate() if thread.name == "camera-model"]
        return sorted(os.getpriority(os.PRIO_PROCESS, thread or 0) - usual for thread in threads)

    usual = os.getpriority(os.PRIO_PROCESS, 0)
    running.shard.apply(compared(tmp_path, redness(), redness()))
    await eventually(lambda: priorities() == [0, LOWEST - usual])
    running.shard.apply(with_model(2, tmp_path / "in-force.onnx"))
    assert running.shard._candidate is None
    assert not running.shard._model_hosts[1].is_ready


def film(seconds=3, rate=15):
    """Yield the access units of a red picture."""
    context = CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 320, 240, "yuv420p"
    context.framerate, context.time_base, context.gop_size = Fraction(rate), Fraction(1, rate), rate
    context.options = {"preset": "ultrafast", "tune": "zerolatency", "threads": "1"}
    picture = np.full((240, 320, 3), (40, 40, 240), np.uint8)
    for number in range(seconds * rate):
        frame = VideoFrame.from_ndarray(picture, "bgr24")
        frame.pts = number
        for packet in context.encode(frame):
            yield AccessUnit(bytes(packet), number * 90_000 // rate, (320, 240), key=packet.is_keyframe)


async def test_of_a_video_the_model_gets_pictures_only_while_the_shard_is_idle(tmp_path):
    made = compared(tmp_path, None, redness()).candidate
    made.camera.model.every_ns = made.camera.model.idle_ns = MILLISECOND
    host, busy = ModelHost(field="detection.candidate.model", idle=True), [True]
    shadow = CameraCandidate(made, "default/cameras/yard", lambda: busy[0], host)
    hall = Hall(
        analysed=lambda camera, frame, decoded: shadow.judge(camera, frame, decoded, hall.now, None, Assignment()),
        settings=camera_settings(detection={"detectors": ["flame"]}), candidate_side=shadow.picture_side,
    )  # fmt: skip
    shadow.watch({"hall": hall.camera}, hall.now)
    async with beside(host.run(), name="model"):
        await eventually(lambda: host.is_ready)
        units = film()
        for unit in [next(units) for _ in range(15)]:
            hall.show(unit, SECOND // 15)
        assert not any(turn.picture_side for turn in hall.turns)
        busy[0] = False
        for unit in units:
            hall.show(unit, SECOND // 15)
        await eventually(lambda: shadow._shadows["hall"].model.runs)
        assert {turn.picture_side for turn in hall.turns} == {0, 64}
    shadow.close()
    host.threads.stop()
