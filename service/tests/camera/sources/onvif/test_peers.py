"""go2rtc as an ONVIF camera: another maker's server, with streams drawn by FFmpeg."""

import asyncio
import contextlib
import shutil
import socket

import pytest
from harness.eventually import eventually
from harness.need import FFMPEG, GO2RTC, program

from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.onvif.source import OnvifSource
from embereye.camera.sources.onvif.wanted import Wanted
from embereye.camera.sources.poller import SocketPoller
from embereye.process.addresses import free_port

from ...conftest import play

pytestmark = pytest.mark.needs(GO2RTC, FFMPEG)

DRAWN = (
    "exec:{ffmpeg} -v quiet -re -f lavfi -i testsrc=size={size}:rate=15 -c:v {codec} -g 15 {more} -f rtsp {{output}}"
)


@contextlib.asynccontextmanager
async def camera(folder):
    """Run go2rtc and yield its port; its profiles are "large" and "small"."""
    api, rtsp = free_port(), free_port()
    more = {"libx264": "-preset ultrafast -tune zerolatency -bf 0"}
    lines = [f'api: {{listen: "127.0.0.1:{api}"}}', f'rtsp: {{listen: "127.0.0.1:{rtsp}"}}']
    lines += ['webrtc: {listen: ""}', 'srtp: {listen: ""}', "streams:"]
    for name, size in (("large", "640x360"), ("small", "320x240")):
        command = DRAWN.format(ffmpeg=shutil.which("ffmpeg"), size=size, codec="libx264", more=more["libx264"])
        lines.append(f"  {name}: '{command}'")
    (folder / "go2rtc.yaml").write_text("\n".join(lines))
    server = await asyncio.create_subprocess_exec(
        str(program("go2rtc")), "-config", str(folder / "go2rtc.yaml"), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: listening(api) and listening(rtsp))
        yield api
    finally:
        server.terminate()
        await server.wait()


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def opened(port, profile=""):
    declared = parse_source(f"onvif://127.0.0.1:{port}")
    return OnvifSource(declared, lambda: ("me", "secret"), DialLimiter(1), SocketPoller(), Wanted(profile))


@pytest.mark.parametrize(("profile", "size"), [("small", (320, 240)), ("large", (640, 360))])
async def test_a_profile_of_another_makers_camera_is_played(tmp_path, profile, size):
    async with camera(tmp_path) as port:
        units, states, reason = await play(opened(port, profile), frames=20)
    assert not reason
    assert units[0].size == size
    assert not any(unit.damaged for unit in units)
    assert "as declared" in states[-1]


async def test_a_profile_is_chosen_automatically_and_a_wrong_name_is_reported(tmp_path):
    async with camera(tmp_path) as port:
        units, states, reason = await play(opened(port), frames=20)
        assert not reason
        assert units
        assert "from the first of 2 video sources" in states[-1]  # go2rtc presents its streams like this
        reason = (await play(opened(port, "none"), frames=20))[2]
    assert 'no profile "none", only ' in reason
