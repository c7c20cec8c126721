"""Measure H.264 and H.265 over RTSP: cores, memory, overload and losses. Baseline: FFmpeg's decoding alone.

`served` runs simulated cameras in one process, `video_fleet` adds a shard that pulls them all. Rounds are measured as
in `jpeg.py`. The baseline is `ffmpeg -threads 1 … -f null -` of the same coded pictures, between the rounds. One
benchmark compares with Frigate's recipe: one ffmpeg per camera, which writes scaled raw frames into a pipe. Without
ffmpeg, results say so.
"""

import contextlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from embereye.process.addresses import free_ports
from embereye.process.telemetry.usage import resident_mb
from embereye.sim.cameras.video import encode_loop
from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat
from embereye.wire.video.nal import START_CODE
from embereye_bench import report
from embereye_bench.cameras.jpeg import (
    AGE,
    ANALYSED,
    CALM_SECONDS,
    CALM_WALKING_EVERY,
    CORES,
    REJECTED,
    WARM_UP,
    Fleet,
    assignment,
    buckets_between,
    quantile,
)
from embereye_bench.films import Films, draw, draw_calm, enlarge
from embereye_bench.process import CameraShardProcess, Sender
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST, end

CAMERAS, RATE = 100, 10.0  # frames/s each
DEFAULT_TARGET = 15.0  # frames/s of a fleet; above the sent rate, so that jitter sheds no frames
SMALL = (640, 360)
HD, HD_RATE = (1920, 1080), 15.0
DECODED_SECONDS = 40  # of film that FFmpeg decodes in one run
FRIGATE_CAMERAS = 12  # ffmpeg processes; their cost is per camera
OVERLOAD = 4  # times the machine's decoding capacity
MEMORY_CAMERAS = {SMALL: 40, HD: 8}
FORMATS: dict[str, NalFormat] = {"H264": H264Format(), "H265": H265Format()}


@cache
def small_films() -> Films:
    """Rooms of 640x360 pixels."""
    return draw(*SMALL)


@cache
def hd_films(width: int = HD[0], height: int = HD[1]) -> Films:
    """A room in 1080p with a person walking through it."""
    return enlarge(draw(seconds=2.0), width, height, 15)


@cache
def coded_file(films: Films, encoding: str, rate: float, film: int, folder: Path) -> Path:
    """A file of one of the `films`, repeated for DECODED_SECONDS, coded like the simulated cameras'."""
    path = folder / f"{id(films)}-{film}-{rate:g}.{encoding.lower()}"
    pictures = encode_loop(films.films[film], encoding, rate)
    data = b"".join(START_CODE + part.data for picture in pictures for part in _nals(encoding, picture.payloads))
    path.write_bytes(data * max(1, round(DECODED_SECONDS * rate / len(pictures))))
    return path


def _nals(encoding: str, payloads: Sequence[bytes]) -> Iterator["_Nal"]:
    parts: list[bytes] = []
    for payload in payloads:
        for part in FORMATS[encoding].parts(memoryview(payload)):
            parts = [part.data] if part.start else [*parts, part.data]
            if part.end:
                yield _Nal(b"".join(parts))


@dataclass(frozen=True)
class _Nal:
    data: bytes


