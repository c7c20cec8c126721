"""A shard that decodes only key frames while a room is quiet, and finds the fire that breaks out in it."""

import asyncio
import contextlib

import pytest
from harness.eventually import eventually

from embereye.levels import Kind, Level
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.sim.scenes.fire import Fire

from .conftest import assignment, device, status_of


@contextlib.asynccontextmanager
async def burning_at(seconds, encoding):
    fires = [Fire(at=seconds, duration=60.0)]
    cameras = await prepare([CameraSpec("hall")], fps=10, size=(320, 240), fires=fires)
    stop, bound = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(cameras, "127.0.0.1", 0, stop, bound.set_result, encoding))
    try:
        yield f"rtsp://127.0.0.1:{await bound}/hall"
    finally:
        stop.set()
        await server


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_a_fire_in_a_quiet_room_is_found_from_key_frames(running, encoding):
    shard, reports = running.shard, running.reports
    async with burning_at(16.0, encoding) as url:
        wanted = assignment(1, device("hall", url, fps_target=15, fps_min=1))
        wanted.camera.key_frames_while_calm = True
        shard.apply(wanted)
        await eventually(lambda: "calm: key frames" in status_of(shard, "hall").state, 30)
        calm = status_of(shard, "hall")
        assert calm.covered
        assert {term.name: term.value for term in calm.latest}["fps.target"] == pytest.approx(1.0, abs=0.2)
        await eventually(lambda: any(item.kind == Kind.FLAME and item.level >= Level.ALARM for item in reports), 60)
        after = status_of(shard, "hall")
        assert "calm: key frames" not in after.state
        assert after.ledger.shed["calm"] > 10
        assert not set(after.ledger.rejected)
