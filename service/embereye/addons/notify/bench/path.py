"""Measure the delay of a message to people: from a crossing on the wire until a service on this machine has it.

A hub that notifies and a sensor shard run as processes, with a hundred idle devices. One further device after the other
sends a reading with much smoke; with stills, a shard's report with a picture takes its place. Each alarm goes by SMTP,
ntfy and Web Push at the same time. After each, the floor is measured: the same mail, sent by a bare client.
"""

import asyncio
import contextlib
import json
import os
import random
import smtplib
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from email.message import EmailMessage
from pathlib import Path

from embereye.addons.notify.bench.servers import HOST, Service, Services, running_services
from embereye.levels import Kind, Level, Sense
from embereye.process.grpc_server import channel
from embereye.process.tasks import beside
from embereye.sim.own_process import own_process
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye_bench.hub.alarm_path import READY_SECONDS, ROOT, TALKERS, Site, Subscriber, percentile
from embereye_bench.report import Result, Scale
from embereye_bench.sensors.load import alarming_line, close, connect, reading_line

MOST_ALARMS = 100  # in one round
PATIENCE_SECONDS = 20.0  # for one message; a later one counts as this late
PICTURE_BYTES = 60_000  # of a still
WITHOUT_MS, WITH_MS = 50, 250  # goals for p95
SPACING_SECONDS = 0.1  # between two alarms
STORM_ALARMS, STORM_SECONDS, STORM_ROUTES = 1_000, 60.0, 10
DELIVERY_SECONDS = 60.0  # after a storm, until everybody has all names
ALARM_PATH_MS = (25, 50)  # p95 and p99 of the alarm path beside a storm
FLOOR = "floor"


class NotifySite(Site):
    """A hub that notifies and a sensor shard; each device has a separate zone."""

    def __init__(self, folder: Path, devices: int, services: Services, routes: Sequence[str], fold: float) -> None:
        """`routes` are kinds of services, in the order of the routes' names route-0, route-1 and so on."""
        declared = [
            {"name": f"route-{number}", "url": services.url(f"route-{number}", kind), "allow": "127.0.0.0/8"}
            for number, kind in enumerate(routes)
        ]
        steps = [{"routes": [route["name"] for route in declared]}]
        escalations = [{"name": "fire", "for": "alarm", "steps": steps}]
        file = folder / "notify.yaml"
        document = {"publicUrl": "https://fire.example.com", "fold": f"{fold:g}s", "routes": declared}
        file.write_text(json.dumps({**document, "escalations": escalations} if declared else {}))
        super().__init__(folder, devices, "", *(("--notify", str(file)) if declared else ()))
        self.http = self.hub_command[self.hub_command.index("--http-port") + 1]
        self.reports = f"{HOST}:{self.hub_command[self.hub_command.index('--control-port') + 1]}"

    def subscribe(self, subscription: dict[str, object]) -> None:
        """Subscribe a browser to Web Push."""
        request = urllib.request.Request(
            f"http://{HOST}:{self.http}/v1/notify/push", json.dumps(subscription).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )  # fmt: skip
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                urllib.request.urlopen(request, timeout=20).close()
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return


async def _wait(service: Service, messages: int, since: float) -> float:
    """Seconds from `since` until `service` has `messages`, at most PATIENCE_SECONDS."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while service.messages < messages:
                service.more.clear()
                await service.more.wait()
            return service.last - since
    return PATIENCE_SECONDS


def _mail(port: int, still: bytes) -> None:
    """Send a mail like the hub's by a bare client."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "ALARM", "hub@example.com", f"{FLOOR}@example.com"
    message.set_content("default/nowhere: smoke 4000 ≥ 600")
    if still:
        message.add_attachment(still, "image", "jpeg", filename="still.jpg")
    with smtplib.SMTP(HOST, port, timeout=10) as client:
        client.send_message(message)


@contextlib.asynccontextmanager
async def _reports(address: str) -> AsyncIterator["asyncio.Queue[EvidenceItem]"]:
    """Send the queued reports to the hub as a shard does."""
    queue: asyncio.Queue[EvidenceItem] = asyncio.Queue()

    async def requests() -> AsyncIterator[ReportRequest]:
        yield ReportRequest(hello=ShardHello(fleet="default/cameras/all", shard="all-0", epoch=1))
        while True:
            yield ReportRequest(evidence=await queue.get(), sent_ns=time.time_ns())

    async def acknowledge() -> None:
        async with channel(address) as link:
            async for _ in EvidenceStub(link).Report(requests(), wait_for_ready=True):
                pass

    async with beside(acknowledge(), name="reports"):
        yield queue


def _item(device: str, picture: bytes) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=f"{device}-1", episode=device, fleet="default/cameras/all", device=device, zone=device,
        kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, score=1, since_ns=now, until_ns=now,
        snapshot=picture,
    )  # fmt: skip