def ffmpeg_seconds(path: Path, frames: int) -> float:
    """CPU seconds that FFmpeg takes to decode each of the `frames` in `path`; 0 if ffmpeg is missing."""
    if shutil.which("ffmpeg") is None:
        return 0.0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["ffmpeg", "-v", "error", "-threads", "1", "-i", str(path), "-an", "-f", "null", "-"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / frames


@dataclass
class Served:
    """Simulated cameras over RTSP, and the cost of decoding the same pictures with FFmpeg."""

    sender: Sender
    films: Films
    encoding: str
    cameras: int
    rate: float
    folder: Path

    def urls(self, query: str = "") -> list[str]:
        """The addresses of all cameras."""
        port = self.sender.introduction["port"]
        return [f"rtsp://{HOST}:{port}/{number}{query}" for number in range(self.cameras)]

    def decoding(self) -> float:
        """Cores that FFmpeg needs to decode all cameras; 0 if ffmpeg is missing."""
        shown = [self.films.film_of(camera) for camera in range(self.cameras)]
        costs = {}
        for film in set(shown):
            path = coded_file(self.films, self.encoding, self.rate, film, self.folder)
            length = len(self.films.films[film])
            costs[film] = ffmpeg_seconds(path, max(1, round(DECODED_SECONDS * self.rate / length)) * length)
        return self.rate * sum(costs[film] for film in shown)


@contextlib.contextmanager
def served(
    films: Films, cameras: int, rate: float, encoding: str = "H264", loss: float = 0.0
) -> Iterator[tuple[Served, str]]:
    """Run simulated `cameras` that serve `films`; yield them, and the address of the hub in their process."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        films.save(folder / "films")
        hub = f"{HOST}:{free_ports(1)[0]}"
        options = ["--hub", hub, "--films", str(folder / "films"), "--cameras", str(cameras), "--rate", str(rate)]
        options += ["--codec", encoding, "--loss", str(loss)]
        sender = stack.enter_context(Sender("rtsp", *options))
        yield Served(sender, films, encoding, cameras, rate, folder), hub


@contextlib.contextmanager
def video_fleet(
    films: Films, cameras: int, rate: float, encoding: str = "H264", *, fps_min: float = 2.0, query: str = "",
    loss: float = 0.0, calms: bool = False,
) -> Iterator[tuple[Served, Fleet]]:  # fmt: skip
    """Run simulated cameras, and a shard that analyses all of their pictures; `calms`: key frames while calm."""
    with served(films, cameras, rate, encoding, loss) as (sending, hub), contextlib.ExitStack() as stack:
        wanted = assignment(sending.urls(query), fps_min=fps_min, target=max(DEFAULT_TARGET, rate))
        wanted.camera.key_frames_while_calm = calms
        shard = stack.enter_context(CameraShardProcess(wanted, sending.folder, hub))
        shard.wait_ready(cameras)
        _wait_streaming(shard, cameras)
        yield sending, Fleet(shard, sending.sender)


def _wait_streaming(shard: CameraShardProcess, cameras: int, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and sum(count > 0 for count in shard.analysed().values()) < cameras:
        time.sleep(0.1)
    time.sleep(WARM_UP)


def _note(baseline: float) -> str:
    return "" if baseline else "; baseline not measured: ffmpeg is missing"


def h264_fleet(scale: Scale) -> Result:
    """Measure 100 cameras of 640x360 pulled by RTSP. Baseline: FFmpeg, which only decodes the same pictures."""
    rounds, baselines = [], []
    with video_fleet(small_films(), CAMERAS, RATE) as (sending, running):
        for _ in range(scale.rounds):
            baselines.append(sending.decoding())
            rounds.append(running.round(scale.seconds))
    cores, baseline = median([measured.cores for measured in rounds]), median(baselines)
    rate = median([measured.rate for measured in rounds])
    dropped = sum(measured.dropped for measured in rounds)
    p99 = (
        quantile({bound: sum(measured.buckets[bound] for measured in rounds) for bound in rounds[0].buckets}, 0.99)
        * 1e3
    )
    sender = median([measured.sender for measured in rounds])
    ratio = cores / baseline if baseline else 0.0
    unit = f"cores at {rate:,.0f} frames/s, {dropped} dropped, p99 {p99:.1f} ms; senders {sender:.2f} cores"
    ok = rate >= 0.99 * CAMERAS * RATE and not dropped and p99 <= 100 and 0 < ratio <= 1.3
    reach = "≤ 1.3 of FFmpeg's decoding alone, 0 dropped, p99 ≤ 100 ms"
    return Result("h264-fleet", cores, unit + _note(baseline), baseline, ratio, reach, ok)


def _calm_result(name: str, encoding: str, scale: Scale) -> Result:
    rounds, baselines, calm = [], [], []
    films = draw_calm(*SMALL, walking_every=CALM_WALKING_EVERY)
    with video_fleet(films, CAMERAS, RATE, encoding, fps_min=1.0, calms=True) as (sending, running):
        for _ in range(scale.rounds):
            baselines.append(sending.decoding())
            time.sleep(CALM_SECONDS)
            calm.append(running.shard.counters().total("embereye_camera_calm"))
            rounds.append(running.round(scale.seconds))
    cores, baseline = median([measured.cores for measured in rounds]), median(baselines)
    rate, cameras = median([measured.rate for measured in rounds]), median(calm)
    ratio = cores / baseline if baseline else 0.0
    unit = (
        f"cores, {cameras:.0f} of {CAMERAS} cameras calm, {rate:,.0f} of {CAMERAS * RATE:,.0f} frames/s analysed;"
        f" senders {median([measured.sender for measured in rounds]):.2f} cores"
    )
    ok = 0 < ratio <= 0.35 and cameras >= 0.9 * CAMERAS
    reach = "≤ 0.35 of FFmpeg's decoding of all pictures"
    return Result(name, cores, unit + _note(baseline), baseline, ratio, reach, ok)


def h264_calm(scale: Scale) -> Result:
    """Measure 100 cameras of which 95 are calm, with key frames only while calm. Baseline: FFmpeg decodes all."""
    return _calm_result("h264-fleet-calm", "H264", scale)


def h265_calm(scale: Scale) -> Result:
    """Measure the same with H.265."""
    return _calm_result("h265-fleet-calm", "H265", scale)


def h264_frigate(scale: Scale) -> Result:
    """Measure the cost per camera of 100 cameras. Baseline: Frigate's recipe with fewer cameras."""
    theirs, theirs_mb = [0.0], 0.0
    with video_fleet(small_films(), CAMERAS, RATE) as (_, running):
        ours = [running.round(scale.seconds) for _ in range(scale.rounds)]
        ours_mb = resident_mb(running.shard.pid) / CAMERAS
    if shutil.which("ffmpeg"):
        with served(small_films(), FRIGATE_CAMERAS, RATE) as (sending, _), contextlib.ExitStack() as stack:
            recipe = _Recipe(sending.urls(), stack)
            theirs = [recipe.cores(scale.seconds) for _ in range(scale.rounds)]
            theirs_mb = recipe.memory_mb / FRIGATE_CAMERAS
    value, baseline = median([measured.cores for measured in ours]) / CAMERAS, median(theirs) / FRIGATE_CAMERAS
    ratio, memory = (value / baseline, ours_mb / theirs_mb) if baseline else (0.0, 0.0)
    rate = median([measured.rate for measured in ours])
    unit = (
        f"cores a camera at {rate:,.0f} frames/s of all, {ours_mb:.1f} MB a camera with all of the shard; the recipe,"
        f" which analyses its frames with our detector in one process, {theirs_mb:.1f} MB"
    )
    ok = 0 < ratio <= 0.7 and memory <= 0.3 and rate >= 0.99 * CAMERAS * RATE
    reach = "≤ 0.7 of its cores, ≤ 0.3 of its memory, no frame skipped"
    return Result("h264-frigate", value, unit + _note(baseline), baseline, ratio, reach, ok)


class _Recipe:
    """Frigate's way of reading cameras: an ffmpeg for each, and one process that analyses frames from their pipes."""

    def __init__(self, urls: Sequence[str], stack: contextlib.ExitStack) -> None:
        self._pids: list[int] = []
        pipes = []
        for url in urls:
            command = ["ffmpeg", "-v", "error", "-threads", "1", "-rtsp_transport", "tcp", "-i", url,
                       "-r", f"{RATE:g}", "-s", "160x90", "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:"]  # fmt: skip
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert process.stdout
            pipes.append(process.stdout)
            self._register(process, stack)
        descriptors = [pipe.fileno() for pipe in pipes]
        command = [sys.executable, "-m", "embereye_bench.cameras.frame_reader", "160", "90", *map(str, descriptors)]
        self._register(subprocess.Popen(command, pass_fds=descriptors), stack)
        for pipe in pipes:
            pipe.close()
        time.sleep(5 * WARM_UP)

    def _register(self, process: "subprocess.Popen[bytes]", stack: contextlib.ExitStack) -> None:
        stack.callback(process.wait)
        stack.callback(process.kill)
        self._pids.append(process.pid)

    def cores(self, seconds: float) -> float:
        """Measure the cores that all processes use."""
        before, at = sum(map(_cpu, self._pids)), time.perf_counter()
        time.sleep(seconds)
        return (sum(map(_cpu, self._pids)) - before) / (time.perf_counter() - at)

    @property
    def memory_mb(self) -> float:
        """Memory of all processes together, in which shared pages count once."""
        total = 0
        for pid in self._pids:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(rollup.partition("\nPss:")[2].split()[0])
        return total / 1024


def _cpu(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class _Paced:
    """A process that only decodes one camera's pictures at their rate, and reduces those to be analysed."""

    def __init__(self, path: Path, encoding: str, rate: float) -> None:
        command = [sys.executable, "-m", "embereye_bench.cameras.paced_decoder", str(path), encoding, str(rate)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._rate = rate

    def totals(self) -> tuple[int, float]:
        """Pictures and CPU seconds so far."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        pictures, seconds = self._process.stdout.readline().split()
        return int(pictures), float(seconds)

    def cores(self, seconds: float) -> float:
        """Measure the cores that it needs for its rate."""
        pictures, spent = self.totals()
        time.sleep(seconds)
        after, now = self.totals()
        return self._rate * (now - spent) / max(1, after - pictures)

    def close(self) -> None:
        """End the process."""
        end(self._process)


def _hd_result(name: str, encoding: str, scale: Scale) -> Result:
    cores, baselines, floors, rates = [], [], [], []
    with video_fleet(hd_films(), 1, HD_RATE, encoding) as (sending, running):
        for _ in range(scale.rounds):
            baselines.append(sending.decoding())
            measured = running.round(scale.seconds)
            cores.append(measured.cores)
            rates.append(measured.rate)
        path = coded_file(hd_films(), encoding, HD_RATE, hd_films().film_of(0), sending.folder)
        with contextlib.closing(_Paced(path, encoding, HD_RATE)) as paced:
            paced.cores(WARM_UP)
            floors += [paced.cores(scale.seconds) for _ in range(scale.rounds)]
    value, baseline, floor = median(cores), median(baselines), median(floors)
    ratio = value / baseline if baseline else 0.0
    least = f" ({floor / baseline:.2f})" if baseline else ""
    unit = (
        f"cores at {median(rates):.1f} frames/s; only decoding them in pairs at their rate, and reducing every second,"
        f" takes {floor:.4f}{least}"
    )
    ok = 0 < ratio <= 1.15 and median(rates) >= 0.97 * HD_RATE
    return Result(name, value, unit + _note(baseline), baseline, ratio, "≤ 1.15 of FFmpeg's decoding alone", ok)


def h264_hd(scale: Scale) -> Result:
    """Measure one H.264 camera of 1080p at 15 frames/s. Baseline: FFmpeg, which only decodes it."""
    return _hd_result("h264-1080p", "H264", scale)


def h265_hd(scale: Scale) -> Result:
    """Measure one H.265 camera of 1080p at 15 frames/s. Baseline: FFmpeg, which only decodes it."""
    return _hd_result("h265-1080p", "H265", scale)


def h264_memory(scale: Scale) -> Result:
    """Measure the memory of each camera beyond the shard's, for 640x360 and 1080p."""
    by_size = {}
    for size, films, rate in ((SMALL, small_films(), RATE), (HD, hd_films(), 2.0)):
        many = MEMORY_CAMERAS[size]
        used = []
        for count in (1, many):
            with video_fleet(films, count, rate) as (_, running):
                time.sleep(max(3.0, scale.seconds))
                used.append(resident_mb(running.shard.pid))
        by_size[size] = (used[1] - used[0]) / (many - 1)
    small, large = by_size[SMALL], by_size[HD]
    unit = f"MB a camera of 640x360, {large:.1f} MB a camera of 1080p"
    return Result("h264-memory", small, unit, 8.0, small / 8.0, "≤ 8 and ≤ 25 MB", small <= 8 and large <= 25)


def h264_overload(scale: Scale) -> Result:
    """Overload the machine four times: every camera below its minimum rate must be reported with a reason."""
    films, fps_min, cameras = hd_films(1280, 720), 1.0, 60
    with tempfile.TemporaryDirectory() as name:
        cost = ffmpeg_seconds(coded_file(films, "H264", HD_RATE, 1, Path(name)), _frames(films)) or 0.004
    rate = OVERLOAD * CORES / (cameras * cost)
    with video_fleet(films, cameras, rate, fps_min=fps_min) as (_, running):
        shard = running.shard
        time.sleep(8.0)
        before, counters, at = shard.analysed(), shard.counters(), time.perf_counter()
        time.sleep(max(5.0, scale.seconds))
        elapsed, after = time.perf_counter() - at, shard.counters()
        named = shard.reasons()
        counts = {camera: count - before.get(camera, 0) for camera, count in shard.analysed().items()}
        rates = {camera: count / elapsed for camera, count in counts.items()}
    # The measured time starts and ends between two frames.
    unnamed = sum(count + 1 < fps_min * elapsed and not named.get(camera) for camera, count in counts.items())
    age = quantile(buckets_between(counters, after, AGE), 0.99)
    unit = (
        f"cameras under fps.min {fps_min:g}/s unnamed, {sum(map(bool, named.values()))} named; slowest"
        f" {min(rates.values()):.2f}/s, {sum(rates.values()):.0f} frames/s, p99 from capture to analysed {age:.2f} s;"
        f" {cameras} cameras of 720p at {rate:.0f} frames/s"
    )
    return Result("h264-overload", unnamed, unit, CORES / cost, 0.0, "0, age p99 ≤ 1 s", not unnamed and age <= 1.0)


def _frames(films: Films) -> int:
    length = len(films.films[1])
    return max(1, round(DECODED_SECONDS * HD_RATE / length)) * length


def h264_loss(scale: Scale) -> Result:
    """Measure ten cameras over UDP that lose 1 % of their packets and support key frame requests."""
    cameras = 10
    with video_fleet(small_films(), cameras, RATE, query="?transport=udp", loss=0.01) as (sending, running):
        counters, at = running.shard.counters(), time.perf_counter()
        earlier = sending.sender.command("ask")
        time.sleep(max(8.0, scale.rounds * scale.seconds))
        after = running.shard.counters()
        elapsed = time.perf_counter() - at
        alarms = sending.sender.command("ask")["alarms"] - earlier["alarms"]
    analysed = (after.total(ANALYSED) - counters.total(ANALYSED)) / (cameras * RATE * elapsed)
    damaged = after.total(REJECTED) - counters.total(REJECTED)
    unit = f"% of frames analysed, {damaged:.0f} damaged, {alarms} false alarms"
    ok = analysed >= 0.9 and not alarms
    return Result("h264-loss-1pct", 100 * analysed, unit, 100.0, analysed, "≥ 90, 0 false alarms", ok)


BENCHMARKS: dict[str, report.Benchmark] = {
    "h264-fleet": h264_fleet,
    "h264-fleet-calm": h264_calm,
    "h265-fleet-calm": h265_calm,
    "h264-frigate": h264_frigate,
    "h264-1080p": h264_hd,
    "h265-1080p": h265_hd,
    "h264-memory": h264_memory,
    "h264-overload": h264_overload,
    "h264-loss-1pct": h264_loss,
}
