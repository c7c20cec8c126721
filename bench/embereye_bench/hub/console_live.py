"""Measure live pictures and the console beside a busy fleet.

Cameras push pictures to a shard, as in `fleet-push` but without a fire, and four windows look at one of them each.
There are half as many as this machine bears without windows, which is measured first: a machine that is full drops
pictures in any case. The baseline is the same without windows, in alternating rounds. Then alarms begin, and the delay
from each event until the console shows *Acknowledge* is measured in a real browser.

`fleet-push-live` is `fleet-push` itself, with four windows: whether live pictures take anything from the detectors. A
shard that is overloaded shows none.
"""

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from embereye.levels import Kind, Level, Sense
from embereye.process.grpc_server import channel
from embereye.process.tasks import beside
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device
from embereye_bench.cameras.jpeg import CAMERAS, RATE, Fleet, Round, assignment, fleet, quantile
from embereye_bench.films import draw_calm
from embereye_bench.hub.alarm_path import Subscriber
from embereye_bench.hub.chromium import Window, chromium
from embereye_bench.hub.life import HubProcess, disk_hub
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST

VIEWERS = 4
STEPS = (100, 70, 50, 35, 25, 16)  # cameras that are tried, the most first
SHARE = 0.5  # of the cameras that the machine bears
BORNE_P99 = 0.05  # seconds from the arrival of a frame to its result, with as many cameras as the machine bears
SENSORS = "bench/sensors/rooms"
SHOWN_MOST = 0.5  # seconds from an alarm's event until the console shows *Acknowledge*
RATE_LEAST = 0.9  # of the cameras' rate, in each window
LATEST = 1.0  # seconds from the capture of a live picture until its window has it
REACH = f"0 dropped, ≥ {RATE_LEAST * RATE:g} pictures/s, ≤ {LATEST:g} s old"
# The time at which *Acknowledge* is in sight for a zone, milliseconds since the Unix epoch.
SHOWN = """new Promise((done) => (function look() {
  const button = document.querySelector("#focus-actions [data-action=acknowledge]");
  const at = button.getBoundingClientRect();
  const visible = at.height > 0 && at.top >= 0 && at.bottom <= innerHeight && !button.disabled;
  const named = document.querySelector("#focus-name").textContent.includes(%s);
  if (visible && named) done(Date.now());
  else requestAnimationFrame(look);
})())"""


def _bearable(hub: HubProcess, seconds: float) -> int:
    """The most cameras of which a shard drops no frame here; RuntimeError if even the fewest are too many."""
    for cameras in STEPS:
        with fleet("push", draw_calm(), cameras, hub=hub.control) as running:
            alone = running.round(seconds)
        if not alone.dropped and quantile(alone.buckets, 0.99) <= BORNE_P99:
            return cameras
    raise RuntimeError(f"this machine drops frames of {STEPS[-1]} cameras without windows: it is too busy or too slow")


@dataclass
class _Seen:
    """The measurements of all windows."""

    rates: list[float] = field(default_factory=list)  # pictures/s, of each window and round
    ages: list[float] = field(default_factory=list)  # seconds from capture to arrival


@dataclass
class _Rounds:
    """The rounds with and without windows, in turns."""

    alone: list[Round] = field(default_factory=list)
    watched: list[Round] = field(default_factory=list)
    seen: _Seen = field(default_factory=_Seen)

    @property
    def cores(self) -> tuple[float, float]:
        """The shard's cores with windows, and without."""
        watched, alone = ([measured.cores for measured in rounds] for rounds in (self.watched, self.alone))
        return median(watched), median(alone)

    @property
    def age(self) -> float:
        """Seconds from capture until a window has the picture, p99."""
        return sorted(self.seen.ages)[int(0.99 * len(self.seen.ages))]

    @property
    def is_good(self) -> bool:
        """True if the detectors lost nothing, and each window had its pictures in time."""
        whole = not any(measured.dropped for measured in self.watched)
        return whole and min(self.seen.rates) >= RATE_LEAST * RATE and self.age <= LATEST

    @property
    def is_overloaded(self) -> bool:
        """True if the detectors lost frames without windows, too."""
        return any(measured.dropped for measured in self.alone)

    def words(self, cameras: int) -> str:
        """Describe the rounds with `cameras`."""
        dropped, alone = (sum(measured.dropped for measured in rounds) for rounds in (self.watched, self.alone))
        return (
            f"cores with {VIEWERS} windows, {dropped} dropped of {cameras * RATE:,.0f} frames/s (alone {alone}),"
            f" p99 {_p99(self.watched) * 1e3:.1f} ms (alone {_p99(self.alone) * 1e3:.1f}); a window gets"
            f" {min(self.seen.rates):.1f} pictures/s or more, p99 {self.age * 1e3:.0f} ms after capture"
        )


