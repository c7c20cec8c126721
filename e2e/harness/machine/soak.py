"""A soak: hours of steady load on one machine, with random fires and faults, and the usage of every process.

`SoakPlan.schedule` draws all fires and faults from a seed. `soak` works through them: before each it puts fires out and
resets alarms, so that the load does not grow. Meanwhile a task samples every process. At the end, the growth of memory,
descriptors and threads is estimated by role. Only warm processes under a load that they had before are judged, since
anything else grows without a leak.
"""

import asyncio
import csv
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from embereye.process.heap import COLLECT_ALL, COLLECT_SECONDS
from harness.machine.faults import FAULTS
from harness.machine.local_site import HOST, Layout, LocalSite
from harness.machine.slope import LEAST, Slope, slope
from harness.matrix.matrix import Outcome, outcome_of, try_faults, wall_ns
from harness.records.about import about_run
from harness.records.probers import EvidenceProber

SAMPLE_SECONDS = 10.0
# Start of a process's life that is not judged: the heap reaches its size only after the first full collection.
WARM_SECONDS = COLLECT_SECONDS * COLLECT_ALL
MORE = 1.1  # factor on the descriptors beyond which a process has a larger load than ever before
ADAPT_SECONDS = 300.0  # time after a larger load that is not judged; per-device buffers fill in half of it
BLOCK_SECONDS = 120.0  # samples of such a block are merged into one, because neighbours are correlated
MEASURES = {"memory_mb": "MB", "descriptors": "descriptors", "threads": "threads"}
FIRE_SECONDS = 60.0  # mean time between two fires
CLIPS = "1M"  # room for 80 recordings, which fill up while processes warm up; the hub has an entry for each
SENSORS_ON_FIRE = 40  # maximum without a reset: six faults, or half an hour of fires
# Seconds after the start, each of MEASURES, and the MB of mapped files. File pages are bounded by the files' sizes and
# the kernel drops them when memory is short, so they are no leak.
Row = tuple[float, float, int, int, float]
COLUMNS = "seconds,role,pid,memory_mb,descriptors,threads,files_mb"  # of the file of all samples
MEMORY, DESCRIPTORS, FILES = 1, 2, 4  # columns of a row


@dataclass(frozen=True)
class SoakPlan:
    """The plan of a soak. Everything random follows from its seed."""

    seconds: float
    seed: int
    sensors: int = 100
    rate: float = 10.0  # readings/s per sensor
    frame_rate: float = 1.0  # thermal frames/s per sensor
    mjpeg: int = 4  # cameras
    h264: int = 4  # cameras
    fps: float = 10.0
    fault_seconds: float = 300.0  # mean time between two faults; 0: none
    fire_seconds: float = FIRE_SECONDS  # mean time between two fires
    faults: tuple[str, ...] = tuple(name for name in FAULTS if name not in {"disk full", "operator killed"})

    def schedule(self) -> list[tuple[float, str]]:
        """The times of all events, in seconds after the start: "fire" or the name of a fault.

        A run of an hour or longer starts with one fault of each kind, while processes warm up. So no fault is left to
        chance, and memory for the first fault of a kind does not count as a leak.
        """
        dice, events = random.Random(self.seed), []
        first = WARM_SECONDS if self.fault_seconds and self.seconds >= 2 * WARM_SECONDS else 0.0
        if first:
            shuffled = dice.sample(self.faults, len(self.faults))
            events += [(first * number / len(shuffled), name) for number, name in enumerate(shuffled, 1)]
        for kind, mean, begin in (("fire", self.fire_seconds, 0.0), ("fault", self.fault_seconds, first)):
            at = begin
            while mean:
                at += dice.uniform(0.5, 1.5) * mean
                if at > self.seconds:
                    break
                events.append((at, "fire" if kind == "fire" else dice.choice(self.faults)))
        return sorted(events)


