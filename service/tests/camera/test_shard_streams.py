"""A shard that analyses one stream of a camera and records another, both served by our RTSP simulator."""

import asyncio
import contextlib
import io
from types import SimpleNamespace
from typing import Any

import av
import pytest
from harness.eventually import eventually

from embereye.camera.clips.spool import ClipSpool
from embereye.camera.shard import CameraShard
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.shard.links import Links
from embereye.shard.service import ShardContext
from embereye.sim.cameras.onvif import OnvifCameras
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.v1.clips_pb2 import Clip
from embereye.wire.onvif.media import Profile

from .clips.pictures import report
from .conftest import assignment, device, status_of


@contextlib.asynccontextmanager
async def serving(name, size, port=0):
    cameras = await prepare([CameraSpec(name)], fps=15, size=size)
    stop, bound = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(cameras, "127.0.0.1", port, stop, bound.set_result, "H264"))
    try:
        yield await bound
    finally:
        stop.set()
        await server


async def started(shard, tasks, folder):
    options: Any = SimpleNamespace(data=folder, shard="yard-0")
    context = ShardContext(
        options=options,
        tasks=tasks,
        report=lambda _: None,
        coverage_changed=lambda: None,
        links=Links("127.0.0.1:9"),
    )
    await shard.start(context)


@pytest.fixture
async def shard(tmp_path):
    made = CameraShard(decoders=1)
    async with Tasks() as tasks:
        await started(made, tasks, tmp_path)
        yield made
        await made.stop()


async def clip_of(shard, camera, episode):
    """Raise an alarm of `camera` and return its clip."""
    recorder = shard._clips._recorder
    now = now_ns()
    shard._clips.record_report(camera, report(device="gate", episode=episode), None, shard._assignment, now)
    await asyncio.sleep(0.5)
    await recorder.flush()
    clips = await recorder.run(ClipSpool.waiting)
    clip = next(clip for clip in clips if clip.episode == episode and clip.frames > 1)
    return clip, recorder.spool.path(clip).read_bytes()


def sizes(data):
    with av.open(io.BytesIO(data)) as container:
        return {(frame.width, frame.height) for frame in container.decode(video=0)}


async def test_clips_use_the_record_stream_or_else_the_detect_stream(shard):
    async with serving("small", (160, 120)) as port:
        async with serving("large", (320, 240)) as other:
            watched, recorded = f"rtsp://127.0.0.1:{port}/small", f"rtsp://127.0.0.1:{other}/large"
            shard.apply(assignment(1, device("gate", watched, record_stream=recorded)))
            camera = shard._cameras["gate"]
            await eventually(lambda: status_of(shard, "gate").covered)
            await eventually(
                lambda: camera.video and camera.video.frames()[:1] and camera.video.frames()[0].width == 320
            )
            assert camera.analyser.observation
            assert camera.arrivals.mailbox.encoding == "H264"
            clip, data = await clip_of(shard, camera, "e1")
            assert (clip.width, clip.height) == (320, 240)
            assert sizes(data) == {(320, 240)}
            assert status_of(shard, "gate").state == "streaming"
        await eventually(lambda: camera.video and camera.video.frames() and camera.video.frames()[0].width == 160)
        assert camera.status.is_record_failing
        assert "; record stream: " in status_of(shard, "gate").state
        assert status_of(shard, "gate").covered  # it is still analysed
        clip, data = await clip_of(shard, camera, "e2")
        assert sizes(data) == {(160, 120)}
        async with serving("large", (320, 240), other):
            await eventually(
                lambda: camera.video and camera.video.frames()[:1] and camera.video.frames()[0].width == 320
            )
            assert not camera.status.is_record_failing
            shard.apply(assignment(2, device("gate", watched)))
            await eventually(
                lambda: camera.video and camera.video.frames()[:1] and camera.video.frames()[0].width == 160
            )
            assert status_of(shard, "gate").state.startswith(("streaming", "connect"))
        shard.apply(assignment(3))


async def test_an_onvif_camera_is_analysed_by_its_small_and_recorded_by_its_large_profile(shard):
    async with serving("small", (160, 120)) as port, serving("large", (640, 480)) as other:
        profiles = [
            (Profile("m", "main", "H264", 640, 480, 15, 0, "v"), f"rtsp://127.0.0.1:{other}/large"),
            (Profile("s", "sub", "H264", 160, 120, 15, 0, "v"), f"rtsp://127.0.0.1:{port}/small"),
        ]
        runner = await serve_http(OnvifCameras({"cam": profiles}).application(), "127.0.0.1", 0)
        source = f"onvif://127.0.0.1:{bound_port(runner)}/cam"
        shard.apply(assignment(1, device("gate", source, detect_stream="sub", record_stream="main")))
        camera = shard._cameras["gate"]
        await eventually(lambda: camera.video and camera.video.frames()[:1] and camera.video.frames()[0].width == 640)
        await eventually(lambda: status_of(shard, "gate").covered)
        assert 'ONVIF profile "sub" (H264 160x120' in status_of(shard, "gate").state
        shard.apply(assignment(2))
        await runner.cleanup()


async def test_an_unusable_record_stream_is_reported_and_the_camera_is_watched(shard):
    async with serving("small", (160, 120)) as port:
        watched = f"rtsp://127.0.0.1:{port}/small"
        for epoch, (named, reason) in enumerate(
            [
                ("main", '"main": only a source onvif://HOST has profiles. Write a URL'),
                ("http://127.0.0.1/hush", "only RTSP and ONVIF streams can be recorded"),
                (
                    f"rtsp://127.0.0.1:{port}/small?codec=jpeg",
                    "the camera has no H.264 or H.265 track, only: video JPEG",
                ),
            ],
            start=1,
        ):
            shard.apply(assignment(epoch, device("gate", watched, record_stream=named)))
            await eventually(lambda reason=reason: reason in status_of(shard, "gate").state)
            await eventually(lambda: status_of(shard, "gate").covered)
            assert "hush" not in status_of(shard, "gate").state
        shard.apply(assignment(9))


async def test_a_jpeg_camera_has_its_stills_and_clips_of_the_record_stream(shard):
    async with serving("small", (160, 120)) as port, serving("large", (320, 240)) as other:
        watched = f"rtsp://127.0.0.1:{port}/small?codec=jpeg"
        shard.apply(assignment(1, device("gate", watched, record_stream=f"rtsp://127.0.0.1:{other}/large")))
        camera = shard._cameras["gate"]
        await eventually(lambda: camera.latest and camera.video and camera.video.frames())
        _, data = await clip_of(shard, camera, "e1")
        assert sizes(data) == {(320, 240)}
        recorder = shard._clips._recorder
        stills = [still for still in await recorder.run(ClipSpool.waiting) if still.frames == 1]
        assert [still.width for still in stills] == [160]
        assert not shard._clips._stills
        shard.apply(assignment(2))


async def test_clips_use_a_cameras_current_format_after_a_switch_from_video(shard):
    async with serving("small", (160, 120)) as port:
        source = f"rtsp://127.0.0.1:{port}/small"
        shard.apply(assignment(1, device("gate", source)))
        camera = shard._cameras["gate"]
        await eventually(lambda: camera.video and camera.video.frames())
        shard.apply(assignment(2, device("gate", f"{source}?codec=jpeg")))
        await eventually(lambda: camera.latest and len(camera.ring.frames()) > 1)
        clip, data = await clip_of(shard, camera, "e1")
        assert clip.media == Clip.MEDIA_CLIP
        assert sizes(data) == {(160, 120)}
        shard.apply(assignment(3))
