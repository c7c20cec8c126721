"""A real H.264 camera, from its RTSP server through `embereye up` into Chromium: live, and within a second."""

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from harness.browser import Browser, run_browser
from harness.eventually import eventually
from harness.need import BROWSER, FFMPEG, MEDIAMTX, program
from harness.running_programs import start, start_up
from harness.servers.mediamtx import mediamtx_settings
from prometheus_client.parser import text_string_to_metric_families

from embereye.process.addresses import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.needs(MEDIAMTX, FFMPEG, BROWSER), pytest.mark.timeout(300)]
BITS, WIDTH, HEIGHT = 16, 640, 360
SECONDS = 10.0  # of video
# The time at which a picture is made, hundredths of a second, as 16 black or white fields at its top.
CLOCK = (
    "realtime,settb=1/1000,setpts=RTCTIME/1000000/TB,"
    f"geq=lum='if(lt(Y,40),255*mod(floor(T*100/pow(2,floor(X/{WIDTH // BITS}))),2),p(X,Y))':"
    "cb='if(lt(Y,20),128,p(X,Y))':cr='if(lt(Y,20),128,p(X,Y))',"
    "setpts=N/15/TB"
)
FLEET = """
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {{name: yard, namespace: default}}
spec:
  cameras: [{{id: gate, zone: yard, source: "{source}"}}]
  deadline: 5s
  listen: {{grpc: {port}}}
  fps: {{target: 5, min: 1}}
  detection: {{detectors: [motion, flame, smoke]}}
  access: {{networks: [127.0.0.0/8]}}
"""
CANVAS = "document.querySelector('#device-live')"
# Milliseconds since the picture on the page was made; -1: there is none.
AGE = f"""(() => {{
  const canvas = {CANVAS};
  if (!canvas || canvas.classList.contains("blank")) return -1;
  const {{ data }} = canvas.getContext("2d").getImageData(0, 20, canvas.width, 1), field = canvas.width / {BITS};
  let made = 0;
  for (let bit = 0; bit < {BITS}; bit++) made += data[4 * Math.round(field * (bit + 0.5))] > 128 ? 2 ** bit : 0;
  return 10 * ((Date.now() / 10 - made) % {2**BITS} + {2**BITS}) % {10 * 2**BITS};
}})()"""
KEEP_VIDEOS = """(() => {
  const create = document.createElement;
  window.videos = [];
  document.createElement = function (name, ...rest) {
    const made = create.call(this, name, ...rest);
    if (name === "video") window.videos.push(made);
    return made;
  };
})()"""


@dataclass
class Site:
    """A running `embereye up`."""

    console: str
    metrics: str  # address of the hub's
    token: str

    async def metric(self, name: str) -> float:
        """The value of a hub's metric."""
        async with aiohttp.ClientSession() as session, session.get(self.metrics) as response:
            families = text_string_to_metric_families(await response.text())
            return next(sample.value for family in families for sample in family.samples if sample.name == name)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """The camera and the program that watches it."""
    rtsp, console, hub, grpc = free_ports(4)
    source = f"rtsp://127.0.0.1:{rtsp}/gate"
    (tmp_path / "camera.yml").write_text(mediamtx_settings(rtsp))
    (tmp_path / "fleet.yaml").write_text(FLEET.format(source=source, port=grpc))
    async with contextlib.AsyncExitStack() as stack:
        await start(stack, program("mediamtx"), tmp_path / "camera.yml")
        encode = (
            f'{shutil.which("ffmpeg")} -v error -f lavfi -i testsrc2=size={WIDTH}x{HEIGHT}:rate=15 -vf "{CLOCK}" '
            f"-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 30 "
            f"-f rtsp -rtsp_transport tcp {source}"
        )
        await start(stack, "sh", "-c", f"while :; do {encode}; sleep 0.5; done")
        ready, token = await start_up(stack, tmp_path / "data", console, hub, tmp_path / "fleet.yaml")
        yield Site(ready["console"].rstrip("/"), ready["hubMetrics"], token)


async def _open(site: Site, browser: Browser, before: str) -> None:
    await browser.sign_in(site.console, site.token, before=before)
    await browser.ask("evaluate", script="location.hash = 'device?fleet=default%2Fcameras%2Fyard&id=gate'")
    await browser.until(f"{AGE} >= 0")


async def _ages(browser: Browser, seconds: float) -> list[float]:
    """The ages of the pictures that the page shows during `seconds`, ten times a second; milliseconds."""
    ages, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        ages.append(await browser.ask("evaluate", script=AGE))
        await asyncio.sleep(0.1)
    return ages


async def test_the_video_of_a_camera_plays_live_or_as_pictures_with_the_reason(site: Site, tmp_path: Path) -> None:
    async with run_browser() as browser, run_browser() as other:
        await _open(site, browser, KEEP_VIDEOS)
        await asyncio.sleep(3)  # the player finds its pace
        video = "window.videos.at(-1)"
        began = await browser.ask("evaluate", script=f"{video}.currentTime")
        ages = sorted(await _ages(browser, SECONDS))
        played = await browser.ask("evaluate", script=f"{video}.currentTime") - began
        print(f"played {played:.1f} s; age median {ages[len(ages) // 2]:.0f} ms, most {ages[-1]:.0f} ms")
        await browser.ask("screenshot", path=str(tmp_path / "video.png"))
        assert played > SECONDS / 2
        assert await browser.text("#device-why") == ""
        assert ages[len(ages) // 2] <= 1000, "the machine may be busy for a moment, but not for half of the time"

        await _open(site, other, "delete window.MediaSource; delete window.ManagedMediaSource")
        sentence = "This browser does not play the camera's H.264 video. It shows 2 pictures a second instead."
        await other.until(f"document.querySelector('#device-why').innerText === {json.dumps(sentence)}")
        shown = await other.ask("evaluate", script=f"{CANVAS}.getContext('2d').getImageData(0, 20, 640, 1).data.join()")
        now = f"{CANVAS}.getContext('2d').getImageData(0, 20, 640, 1).data.join()"
        await other.until(f"{now} !== {json.dumps(shown)}")
        await other.ask("screenshot", path=str(tmp_path / "pictures.png"))
        assert await site.metric("embereye_hub_live_viewers") >= 2
        assert await site.metric("embereye_hub_live_sent_bytes_total") > 100_000
        assert await browser.ask("problems") + await other.ask("problems") == []

    async def is_quiet() -> bool:
        sent = await site.metric("embereye_hub_live_bytes_total")
        await asyncio.sleep(2)
        return await site.metric("embereye_hub_live_viewers") == 0 and sent == await site.metric(
            "embereye_hub_live_bytes_total"
        )

    await eventually(is_quiet)  # nobody looks: the shard sends nothing more