@dataclass
class Samples:
    """The usage of each process over time. A restarted process counts as a new one."""

    rows: dict[tuple[str, int], list[Row]] = field(default_factory=lambda: defaultdict(list))

    def add(self, site: LocalSite, at: float) -> None:
        """Sample every process now, `at` seconds after the start."""
        for usage in site.usages():
            memory = usage.memory_mb - usage.files_mb
            row = (at, memory, usage.descriptors, usage.threads, usage.files_mb)
            self.rows[role_of(usage.command), usage.pid].append(row)

    def slopes(self) -> dict[str, dict[str, Slope]]:
        """Measure → role → growth per hour of warm processes. All intervals hold jointly.

        Memory is judged within the spans that `familiar` returns.
        """
        measured = {measure: self._warm(1 + number) for number, measure in enumerate(MEASURES)}
        together = sum(
            any(len(at) >= LEAST for at, _ in spans) for roles in measured.values() for spans in roles.values()
        )
        return {
            measure: {
                role: growth
                for role, spans in sorted(roles.items())
                if (growth := slope(spans, max(1, together), steps=measure == "memory_mb"))
            }
            for measure, roles in measured.items()
        }

    def _warm(self, column: int) -> dict[str, list[tuple[list[float], list[float]]]]:
        """Role → the times in seconds and values of a column, for each span."""
        by_role: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)
        for (role, _), rows in self.rows.items():
            warm = [row for row in rows if row[0] - rows[0][0] >= WARM_SECONDS]
            for span in familiar(rows) if column == MEMORY else [warm]:
                blocks: dict[int, list[tuple[float, float]]] = defaultdict(list)
                for row in span:
                    blocks[int((row[0] - rows[0][0]) // BLOCK_SECONDS)].append((row[0], float(row[column])))
                middles = [tuple(map(median, zip(*block, strict=True))) for block in blocks.values()]
                by_role[role].append(([at for at, _ in middles], [value for _, value in middles]))
        return by_role


def familiar(rows: Sequence[Row]) -> list[list[Row]]:
    """The spans of a warm process's life without a larger load than before.

    A fault may give a process more devices than ever, and so one permanent step in memory that is no leak. The number
    of descriptors, which are mostly connections, measures the load. All growth under a known load counts, including a
    single large step.
    """
    spans, since, most = [list[Row]()], rows[0][0] + WARM_SECONDS, rows[0][DESCRIPTORS]
    for row in rows:
        if row[DESCRIPTORS] > MORE * most:
            most, since = row[DESCRIPTORS], max(since, row[0] + ADAPT_SECONDS)
            spans.append([])
        if row[0] >= since:
            spans[-1].append(row)
    return [span for span in spans if span]


def role_of(command: str) -> str:
    """The role of a process by its command line; an unknown command is returned whole."""
    words = command.split()
    if "embereye.camera.decode.process" in words:
        return "decoder"
    if "embereye_cli" in words:
        match words[words.index("embereye_cli") + 1 :]:
            case ["up", *_]:
                return "operator"
            case ["shard", kind, *_]:
                return f"{kind} shard"
            case [name, *_]:
                return name
    return command


@dataclass
class Soaked:
    """The result of a soak."""

    target: ClassVar[str] = "soak"  # of make
    plan: SoakPlan
    about: dict[str, Any] = field(default_factory=dict)  # time, commit and machine
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    fires: list[tuple[float, float]] = field(default_factory=list)  # (seconds after the start, seconds until alarmed)
    missed: list[str] = field(default_factory=list)  # zones
    samples: Samples = field(default_factory=Samples)
    load_ended: str = ""  # the reason why the load's processes ended early

    @property
    def leaking(self) -> dict[str, Slope]:
        """Measures that grow beyond chance, by role and measure."""
        return {
            f"{role} {measure}": growth
            for measure, roles in self.samples.slopes().items()
            for role, growth in roles.items()
            if growth.is_growth
        }

    @property
    def unjudged(self) -> list[str]:
        """Roles whose processes all ended too early to judge their memory."""
        judged = self.samples.slopes()["memory_mb"]
        return sorted({role for role, _ in self.samples.rows} - judged.keys())

    @property
    def ok(self) -> bool:
        """True if nothing was lost, late or leaking."""
        return not (self.missed or self.load_ended or self.leaking) and all(outcome.ok for outcome in self.outcomes)

    def summary(self) -> str:
        """The result in one line."""
        worst = max((outcome.gap for outcome in self.outcomes), default=0.0)
        latencies = sorted(delay for _, delay in self.fires)
        p95 = latencies[int(0.95 * (len(latencies) - 1))] * 1e3 if latencies else 0.0
        lost = sum(outcome.alarms_lost + outcome.evidence_lost for outcome in self.outcomes) + len(self.missed)
        doubled = sum(outcome.alarms_doubled + outcome.evidence_doubled for outcome in self.outcomes)
        return (
            f"soak: {'PASS' if self.ok else 'FAIL'} hours={self.seconds / 3600:.2f} seed={self.plan.seed} "
            f"faults={len(self.outcomes)} faults_failed={sum(not outcome.ok for outcome in self.outcomes)} "
            f"fires={len(self.fires)} lost={lost} doubled={doubled} gap_max_s={worst:.2f} "
            f"delay_p95_ms={p95:.0f} leaks={len(self.leaking)} unjudged={len(self.unjudged)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything except the samples, which are a separate table."""
        slopes = {
            measure: {role: asdict(growth) for role, growth in roles.items()}
            for measure, roles in self.samples.slopes().items()
        }
        return {
            "summary": self.summary(),
            "passed": self.ok,
            "about": self.about,
            "plan": asdict(self.plan),
            "slopesPerHour": slopes,
            "seconds": self.seconds,
            "fires": self.fires,
            "missed": self.missed,
            "loadEnded": self.load_ended,
            "outcomes": [asdict(outcome) | {"ok": outcome.ok} for outcome in self.outcomes],
        }


async def soak(site: LocalSite, prober: EvidenceProber, plan: SoakPlan, stop: asyncio.Event) -> Soaked:
    """Run the plan to its end, or until `stop`."""
    result, started = Soaked(plan, about_run(plan.seed)), time.monotonic()
    sampling = asyncio.get_running_loop().create_task(_sample(site, result, started), name="sample")
    try:
        for at, event in plan.schedule():
            if await stopped_within(stop, started + at - time.monotonic()):
                break
            site.put_out()  # a load that grows with every fire would look like a leak,
            await site.reset()  # and so would alarms that are never reset
            if event == "fire":
                await _burn(site, result, time.monotonic() - started)
            else:
                hub = site.pids("hub")
                result.outcomes.append(await try_faults(site, prober, [FAULTS[event]]))
                if site.pids("hub") != hub:  # filling buffers would look like a leak, too
                    await site.fill()
        else:
            await stopped_within(stop, started + plan.seconds - time.monotonic())
    finally:
        sampling.cancel()
        result.seconds = time.monotonic() - started
    return result


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait for `stop` for at most `seconds`. Returns True if it is set."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    except TimeoutError:
        return False
    return True


async def _sample(site: LocalSite, result: Soaked, started: float) -> None:
    while True:
        result.samples.add(site, time.monotonic() - started)
        await asyncio.sleep(SAMPLE_SECONDS)


async def _burn(site: LocalSite, result: Soaked, at: float) -> None:
    zone, lit_at = await site.ignite()
    try:
        await site.witness.alarmed(zone, 10.0, wall_ns(lit_at))
    except AssertionError:
        result.missed.append(zone)
    else:
        result.fires.append((at, time.monotonic() - lit_at))


def load_commands(plan: SoakPlan, tcp: int, mjpeg: int, rtsp: int) -> list[list[str]]:
    """The commands of the simulators that generate the load."""
    embereye = [sys.executable, "-m", "embereye_cli", "simulate"]
    commands = []
    if plan.sensors:
        devices = ",".join(f"{id_}={zone}" for id_, zone in load_sensors(plan).items())
        commands.append([*embereye, "sensors", "--target", f"{HOST}:{tcp}", "--devices", devices,
                         "--rate", str(plan.rate), "--frame-rate", str(plan.frame_rate)])  # fmt: skip
    size = ["--fps", str(plan.fps), "--size", "640x360"]
    for count, option in ((plan.mjpeg, ["--listen", f"{HOST}:{mjpeg}"]),
                          (plan.h264, ["--rtsp", f"{HOST}:{rtsp}", "--codec", "h264"])):  # fmt: skip
        if count:
            commands.append([*embereye, "cameras", *option, "--count", str(count), *size])
    return commands


def load_sensors(plan: SoakPlan) -> dict[str, str]:
    """The load's sensors and their zones."""
    return {f"load-{number:03}": f"load-{number // 4:02}" for number in range(plan.sensors)}


def load_cameras(plan: SoakPlan, mjpeg: int, rtsp: int) -> dict[str, str]:
    """The load's cameras and their sources."""
    cameras = {f"mjpeg-{number}": f"http://{HOST}:{mjpeg}/camera-{number}.mjpg" for number in range(1, plan.mjpeg + 1)}
    return cameras | {f"h264-{number}": f"rtsp://{HOST}:{rtsp}/camera-{number}" for number in range(1, plan.h264 + 1)}


def layout_of(plan: SoakPlan, mjpeg: int, rtsp: int) -> Layout:
    """The devices of the building: those of the load, and those of the faults."""
    return Layout(
        fires=fires_of(plan),
        sensors=load_sensors(plan),
        pulled=load_cameras(plan, mjpeg, rtsp),
        clips=CLIPS,
        small_disk=False,
    )


def fires_of(plan: SoakPlan) -> int:
    """The number of sensors that can burn: one per fire and four per fault, reusable after a reset."""
    events: Sequence[tuple[float, str]] = plan.schedule()
    return min(SENSORS_ON_FIRE, sum(1 if event == "fire" else 4 for _, event in events) + 4)


def write_samples(path: Path, samples: Samples) -> None:
    """Write all samples as CSV."""
    lines = [COLUMNS]
    for (role, pid), rows in samples.rows.items():
        lines += [
            f"{at:.1f},{role},{pid},{mb:.2f},{opened},{threads},{files:.2f}" for at, mb, opened, threads, files in rows
        ]
    path.write_text("\n".join(lines) + "\n")


def read_samples(path: Path) -> Samples:
    """Read the file of `write_samples`."""
    samples = Samples()
    with path.open(newline="") as table:
        for row in csv.DictReader(table):
            used = (float(row["seconds"]), float(row["memory_mb"]), int(row["descriptors"]), int(row["threads"]),
                    float(row["files_mb"]))  # fmt: skip
            samples.rows[row["role"], int(row["pid"])].append(used)
    return samples


def write_result(path: Path, result: Soaked) -> None:
    """Write the result as JSON."""
    path.write_text(json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n")


def read_soaked(folder: Path) -> Soaked:
    """Read a soak from the result and samples in `folder`."""
    result = json.loads((folder / "soak.json").read_text())
    return Soaked(
        plan=SoakPlan(**result["plan"] | {"faults": tuple(result["plan"]["faults"])}),
        about=result["about"],
        seconds=result["seconds"],
        outcomes=list(map(outcome_of, result["outcomes"])),
        fires=[(at, delay) for at, delay in result["fires"]],
        missed=result["missed"],
        samples=read_samples(folder / "samples.csv"),
        load_ended=result["loadEnded"],
    )
