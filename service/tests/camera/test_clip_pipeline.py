from types import SimpleNamespace
from typing import Any, cast

from embereye.camera.clip_pipeline import ClipPipeline
from embereye.camera.clips.spool import ClipSpool
from embereye.process.timing.running import Running
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip
from embereye.v1.shard_pb2 import Assignment

from .clips.pictures import START, frame, report

STOOD = 30 * SECOND


async def test_a_clip_gets_its_full_length_although_the_machine_was_suspended(tmp_path):
    options = SimpleNamespace(data=tmp_path, shard="yard-0")
    pipeline = ClipPipeline(cast("Any", SimpleNamespace(options=options, links=None)), Running())
    recorder = pipeline._recorder
    await recorder.start()
    camera: Any = SimpleNamespace(
        device=SimpleNamespace(id="gate"), clip_ns=(SECOND, SECOND), encoding="", video=None, picture=None,
        ring=SimpleNamespace(frames=list), latest=frame(0),
    )  # fmt: skip
    pipeline.record_report(camera, report(), None, Assignment(fleet="default/cameras/yard"), START)
    for number in range(1, 40):
        now = frame(number).time_ns + (STOOD if number > 3 else 0)
        pipeline.end_overdue(now)
        camera.latest = frame(number)
        pipeline.record_frame(camera, now)
    await recorder.flush()
    stored = await recorder.run(ClipSpool.waiting)
    (clip,) = [clip for clip in stored if clip.media == Clip.MEDIA_CLIP]
    assert clip.until_ns - START >= SECOND
    assert clip.frames < 15
    recorder.close()
