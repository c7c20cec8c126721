"""A wall of cameras in Chromium for an hour, while the hub of `embereye up` is killed every five minutes.

Other times: EMBEREYE_WALL_SECONDS and EMBEREYE_WALL_EVERY, both in seconds.
"""

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER
from harness.running_programs import start_up

from embereye.process.addresses import free_ports

SECONDS = float(os.environ.get("EMBEREYE_WALL_SECONDS", "3600"))
EVERY = float(os.environ.get("EMBEREYE_WALL_EVERY", "300"))
pytestmark = [pytest.mark.slow, pytest.mark.needs(BROWSER), pytest.mark.timeout(2 * SECONDS + 600)]
CAMERAS = 4
BACK_SECONDS = 5.0  # mark for the time from the hub's first answer to the last camera's picture
GROWTH_MOST = 1.1  # memory at the end, over that after the first two kills
FLEET = """
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {{name: yard, annotations: {{embereye.dev/simulate: "true"}}}}
spec:
  cameras:
{cameras}
  deadline: 5s
  listen: {{grpc: {grpc}}}
  fps: {{target: 5, min: 1}}
  access: {{networks: [127.0.0.0/8]}}
"""
# Note when the newest live picture of each camera was taken.
NOTE = """{
  window.taken = {};
  const Plain = WebSocket;
  window.WebSocket = class extends Plain {
    constructor(url, ...rest) {
      super(url, ...rest);
      if (!url.includes("/live")) return;
      this.addEventListener("message", ({ data }) => {
        if (!(data instanceof ArrayBuffer)) return;
        window.taken[new URL(url).pathname] = Number(new DataView(data).getBigInt64(0)) / 1e6;
      });
    }
  };
}"""
CELLS = "[...document.querySelectorAll('#wall .cell')]"
SINCE = (
    "Object.values(window.taken).filter((at) => at > {since}).length === {cameras}"
    f" && {CELLS}.every((cell) => !cell.querySelector('canvas').matches('.blank'))"
)
ELEMENTS = "document.querySelectorAll('*').length"


@dataclass
class Wall:
    """Measured after each kill."""

    outages: list[float] = field(default_factory=list)  # seconds without a hub
    delays: list[float] = field(default_factory=list)  # seconds from the hub's first answer to all pictures
    heaps: list[float] = field(default_factory=list)  # MB
    elements: list[int] = field(default_factory=list)


def find_hub(data: Path) -> int:
    """The process id of the hub with this data folder; 0 if there is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "hub" in command and str(data / "hub") in command:
                return int(folder.name)
    return 0


async def wait_for_hub(base: str) -> None:
    """Wait until the hub answers."""
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(f"{base}/v1/session"):
                    return
            await asyncio.sleep(0.05)


async def kill_once(browser: Browser, base: str, data: Path, wall: Wall) -> None:
    """Kill the hub, wait until each camera shows a picture that was taken after it, and measure."""
    pid = find_hub(data)
    assert pid, "the hub runs"
    os.kill(pid, signal.SIGKILL)
    since, began = 1000 * time.time(), time.perf_counter()
    async with asyncio.timeout(60):
        while find_hub(data) in {0, pid}:
            await asyncio.sleep(0.05)
        await wait_for_hub(base)
    answered = time.perf_counter()
    await browser.ask("until", script=SINCE.format(since=since, cameras=CAMERAS), seconds=85)
    wall.outages.append(answered - began)
    wall.delays.append(time.perf_counter() - answered)
    wall.heaps.append(await browser.ask("collect") / 1e6)
    wall.elements.append(await browser.ask("evaluate", script=ELEMENTS))
    print(
        f"kill {len(wall.delays)}: {wall.outages[-1]:.1f} s without a hub, pictures {wall.delays[-1]:.1f} s after it, "
        f"{wall.heaps[-1]:.1f} MB, {wall.elements[-1]} elements",
        flush=True,
    )


async def test_a_wall_shows_pictures_after_each_kill_of_the_hub_and_does_not_grow(tmp_path: Path) -> None:
    cameras, grpc, port, hub = free_ports(4)
    lines = [
        f"    - {{id: cam-{n}, zone: hall, source: 'http://127.0.0.1:{cameras}/cam-{n}.mjpg'}}" for n in range(CAMERAS)
    ]
    (tmp_path / "fleet.yaml").write_text(FLEET.format(cameras="\n".join(lines), grpc=grpc))
    data, wall = tmp_path / "data", Wall()
    async with contextlib.AsyncExitStack() as stack:
        ready, token = await start_up(stack, data, port, hub, tmp_path / "fleet.yaml", seconds=180)
        base = ready["console"].rstrip("/")
        browser = await stack.enter_async_context(run_browser())
        await browser.sign_in(base, token, before=NOTE)
        await browser.ask("evaluate", script="(location.hash = 'wall')")
        await browser.ask("until", script=SINCE.format(since=0, cameras=CAMERAS), seconds=85)
        started, kills = time.monotonic(), max(3, int(SECONDS // EVERY))
        for number in range(1, kills + 1):
            await asyncio.sleep(max(0.0, started + number * EVERY - time.monotonic()))
            await kill_once(browser, base, data, wall)
    late = sum(delay > BACK_SECONDS for delay in wall.delays)
    print(
        f"{kills} kills in {SECONDS:g} s: pictures at most {max(wall.delays):.1f} s after the hub, {late} times later"
    )
    assert len(wall.delays) == kills
    assert wall.elements[-1] == wall.elements[1]
    assert wall.heaps[-1] <= GROWTH_MOST * wall.heaps[1], wall.heaps