async def _watch_live(session: aiohttp.ClientSession, hub: HubProcess, camera: int, seen: _Seen) -> None:
    """Receive the live pictures of `camera` until cancelled."""
    began, latest, pictures = 0.0, 0.0, 0
    address = f"http://{HOST}:{hub.http}/v1/devices/bench/cameras/bench/camera-{camera}/live?plays=H264,H265"
    try:
        async with session.ws_connect(address, max_msg_size=0) as window:
            async for message in window:
                latest = time.perf_counter()
                began = began or latest
                pictures += 1
                seen.ages.append(time.time() - struct.unpack(">q", message.data[:8])[0] / SECOND)
    finally:
        seen.rates.append((pictures - 1) / (latest - began) if pictures > 1 else 0.0)


async def _round(running: Fleet, hub: HubProcess, seconds: float, seen: _Seen | None) -> Round:
    headers = {"Authorization": f"Bearer {hub.token}"}
    async with aiohttp.ClientSession(headers=headers) as session, contextlib.AsyncExitStack() as stack:
        for number in range(VIEWERS if seen else 0):
            await stack.enter_async_context(
                beside(_watch_live(session, hub, number, seen or _Seen()), name="bench-look")
            )
        return await asyncio.to_thread(running.round, seconds)


async def _alarm(hub: HubProcess, number: int) -> None:
    """Report a sign that raises the alarm of room `number`."""
    now = time.time_ns()
    item = EvidenceItem(
        id=f"report-{number}", episode=f"episode-{number}", fleet=SENSORS, device=f"s-{number}", zone=f"room-{number}",
        kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip
    async with channel(hub.control) as link:
        call = EvidenceStub(link).Report()
        await call.write(ReportRequest(hello=ShardHello(fleet=SENSORS, shard="rooms-0")))
        await call.write(ReportRequest(evidence=item, sent_ns=now))
        async for response in call:
            if item.id in response.acknowledged:
                break
        call.cancel()


async def _shown_after(hub: HubProcess, window: Window, subscriber: Subscriber, number: int) -> float:
    """Seconds from the event of a new alarm until the console shows *Acknowledge* for it; then acknowledge it."""
    room, began = f"room-{number}", time.perf_counter()
    async with beside(window.evaluate(SHOWN % json.dumps(room)), name="bench-shown") as shown:
        await _alarm(hub, number)
        event = began + await subscriber.wait(room, began)
        at = float(await shown) / 1000 - time.time() + time.perf_counter()
    path = f"/v1/zones/bench/{room}/acknowledge"
    body = "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}"
    await window.evaluate(f"fetch({json.dumps(path)}, {body}).then(({{ status }}) => status)")
    return at - event


async def sign_in(window: Window, hub: HubProcess) -> None:
    """Open the console as admin."""
    base = f"http://{HOST}:{hub.http}"
    await window.call("Page.enable")
    for address in (f"{base}/login", f"{base}/"):
        await window.call("Page.navigate", url=address)
        while await window.evaluate("document.readyState") != "complete":
            await asyncio.sleep(0.05)
        if address.endswith("login"):
            body = json.dumps(json.dumps({"token": hub.token}))
            options = f"{{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: {body}}}"
            await window.evaluate(f"fetch('/v1/session', {options}).then(({{ status }}) => status)")
    while not await window.evaluate("document.querySelector('#me')?.textContent"):
        await asyncio.sleep(0.05)


async def set_rosters(hub: HubProcess, *, cameras: int, rooms: int) -> None:
    """Declare cameras that push, and rooms with a sensor each."""
    declared = assignment(["push:"] * cameras)
    devices = [Device(id=f"s-{number}", zone=f"room-{number}") for number in range(rooms)]
    async with channel(hub.control) as link:
        for name, listed in ((declared.fleet, declared.devices), (SENSORS, devices)):
            roster = FleetRoster(fleet=name, epoch=1, deadline_ns=10**15, devices=listed)
            await RosterStub(link).Set(roster, timeout=10)


async def _rounds(running: Fleet, hub: HubProcess, scale: Scale, cameras: int) -> _Rounds:
    await set_rosters(hub, cameras=cameras, rooms=scale.rounds)
    rounds = _Rounds()
    for _ in range(scale.rounds):
        rounds.alone.append(await _round(running, hub, scale.seconds, None))
        rounds.watched.append(await _round(running, hub, scale.seconds, rounds.seen))
    if not rounds.seen.ages:
        why = ": this machine drops frames without windows, too" if rounds.is_overloaded else ""
        raise RuntimeError(f"no window received a picture{why}")
    return rounds


async def _delays(running: Fleet, hub: HubProcess, scale: Scale) -> list[float]:
    """Seconds from the event of each alarm until the console shows *Acknowledge*."""
    delays, subscriber = list[float](), Subscriber()
    running.sender.command("start")
    async with chromium() as window, beside(subscriber.run(hub.grpc, hub.token), name="bench-subscriber"):
        await sign_in(window, hub)
        await asyncio.sleep(2.0)  # until the page is complete
        for number in range(scale.rounds):
            delays.append(await _shown_after(hub, window, subscriber, number))
            await asyncio.sleep(0.5)
    running.sender.command("stop")
    return delays


async def _measure(running: Fleet, hub: HubProcess, scale: Scale, cameras: int) -> tuple[_Rounds, list[float]]:
    return await _rounds(running, hub, scale, cameras), await _delays(running, hub, scale)


def console_live(scale: Scale) -> Result:
    """Measure a fleet with four live windows, and the delay of *Acknowledge*. Baseline: the fleet without windows."""
    with disk_hub() as hub:
        asyncio.run(hub.start())
        borne = _bearable(hub, scale.seconds)
        cameras = max(VIEWERS, int(SHARE * borne))
        with fleet("push", draw_calm(), cameras, hub=hub.control) as running:
            rounds, delays = asyncio.run(_measure(running, hub, scale, cameras))
        asyncio.run(hub.end())
    cores, baseline = rounds.cores
    shown = median(delays) * 1e3, max(delays) * 1e3
    unit = (
        f"{rounds.words(cameras)} (this machine bears {borne * RATE:,.0f} frames/s);"
        f" Acknowledge shown {shown[0]:.0f} ms after the event, at most {shown[1]:.0f}"
    )
    ok = rounds.is_good and max(delays) <= SHOWN_MOST
    reach = f"{REACH}, Acknowledge ≤ {SHOWN_MOST * 1e3:g} ms"
    return Result("console-live", cores, unit, baseline, cores / baseline, reach, ok)


def fleet_push_live(scale: Scale) -> Result:
    """Measure 100 cameras that push, as in `fleet-push`, with four windows. Baseline: the same without windows."""
    with disk_hub() as hub:
        asyncio.run(hub.start())
        with fleet("push", draw_calm(), hub=hub.control) as running:
            rounds = asyncio.run(_rounds(running, hub, scale, CAMERAS))
        asyncio.run(hub.end())
    cores, baseline = rounds.cores
    unit = rounds.words(CAMERAS)
    if rounds.is_overloaded:
        unit += "; nothing is shown by this run: this machine drops frames without windows, too"
    return Result("fleet-push-live", cores, unit, baseline, cores / baseline, REACH, rounds.is_good)


def _p99(rounds: Sequence[Round]) -> float:
    return quantile({bound: sum(each.buckets[bound] for each in rounds) for bound in rounds[0].buckets}, 0.99)
