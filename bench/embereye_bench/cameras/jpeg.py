"""Benchmark a camera shard with JPEG: a fleet's cores and memory, reception, losses, overload, a busy neighbour.

Each benchmark is a function in `BENCHMARKS`. For most, `fleet` runs a shard and a sender as two processes.
`Fleet.round` lets the sender start, waits for the warm-up, and takes the differences of counters and CPU seconds over
the round. Baselines are measured in the same run: decoding alone, GStreamer on the same stream, or the same fleet in
another form.
"""

import contextlib
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

from embereye.camera.decode.image import add_logits, decode_frame
from embereye.camera.decode.shipped import load_network
from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.camera.scheduling.mailbox import Picture
from embereye.camera.scheduling.turn import Turn
from embereye.process.addresses import free_ports
from embereye.process.telemetry.usage import resident_mb
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device
from embereye.wire.rtp.depacketize import Depacketizer, JpegFrame
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye_bench import report
from embereye_bench.certificate import certificate
from embereye_bench.films import Films, draw, draw_calm, enlarge
from embereye_bench.process import CameraShardProcess, Counters, Measured, Sender
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings

CAMERAS, RATE = 100, 15.0  # frames/s each
WARM_UP = 1.0  # seconds of sending before each round, not counted
CORES = min(2, os.cpu_count() or 1)
LOSS = 0.01  # of packets
OVERLOAD = 10  # times the available cores
OVERLOAD_SLACK = 0.95  # frames/s, for a limit of 1/s: rounds start and end between frames
DEADLINE_NS = 2_000_000_000
OFFERED, ANALYSED = "embereye_camera_frames_offered_total", "embereye_camera_frames_analysed_total"
SHED, REJECTED = "embereye_camera_frames_shed_total", "embereye_camera_frames_rejected_total"
DELAY, AGE = "embereye_camera_frame_delay_seconds_bucket", "embereye_camera_frame_age_seconds_bucket"
RATE_NAME = "embereye_camera_rate_hertz"
BACK_MOST = 3.0  # seconds until rates have recovered
CALM_WALKING_EVERY = 20  # one in so many cameras of a calm fleet always shows a person
CALM_SECONDS = 12.0  # until such a fleet is calm
TLS_MOST = 1.2  # times the cores without TLS
COST = "embereye_camera_analysis_cpu_seconds_total"


@dataclass(frozen=True)
class Round:
    """The measurements of one round."""

    rate: float  # frames analysed/s
    cores: float
    sender: float  # cores
    dropped: int  # shed, rejected or not sent
    buckets: dict[float, float]  # frames by upper bound of their delay in seconds, cumulative


def assignment(sources: list[str], *, fps_min: float = 5.0, target: float = RATE) -> Assignment:
    """The assignment of a shard that owns camera-0 and so on, with a fleet's settings apart from these two."""
    settings = build_camera_settings(CameraFleetSpec())
    settings.deadline_ns = DEADLINE_NS
    settings.detectors[:] = ["motion", "flame"]
    return Assignment(
        fleet="bench/cameras/bench",
        shard="bench-0",
        epoch=1,
        devices=[
            Device(id=f"camera-{number}", zone=f"zone-{number}", source=source, fps_target=target, fps_min=fps_min)
            for number, source in enumerate(sources)
        ],
        camera=settings,
    )


def quantile(buckets: dict[float, float], share: float) -> float:
    """The value that `share` of the counts do not exceed, interpolated as in Prometheus; 0 without counts."""
    total = buckets.get(float("inf"), 0.0)
    below, under = 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if total and count >= share * total:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (share * total - under) / max(1e-9, count - under)
        below, under = bound, count
    return 0.0


def buckets_between(before: Counters, after: Counters, name: str = DELAY) -> dict[float, float]:
    """The counts between two moments, by upper bound."""
    counts = {}
    for key, value in after.values.items():
        if key.startswith(name):
            counts[float(key.partition('le="')[2].rstrip('"}'))] = value - before.values.get(key, 0.0)
    return counts


