"""Measure the console over time and on a slow machine: a wall of cameras while the hub is killed, and the first paint.

The wall is a real browser in front of a real hub. The hub is killed again and again, and started once the browser shows
nothing live any more. Each time, the delay is measured from the hub's first answer until all cameras show a picture
taken since then, and the memory of the page.
"""

import asyncio
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from embereye_bench.cameras.jpeg import Fleet, fleet
from embereye_bench.films import draw_calm
from embereye_bench.hub.chromium import Window, chromium
from embereye_bench.hub.console_live import set_rosters, sign_in
from embereye_bench.hub.life import HOUR_SECONDS, QUICK_HOUR_SECONDS, HubProcess, disk_hub
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST

CAMERAS = 4
KILLS = 12  # in an hour; in a quick run, a quarter of them
BACK_MOST = 5.0  # seconds from the hub's first answer until the pictures are back
GROWTH_MOST = 1.1  # memory at the end, over that after the first kill
PAINT_MOST = 1_000.0  # ms
SLOWER = 4  # times, the throttled CPU
WAIT = "new Promise((done) => (function look() { if (%s) done(0); else requestAnimationFrame(look); })())"
CELLS = "[...document.querySelectorAll('#wall .cell')]"
ALL = f"{CELLS}.length === {CAMERAS} && {CELLS}.every((cell) => %s)"
BLANK = WAIT % f"{CELLS}.every((cell) => cell.querySelector('canvas').matches('.blank'))"
PAINT = """new Promise((done) => new PerformanceObserver((list) => {
  for (const { startTime } of list.getEntriesByName("first-contentful-paint")) done(startTime);
}).observe({ type: "paint", buffered: true }))"""


@dataclass
class _Wall:
    delays: list[float] = field(default_factory=list)  # seconds, of each kill
    heaps: list[float] = field(default_factory=list)  # MB after each kill
    nodes: list[int] = field(default_factory=list)  # of the document, after each kill


def _shown_since(start_ns: int) -> str:
    """A promise for the time when all cells show a live picture, or one taken after `start_ns`."""
    live = "!cell.querySelector('canvas').matches('.blank')"
    return WAIT % (ALL % f"{live} || BigInt(cell.dataset.shown || 0) > {start_ns}n")


async def _memory(window: Window) -> tuple[float, int]:
    await window.call("HeapProfiler.collectGarbage")
    heap: dict[str, Any] = await window.call("Runtime.getHeapUsage")
    return heap["usedSize"] / 1e6, await window.evaluate("document.querySelectorAll('*').length")


async def _watch(running: Fleet, hub: HubProcess, seconds: float, kills: int) -> _Wall:
    wall = _Wall()
    await set_rosters(hub, cameras=CAMERAS, rooms=0)
    running.sender.command("start")
    async with chromium() as window:
        await sign_in(window, hub)
        await window.evaluate("location.hash = 'wall'")
        await window.evaluate(_shown_since(0))
        for number in range(kills):
            await asyncio.sleep(max(0.0, seconds / kills - 5.0))  # an outage takes some seconds
            await hub.end(signal.SIGKILL)
            await window.evaluate(BLANK)
            start_ns = time.time_ns()
            await hub.start()
            began = time.perf_counter()
            await window.evaluate(_shown_since(start_ns))
            wall.delays.append(time.perf_counter() - began)
            if number or kills == 1:
                heap, nodes = await _memory(window)
                wall.heaps.append(heap)
                wall.nodes.append(nodes)
    running.sender.command("stop")
    return wall


def console_wall(scale: Scale) -> Result:
    """Measure a wall for an hour in which the hub is killed 12 times, a minute and 3 times in a quick run.

    Baseline: its memory after the second kill.
    """
    is_hour = scale.rounds >= 5
    seconds, kills = (HOUR_SECONDS, KILLS) if is_hour else (QUICK_HOUR_SECONDS, KILLS // 4)
    with disk_hub() as hub:
        asyncio.run(hub.start())
        with fleet("push", draw_calm(), CAMERAS, hub=hub.control) as running:
            wall = asyncio.run(_watch(running, hub, seconds, kills))
        asyncio.run(hub.end())
    heap, baseline, back = wall.heaps[-1], wall.heaps[0], max(wall.delays)
    unit = (
        f"MB in the page after {kills} kills in {seconds:,.0f} s, {wall.nodes[0]} to {wall.nodes[-1]} elements;"
        f" pictures back {median(wall.delays):.1f} s after the hub, at most {back:.1f}"
    )
    ok = heap <= GROWTH_MOST * baseline and back <= BACK_MOST
    return Result("console-wall", heap, unit, baseline, heap / baseline, f"≤ {GROWTH_MOST:g}, ≤ {BACK_MOST:g} s", ok)


async def _paint(window: Window, address: str) -> float:
    """Load `address` without caches; return the milliseconds until something is painted."""
    await window.call("Page.navigate", url="about:blank")
    await window.call("Page.navigate", url=address)
    return float(await window.evaluate(PAINT))


async def _paints(hub: HubProcess, rounds: int) -> tuple[list[float], list[float]]:
    await set_rosters(hub, cameras=100, rooms=100)
    base, console, bare = f"http://{HOST}:{hub.http}", list[float](), list[float]()
    async with chromium() as window:
        await sign_in(window, hub)
        await window.call("Network.enable")
        await window.call("Network.setCacheDisabled", cacheDisabled=True)
        await window.call("Network.setBypassServiceWorker", bypass=True)
        await window.call("Emulation.setCPUThrottlingRate", rate=SLOWER)
        for _ in range(rounds):
            bare.append(await _paint(window, f"{base}/static/offline.html"))
            console.append(await _paint(window, f"{base}/"))
    return console, bare


def console_paint(scale: Scale) -> Result:
    """Measure the console's first paint on a CPU slowed down four times. Baseline: a page without a script."""
    with disk_hub() as hub:
        asyncio.run(hub.start())
        console, bare = asyncio.run(_paints(hub, scale.rounds))
        asyncio.run(hub.end())
    value, baseline = median(console), median(bare)
    unit = f"ms until the first paint of 200 devices, CPU {SLOWER} times slower, at most {max(console):.0f}"
    return Result("console-paint", value, unit, baseline, value / baseline, f"≤ {PAINT_MOST:g} ms", value <= PAINT_MOST)