async def _delays(samples: int, folder: Path, *, still: bool) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds until each kind of service had each alarm's message, and until one had a bare client's mail."""
    dice, kinds = random.Random(3), ("smtp", "ntfy", "push")
    delays: dict[str, list[float]] = {kind: [] for kind in kinds}
    floors = list[float]()
    async with contextlib.AsyncExitStack() as stack:
        services = await stack.enter_async_context(running_services())
        site = NotifySite(folder, TALKERS + samples, services, kinds, fold=0)
        services.url(FLOOR, "smtp")
        stack.enter_context(own_process(*site.hub_command))
        stack.enter_context(own_process(*site.shard_command))
        await site.wait_ready()
        await asyncio.to_thread(site.subscribe, services.subscription("route-2"))
        sockets = await asyncio.to_thread(connect, site.tcp, TALKERS + samples)
        stack.callback(lambda: close(sockets))
        for number, connection in enumerate(sockets):
            connection.sendall(reading_line(f"device-{number}", dice))
        reports = await stack.enter_async_context(_reports(site.reports))
        await asyncio.sleep(2.0)  # until the shard has found the hub, and every device is known
        for sample in range(samples):
            for number in range(TALKERS):
                sockets[number].send(reading_line(f"device-{number}", dice))
            await asyncio.sleep(SPACING_SECONDS)
            device, picture = f"device-{TALKERS + sample}", os.urandom(PICTURE_BYTES) if still else b""
            picture = b"\xff\xd8" + picture[2:] if still else b""
            at = time.perf_counter()
            if still:
                reports.put_nowait(_item(device, picture))
            else:
                sockets[TALKERS + sample].send(alarming_line(device))
            waits = [_wait(services.routes[f"route-{number}"], sample + 1, at) for number in range(len(kinds))]
            for kind, seconds in zip(kinds, await asyncio.gather(*waits), strict=True):
                delays[kind].append(seconds)
            at = time.perf_counter()
            await asyncio.to_thread(_mail, services.mail_port, picture)
            floors.append(services.routes[FLOOR].last - at)
        if still and not services.routes["route-0"].stills:
            raise RuntimeError("no mail had a still")
    return delays, floors


def _measure(name: str, scale: Scale, goal: int, *, still: bool) -> Result:
    samples = min(MOST_ALARMS, int(20 * scale.seconds))
    delays: dict[str, list[float]] = {}
    floors = list[float]()
    for _ in range(scale.rounds):
        with _folder() as folder:
            measured, bare = asyncio.run(_delays(samples, folder, still=still))
        for kind, values in measured.items():
            delays.setdefault(kind, []).extend(values)
        floors += bare
    late = {kind: percentile(values, 0.95) for kind, values in delays.items()}
    value, floor = max(late.values()), percentile(floors, 0.95)
    unit = "ms p95 of " + ", ".join(f"{kind} {ms:.1f}" for kind, ms in late.items())
    return Result(name, value, unit, floor, value / floor, f"≤ {goal}", value <= goal)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder on a disk, because memory alone needs no time to make data durable."""
    with tempfile.TemporaryDirectory(dir=ROOT if os.access(ROOT, os.W_OK) else None, prefix=".bench-") as folder:
        yield Path(folder)


def notify_path(scale: Scale) -> Result:
    """Measure from a crossing on the wire until each service has the message. Baseline: a mail by a bare client."""
    return _measure("notify-path", scale, WITHOUT_MS, still=False)


def notify_path_still(scale: Scale) -> Result:
    """Measure from a report with a picture until each service has the message with the still."""
    return _measure("notify-path-still", scale, WITH_MS, still=True)


async def _storm(alarms: int, seconds: float, folder: Path, kinds: Sequence[str]) -> tuple[list[float], int, int]:
    """Light `alarms` fires within `seconds`.

    Returns the alarm path's delays in seconds, the number of pairs of route and zone that no message named, and the
    number of messages.
    """
    dice, latencies = random.Random(3), list[float]()
    async with contextlib.AsyncExitStack() as stack:
        services = await stack.enter_async_context(running_services())
        site, subscriber = NotifySite(folder, alarms, services, kinds, fold=5.0), Subscriber()
        stack.enter_context(own_process(*site.hub_command))
        stack.enter_context(own_process(*site.shard_command))
        await site.wait_ready()
        sockets = await asyncio.to_thread(connect, site.tcp, alarms)
        stack.callback(lambda: close(sockets))
        for number, connection in enumerate(sockets):
            connection.sendall(reading_line(f"device-{number}", dice))
        sent: dict[str, float] = {}
        async with beside(subscriber.run(site.hub, site.token), name="subscriber"):
            await asyncio.sleep(2.0)
            started = time.perf_counter()
            for number in range(alarms):
                await asyncio.sleep(max(0.0, started + number * seconds / alarms - time.perf_counter()))
                sent[f"device-{number}"] = time.perf_counter()
                sockets[number].send(alarming_line(f"device-{number}"))
            for zone, at in sent.items():
                latencies.append(await subscriber.wait(zone, at))
        routes = services.routes.values()
        deadline = time.perf_counter() + DELIVERY_SECONDS
        while any(len(route.zones()) < alarms for route in routes) and time.perf_counter() < deadline:
            await asyncio.sleep(1.0)
        missing = sum(len(sent.keys() - route.zones()) for route in routes)
        return latencies, missing, sum(route.messages for route in routes)


def notify_storm(scale: Scale) -> Result:
    """Measure the alarm path while 1,000 alarms in a minute go out by 10 routes. Baseline: without notifications."""
    share = min(1.0, scale.seconds / 3)
    alarms, seconds = int(STORM_ALARMS * share), STORM_SECONDS * share
    with _folder() as folder:
        plain, _, _ = asyncio.run(_storm(alarms // 4, seconds / 4, folder, ()))
    with _folder() as folder:
        kinds = ["smtp", "ntfy"] * (STORM_ROUTES // 2)
        latencies, missing, messages = asyncio.run(_storm(alarms, seconds, folder, kinds))
    value, late, floor = percentile(latencies, 0.95), percentile(latencies, 0.99), percentile(plain, 0.95)
    unit = f"ms p95, p99 {late:.1f}; {missing} of {alarms * STORM_ROUTES} lost, in {messages} messages"
    goal = f"0 lost, ≤ {ALARM_PATH_MS[0]}, p99 ≤ {ALARM_PATH_MS[1]}"
    is_met = not missing and value <= ALARM_PATH_MS[0] and late <= ALARM_PATH_MS[1]
    return Result("notify-storm", value, unit, floor, value / floor, goal, is_met)