@dataclass
class Fleet:
    """A shard and its senders."""

    shard: CameraShardProcess
    sender: Sender

    def round(self, seconds: float, warm_up: float = WARM_UP) -> Round:
        """Send and measure for `seconds`, after a warm-up."""
        self.sender.command("start")
        time.sleep(warm_up)
        earlier, before = self.sender.command("ask"), self.shard.counters()
        began, spent = self.shard.used()  # the cost of asking is not the fleet's
        time.sleep(seconds)
        sent, after = self.sender.command("ask"), self.shard.counters()
        self.sender.command("stop")
        elapsed = after.at - before.at
        dropped = sum(after.total(name) - before.total(name) for name in (SHED, REJECTED))
        return Round(
            rate=(after.total(ANALYSED) - before.total(ANALYSED)) / elapsed,
            cores=(after.cpu - spent) / (after.at - began),
            sender=(sent["cpu"] - earlier["cpu"]) / elapsed,
            dropped=int(dropped) + sent["unsent"] - earlier["unsent"],
            buckets=buckets_between(before, after),
        )


@contextlib.contextmanager
def fleet(
    kind: str,
    films: Films,
    cameras: int = CAMERAS,
    rate: float = RATE,
    fps_min: float = 5.0,
    tls: Path | None = None,
    hub: str = "",
    calms: bool = False,
) -> Iterator[Fleet]:
    """Run `cameras` that send `rate` frames/s each by `kind`, and a shard that analyses all of them.

    `tls` is the folder of the certificate for cameras that push, `hub` the address of a real hub for the shard.
    `calms`: of cameras that push, decode two pictures a second while nothing happens.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        films.save(folder / "films")
        simulated = f"{HOST}:{free_ports(1)[0]}"
        hub = hub or simulated
        options = ["--hub", simulated, "--films", str(folder / "films"), "--cameras", str(cameras), "--rate", str(rate)]
        if kind == "push":
            wanted = assignment(["push:"] * cameras, fps_min=fps_min, target=max(RATE, rate))
            wanted.camera.key_frames_while_calm = calms
            certificate_options = ["--tls", str(tls)] if tls else []
            shard = stack.enter_context(CameraShardProcess(wanted, folder, hub, *certificate_options))
            shard.wait_ready(cameras)
            authority_options = ["--ca", str(tls / "ca.crt")] if tls else []
            sender = stack.enter_context(Sender(kind, *options, "--target", shard.grpc, *authority_options))
        elif kind == "rtp":
            ports = list(map(str, free_ports(cameras, kind=socket.SOCK_DGRAM)))
            sources = [f"rtp://{HOST}:{port}" for port in ports]
            shard = stack.enter_context(CameraShardProcess(assignment(sources, target=rate), folder, hub))
            shard.wait_ready(cameras)
            sender = stack.enter_context(Sender(kind, *options, "--ports", *ports))
        else:
            sender = stack.enter_context(Sender(kind, *options))
            sources = [f"http://{HOST}:{sender.introduction['port']}/{number}" for number in range(cameras)]
            shard = stack.enter_context(CameraShardProcess(assignment(sources), folder, hub))
            shard.wait_ready(cameras)
        yield Fleet(shard, sender)


def decoding(films: Films, seconds: float) -> float:
    """Measure CPU seconds per frame of decoding alone, at the shard's reduced size."""
    frames = [films.frame(camera, number) for camera in range(10) for number in range(10)]
    began, started, done = time.thread_time(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        cv2.imdecode(np.frombuffer(frames[done % len(frames)], np.uint8), cv2.IMREAD_REDUCED_COLOR_4)
        done += 1
    return (time.thread_time() - began) / done


def analysing(films: Films, seconds: float) -> float:
    """Measure CPU seconds per frame of decoding and analysing in one thread, without reception and hand-over.

    One camera in five shows a person, as in a fleet; none burns.
    """
    wanted, network, clock_ns = assignment(["push:"] * 10), load_network(), SECOND

    def turn(camera: CameraDevice) -> None:
        frame = camera.next_frame()
        assert isinstance(frame, Picture)
        order = camera.decode_order(frame)
        assert order
        decoded = decode_frame(order, frame.data, frame.header.width, frame.header.height)
        camera.finish_turn(Turn(frame, 0.0, 0.0, result=add_logits(decoded, order, network)))

    links = ShardLinks(submit=turn, report=lambda *_: None, clock=lambda: clock_ns)
    cameras = [CameraDevice(device, wanted.camera, links) for device in wanted.devices]
    began, started, number = 0.0, math.inf, 0
    while time.perf_counter() - started < seconds:
        if number == int(RATE):  # by then the detectors know their rooms
            began, started = time.thread_time(), time.perf_counter()
        clock_ns += int(SECOND / RATE)
        for place, camera in enumerate(cameras, 1):
            camera.offer_frame(films.frame(place, number))
        number += 1
    return (time.thread_time() - began) / len(cameras) / (number - int(RATE))


def _fleet_result(kind: str, scale: Scale) -> Result:
    films = draw()
    rounds, baselines, analysed = [], [], []
    with fleet(kind, films) as running:
        for _ in range(scale.rounds):
            baselines.append(decoding(films, 0.1 * scale.seconds))
            analysed.append(analysing(films, 0.1 * scale.seconds))
            rounds.append(running.round(scale.seconds))
    rate, cores, baseline = (
        median([measured.rate for measured in rounds]),
        median([measured.cores for measured in rounds]),
        0.0,
    )
    baseline = median(baselines) * CAMERAS * RATE
    dropped = sum(measured.dropped for measured in rounds)
    p99 = (
        quantile({bound: sum(measured.buckets[bound] for measured in rounds) for bound in rounds[0].buckets}, 0.99)
        * 1e3
    )
    sender = median([measured.sender for measured in rounds])
    unit = (
        f"cores at {rate:,.0f} frames/s, {dropped} dropped, p99 {p99:.1f} ms; senders {sender:.2f} cores; decoding and"
        f" analysing in one thread take {median(analysed) * CAMERAS * RATE:.2f}"
    )
    ok = rate >= 0.99 * CAMERAS * RATE and not dropped and p99 <= 20 and cores <= 1.5
    reach = "≤ 1.5 cores, 1,500/s, 0 dropped, p99 ≤ 20 ms; baseline: decoding alone"
    return Result(f"fleet-{kind}", cores, unit, baseline, cores / baseline, reach, ok)


def fleet_push(scale: Scale) -> Result:
    """Measure 100 cameras that push over gRPC, each on a separate connection."""
    return _fleet_result("push", scale)


def fleet_push_calm(scale: Scale) -> Result:
    """Measure 100 cameras that push, of which 95 are calm. Baseline: decoding all pictures."""
    films = draw_calm(walking_every=CALM_WALKING_EVERY)
    rounds, baselines = [], []
    with fleet("push", films, fps_min=1.0, calms=True) as running:
        for _ in range(scale.rounds):
            baselines.append(decoding(films, 0.1 * scale.seconds))
            rounds.append(running.round(scale.seconds, warm_up=CALM_SECONDS))
    cores, baseline = median([measured.cores for measured in rounds]), median(baselines) * CAMERAS * RATE
    unit = (
        f"cores, {median([measured.rate for measured in rounds]):,.0f} of {CAMERAS * RATE:,.0f} frames/s analysed;"
        f" senders {median([measured.sender for measured in rounds]):.2f} cores"
    )
    return Result(
        "fleet-push-calm", cores, unit, baseline, cores / baseline, "≤ 0.3 of decoding all", cores <= 0.3 * baseline
    )


def fleet_push_tls(scale: Scale) -> Result:
    """Measure 100 cameras that push over TLS. Baseline: the same without TLS, in alternating rounds."""
    films, secured, plain = draw(), [], []
    with certificate() as folder, fleet("push", films, tls=folder) as over_tls, fleet("push", films) as without:
        for _ in range(scale.rounds):
            plain.append(without.round(scale.seconds))
            secured.append(over_tls.round(scale.seconds))
    rate, cores = median([measured.rate for measured in secured]), median([measured.cores for measured in secured])
    baseline, dropped = median([measured.cores for measured in plain]), sum(measured.dropped for measured in secured)
    p99 = (
        quantile({bound: sum(measured.buckets[bound] for measured in secured) for bound in secured[0].buckets}, 0.99)
        * 1e3
    )
    unit = f"cores at {rate:,.0f} frames/s, {dropped} dropped, p99 {p99:.1f} ms"
    ok = rate >= 0.99 * CAMERAS * RATE and not dropped and cores <= TLS_MOST * baseline
    reach = f"≤ {TLS_MOST} of the same without TLS, 1,500/s, 0 dropped"
    return Result("fleet-push-tls", cores, unit, baseline, cores / baseline, reach, ok)


def fleet_rtp(scale: Scale) -> Result:
    """Measure 100 cameras that send RTP/JPEG, each to a separate port."""
    return _fleet_result("rtp", scale)


def fleet_mjpeg(scale: Scale) -> Result:
    """Measure 100 cameras that serve MJPEG over HTTP."""
    return _fleet_result("mjpeg", scale)


def fleet_memory(scale: Scale) -> Result:
    """Measure the memory of a shard that 100 cameras push to. Baseline: a shard without cameras."""
    films = draw()
    with fleet("push", films, 0) as idle:
        baseline = resident_mb(idle.shard.pid)
    with fleet("push", films) as running:
        for _ in range(scale.rounds):
            running.round(scale.seconds)
        value = resident_mb(running.shard.pid)
    return Result("fleet-memory", value, "MB", baseline, value / baseline, "≤ 200 MB", value <= 200)


def _gstreamer(port: str, *rest: str) -> list[str]:
    caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=JPEG,payload=26"
    source = ["udpsrc", f"port={port}", "address=127.0.0.1", "buffer-size=4194304", f"caps={caps}"]
    return ["gst-launch-1.0", "-q", *source, "!", "rtpjpegdepay", "!", *rest, "fakesink"]


class Costly(Protocol):
    """A process whose cost is measured."""

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""


@dataclass
class _Cores:
    """The cores used by two receivers of the same stream, by round."""

    ours: list[float]
    theirs: list[float]
    sent: int  # pictures sent to ours


def _compared(
    ours: Callable[[str, str], Costly], theirs: list[str], films: Films, scale: Scale, warm_up: float
) -> _Cores:
    """Send one 1080p30 camera to both receivers in turn; `theirs` is GStreamer's pipeline behind the depayloader.

    `ours` gets the port that its camera sends to, and the hub's address. The first `warm_up` seconds of each turn are
    not counted: detectors start again after a pause.
    """
    used = _Cores([], [], 0)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        films.save(Path(name) / "films")
        our_port, their_port = map(str, free_ports(2, kind=socket.SOCK_DGRAM))
        hubs = dict(zip((our_port, their_port), (f"{HOST}:{port}" for port in free_ports(2)), strict=True))
        receivers: dict[str, tuple[Costly, list[float]]] = {our_port: (ours(our_port, hubs[our_port]), used.ours)}
        if shutil.which("gst-launch-1.0"):
            peer = Measured(*_gstreamer(their_port, *theirs))
            stack.callback(peer.stop)
            receivers[their_port] = (peer, used.theirs)
        time.sleep(1.5)
        senders = {}
        for port in receivers:
            options = ["--films", f"{name}/films", "--cameras", "1", "--rate", "30", "--ports", port]
            senders[port] = stack.enter_context(Sender("rtp", "--hub", hubs[port], *options))
        for _ in range(scale.rounds):
            for port, (receiver, cores) in receivers.items():
                senders[port].command("start")
                time.sleep(warm_up)
                cpu, at = receiver.cpu, time.perf_counter()
                time.sleep(scale.seconds)
                cores.append((receiver.cpu - cpu) / (time.perf_counter() - at))
                senders[port].command("stop")
        used.sent = senders[our_port].command("ask")["sent"]
        time.sleep(0.2)
    return used


def _hd(*options: int) -> Films:
    return enlarge(draw(seconds=1.0), 1920, 1080, options=options)


def rtp_receive(scale: Scale) -> Result:
    """Receive and assemble one 1080p30 RTP/JPEG camera. Baseline: GStreamer's receiver."""
    receivers: list[Measured] = []

    def ours(port: str, _: str) -> Measured:
        receivers.append(Measured(sys.executable, "-m", "embereye_bench.cameras.receiver", port))
        return receivers[0]

    films = _hd()
    both = _compared(ours, [], films, scale, warm_up=0.3)
    memory = receivers[0].memory
    counted = json.loads(receivers[0].stop())
    lost = both.sent - int(counted["pictures"] - counted["damaged"])
    grown = memory - counted["memory_mb"]
    value, baseline = median(both.ours), median(both.theirs)
    ratio = value / baseline if baseline else 0.0
    unit = (
        f"cores, {lost} of {both.sent} frames lost, memory {grown:+.1f} MB to {memory:.0f} MB, peak"
        f" {counted['peak_mb']:.0f} MB; {counted['blocks']:+.0f} allocations retained in all, one picture of"
        f" {len(films.films[0][0]) / 1e3:.0f} KB takes {_allocated(films) / 1e3:.0f} KB at most" + _unmeasured(baseline)
    )
    return Result("rtp-1080p30-receive", value, unit, baseline, ratio, "≤ 2 of GStreamer, 0 lost, memory flat",
                  0 < ratio <= 2 and not lost and grown < 4)  # fmt: skip


def _allocated(films: Films) -> float:
    """The most bytes allocated while a picture is received."""
    sender, receiver = Packetizer(1), Depacketizer()
    packets = [sender.packetize(read_scan(frame), 3000 * number) for number, frame in enumerate(films.films[0])]
    for number, picture in enumerate(packets):
        if number == len(packets) - 1:
            tracemalloc.start()
        for packet in picture:
            receiver.feed(memoryview(packet), number)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _unmeasured(baseline: float) -> str:
    return "" if baseline else "; baseline not measured: gst-launch-1.0 is missing"


def rtp_analyse(scale: Scale) -> Result:
    """Decode and analyse one 1080p30 RTP/JPEG camera. Baseline: GStreamer, which only decodes it."""
    films = _hd()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        shards: list[CameraShardProcess] = []

        def ours(port: str, hub: str) -> CameraShardProcess:
            wanted = assignment([f"rtp://{HOST}:{port}"], target=30.0)
            shards.append(stack.enter_context(CameraShardProcess(wanted, Path(name), hub)))
            shards[0].wait_ready(1)
            return shards[0]

        both = _compared(ours, ["jpegdec", "!"], films, scale, warm_up=WARM_UP)
        analysed = int(shards[0].counters().total(ANALYSED))
    value, baseline = median(both.ours), median(both.theirs)
    ratio = value / baseline if baseline else 0.0
    unit = f"cores, {analysed} of {both.sent} frames analysed" + _unmeasured(baseline)
    ok = 0 < ratio <= 1 and analysed >= 0.99 * both.sent
    return Result("rtp-1080p30-analyse", value, unit, baseline, ratio, "≤ 1 of GStreamer that decodes", ok)


@dataclass(frozen=True)
class _Lossy:
    """The pictures with restart markers that arrived."""

    usable: float  # pictures, in fractions by pixels
    whole: int  # pictures without a loss
    count: int  # pictures
    saved: float  # bytes per picture that would be lost if damaged pictures were dropped


def _lossy(count: int) -> _Lossy:
    """Send `count` pictures of 1080p with a restart marker in every row, and lose a share LOSS of the packets."""
    films = _hd(cv2.IMWRITE_JPEG_RST_INTERVAL, 1920 // 16)
    scans = [read_scan(frame) for frame in films.films[0]]
    dice, sender, receiver = random.Random(7), Packetizer(1), Depacketizer()
    usable, whole, saved = 0.0, 0, 0.0
    for number in range(count):
        now, intact = int(number * SECOND / 30), True
        pictures: list[JpegFrame] = []
        for packet in sender.packetize(scans[number % len(scans)], number * 3000):
            if dice.random() < LOSS:
                intact = False
                continue
            pictures += receiver.feed(memoryview(packet), now)
        pictures += receiver.poll(now + SECOND) if receiver.has_pending else []
        whole += intact
        received = sum(1.0 - sum(w * h for _, _, w, h in picture.lost) for picture in pictures if picture.usable)
        usable += received
        saved += 0.0 if intact else received * len(scans[number % len(scans)].data)
    return _Lossy(usable, whole, count, saved / count)


def rtp_loss(scale: Scale) -> Result:
    """Measure the usable pixels at 1 % packet loss, with restart markers. Baseline: damaged pictures are dropped."""
    outcome = _lossy(60 * scale.rounds)
    value, baseline = 100 * outcome.usable / outcome.count, 100 * outcome.whole / outcome.count
    return Result("rtp-loss-1pct", value, "% of pixels", baseline, value / max(baseline, 0.1), "≥ 95", value >= 95)


def rtp_send(scale: Scale) -> Result:
    """Measure our RTP/JPEG sender of 1080p30 to an unread port. Baseline: sending packets that were made beforehand."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        _hd().save(Path(name) / "films")
        ports = []
        for _ in range(2):
            unread = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            unread.bind((HOST, 0))
            ports.append(str(unread.getsockname()[1]))
        sender = Measured(sys.executable, "-m", "embereye_bench.cameras.rtp_sender", f"{name}/films", "30", ports[0])
        options = ["--films", f"{name}/films", "--cameras", "1", "--rate", "30", "--ports", ports[1]]
        bare = stack.enter_context(Sender("rtp", "--hub", f"{HOST}:{free_ports(1)[0]}", *options))
        time.sleep(2 * WARM_UP)
        for _ in range(scale.rounds):
            cpu, at = sender.cpu, time.perf_counter()
            time.sleep(scale.seconds)
            ours.append(100 * (sender.cpu - cpu) / (time.perf_counter() - at))
            before, at = bare.command("start"), time.perf_counter()
            time.sleep(scale.seconds)
            theirs.append(100 * (bare.command("stop")["cpu"] - before["cpu"]) / (time.perf_counter() - at))
        sums = json.loads(sender.stop())
    value, baseline = median(ours), median(theirs)
    unit = (
        f"% of a core, {sums['unsent']} of {sums['sent']} pictures dropped, peak {sums['peak_mb']:.0f} MB; at 1 % of"
        f" packets lost restart intervals save {_lossy(60).saved / 1e3:.0f} KB a picture"
    )
    return Result("rtp-send", value, unit, baseline, value / baseline, "≤ 2 % of a core, 0 dropped",
                  value <= 2 and not sums["unsent"])  # fmt: skip


def overload(scale: Scale) -> Result:
    """Measure 100 cameras whose frames cost ten times the available cores. Baseline: the frames/s they can decode."""
    films = enlarge(draw(seconds=1.0), 1280, 960, 6, options=(cv2.IMWRITE_JPEG_PROGRESSIVE, 1))
    cost = decoding(films, 0.5)
    rate = OVERLOAD * CORES / (CAMERAS * cost)
    with fleet("push", films, rate=rate, fps_min=1.0) as running:
        running.round(3 * WARM_UP)
        shard, at = running.shard, time.perf_counter()
        before, counters = shard.analysed(), shard.counters()
        sender = running.round(max(4.0, scale.seconds)).sender
        elapsed, after = time.perf_counter() - at, shard.counters()
        rates = {name: (count - before.get(name, 0)) / elapsed for name, count in shard.analysed().items()}
        memory = resident_mb(shard.pid)
    under = CAMERAS - sum(rate >= OVERLOAD_SLACK for rate in rates.values())
    age = quantile(buckets_between(counters, after, AGE), 0.99)
    spent = (after.total(COST) - counters.total(COST)) / max(1.0, after.total(ANALYSED) - counters.total(ANALYSED))
    unit = (
        f"cameras under fps.min 1/s; slowest {min(rates.values()):.2f}/s, {sum(rates.values()):.0f} frames/s, p99 from"
        f" capture to analysed {age:.2f} s, {memory:.0f} MB; of {CORES} cores {OVERLOAD * CORES} are needed,"
        f" {CAMERAS * spent:.2f} at fps.min, {sender:.2f} for the sender"
    )
    return Result("overload-10x", under, unit, CORES / cost, under * cost / CORES, "0, age p99 ≤ 2 s",
                  under == 0 and age <= DEADLINE_NS / SECOND)  # fmt: skip


@dataclass(frozen=True)
class _Disturbed:
    """A shard's results while a neighbour shared its machine, and afterwards."""

    analysed: float  # frames
    possible: float  # frames that its processor time and all idle time would have analysed undisturbed
    delays: dict[float, float]  # frames by upper bound of their delay in seconds, cumulative
    back: float  # seconds until all rates had recovered


def _idle_seconds() -> float:
    """Idle processor seconds since the machine was started."""
    idle, waiting = Path("/proc/stat").read_text().split(maxsplit=6)[4:6]
    return (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")


def _rates(counters: Counters) -> float:
    """Frames/s allotted to all cameras together."""
    return sum(rate for key, rate in counters.values.items() if key.startswith(RATE_NAME) and 'bound="in_force"' in key)


def _disturb(running: Fleet, cost: float, niceness: int, seconds: float) -> _Disturbed:
    """Run a neighbour that takes half a core for `seconds`; `cost` is CPU seconds per frame without it."""
    command = [sys.executable, "-m", "embereye_bench.cameras.neighbour", str(seconds), str(niceness)]
    before, idle = running.shard.counters(), _idle_seconds()
    subprocess.run(command, check=True)
    after, idle = running.shard.counters(), _idle_seconds() - idle
    offered = CAMERAS * RATE * (after.at - before.at)
    disturbed = _Disturbed(
        analysed=after.total(ANALYSED) - before.total(ANALYSED),
        possible=min(offered, (after.cpu - before.cpu + idle) / cost),
        delays=buckets_between(before, after),
        back=0.0,
    )
    now = after
    while _rates(now) < 0.99 * CAMERAS * RATE and now.at - after.at < BACK_MOST:
        time.sleep(0.2)
        now = running.shard.counters()
    return replace(disturbed, back=now.at - after.at)


def neighbour(scale: Scale) -> Result:
    """Measure 100 pushed cameras while a process sometimes takes half a core. Baseline: what their CPU time allows."""
    films, busy_seconds = draw(), min(5.0, scale.seconds)
    by_niceness: dict[int, list[_Disturbed]] = {0: [], 19: []}
    costs, baselines = [], []
    with fleet("push", films) as running:
        running.sender.command("start")
        time.sleep(2 * WARM_UP)
        for number in range(scale.rounds):
            baselines.append(decoding(films, 0.1 * scale.seconds))
            before = running.shard.counters()
            time.sleep(scale.seconds - 0.1 * scale.seconds)
            after = running.shard.counters()
            costs.append((after.cpu - before.cpu) / max(1.0, after.total(ANALYSED) - before.total(ANALYSED)))
            niceness = list(by_niceness)[number % len(by_niceness)]
            by_niceness[niceness].append(_disturb(running, costs[-1], niceness, busy_seconds))
        running.sender.command("stop")
    shares = {
        niceness: 100 * sum(shown.analysed for shown in rounds) / max(1.0, sum(shown.possible for shown in rounds))
        for niceness, rounds in by_niceness.items()
    }
    every = [shown for rounds in by_niceness.values() for shown in rounds]
    back = max(shown.back for shown in every)
    rate = sum(shown.analysed for shown in every) / len(every) / busy_seconds
    p99 = quantile({bound: sum(shown.delays[bound] for shown in every) for bound in every[0].delays}, 0.99) * 1e3
    alone, cost = median(baselines), median(costs)
    unit = (
        f"% of what its CPU time allows ({', '.join(f'nice {nice}: {share:.0f}' for nice, share in shares.items())}),"
        f" {rate:,.0f} frames/s, p99 {p99:.0f} ms, rates back within {back:.1f} s; undisturbed {1e3 * cost:.2f} ms of"
        f" processor a frame, {cost / alone:.2f} of decoding alone"
    )
    value = min(shares.values())
    return Result("neighbour", value, unit, 100.0, value / 100, "≥ 90 %, rates back within 3 s",
                  value >= 90 and back <= BACK_MOST)  # fmt: skip


BENCHMARKS: dict[str, report.Benchmark] = {
    "fleet-push": fleet_push,
    "fleet-push-calm": fleet_push_calm,
    "fleet-push-tls": fleet_push_tls,
    "fleet-rtp": fleet_rtp,
    "fleet-mjpeg": fleet_mjpeg,
    "fleet-memory": fleet_memory,
    "rtp-send": rtp_send,
    "rtp-1080p30-receive": rtp_receive,
    "rtp-1080p30-analyse": rtp_analyse,
    "rtp-loss-1pct": rtp_loss,
    "overload-10x": overload,
    "neighbour": neighbour,
}
