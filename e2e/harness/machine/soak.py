"""A soak: a steady load on one machine for hours, fires, faults at random from a seed, and what every process uses."""

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
from typing import Any

from embereye.process.heap import COLLECT_ALL, COLLECT_SECONDS
from harness.machine.faults import FAULTS
from harness.machine.local_site import HOST, Layout, LocalSite
from harness.machine.slope import LEAST, Slope, slope
from harness.matrix.matrix import Outcome, outcome_of, try_faults, wall_ns
from harness.records.about import about_run
from harness.records.probers import EvidenceProber

SAMPLE_SECONDS = 10.0
# Of a process's life that say nothing about leaks: its heap finds its size until it has once looked at all garbage.
WARM_SECONDS = COLLECT_SECONDS * COLLECT_ALL
MORE = 1.1  # times as many descriptors as ever before: the process has a load that it had never seen
SETTLE_SECONDS = 300.0  # from then on that say nothing either: what is kept of each device fills in half of it
BLOCK_SECONDS = 120.0  # of which one sample stands for all: what a process uses is hardly another 10 s later
MEASURES = {"memory_mb": "MB", "descriptors": "descriptors", "threads": "threads"}
FIRE_SECONDS = 60.0  # between two fires, on average
CLIPS = "1M"  # the hub knows each recording in memory: there is room for 80, and while processes warm up as many come
SENSORS_ON_FIRE = 40  # at most, that are not reset: of half a dozen faults, or of half an hour's fires
# Seconds after the beginning, each of MEASURES, and the MB of files besides: what a process has touched of its programs
# and of mapped files, which is no more than they are long and is dropped where memory is short. It is no leak.
Row = tuple[float, float, int, int, float]
MEMORY, DESCRIPTORS, FILES = 1, 2, 4  # columns of a row


@dataclass(frozen=True)
class SoakPlan:
    """What a soak does; everything at random comes from its seed."""

    seconds: float
    seed: int
    sensors: int = 100
    rate: float = 10.0  # readings/s of each
    frame_rate: float = 1.0  # thermal frames/s of each
    mjpeg: int = 4  # cameras
    h264: int = 4  # cameras
    fps: float = 10.0
    fault_seconds: float = 300.0  # between two faults, on average; 0: none
    faults: tuple[str, ...] = tuple(name for name in FAULTS if name not in {"disk full", "operator killed"})

    def schedule(self) -> list[tuple[float, str]]:
        """When each event is to come, in seconds after the beginning: "fire" or the name of a fault.

        A run of an hour or longer begins with one of each fault, while processes warm up: no fault is left to chance,
        and what the first of a kind has a process load and make room for is no leak.
        """
        dice, found = random.Random(self.seed), []
        first = WARM_SECONDS if self.fault_seconds and self.seconds >= 2 * WARM_SECONDS else 0.0
        if first:
            shuffled = dice.sample(self.faults, len(self.faults))
            found += [(first * number / len(shuffled), name) for number, name in enumerate(shuffled, 1)]
        for kind, mean, begin in (("fire", FIRE_SECONDS, 0.0), ("fault", self.fault_seconds, first)):
            at = begin
            while mean:
                at += dice.uniform(0.5, 1.5) * mean
                if at > self.seconds:
                    break
                found.append((at, "fire" if kind == "fire" else dice.choice(self.faults)))
        return sorted(found)


@dataclass
class Samples:
    """What each process used, and when; a process that is started anew is another."""

    rows: dict[tuple[str, int], list[Row]] = field(default_factory=lambda: defaultdict(list))

    def take(self, site: LocalSite, at: float) -> None:
        """Look at every process now, `at` seconds after the beginning."""
        for usage in site.usages():
            own = usage.memory_mb - usage.files_mb
            row = (at, own, usage.descriptors, usage.threads, usage.files_mb)
            self.rows[role_of(usage.command), usage.pid].append(row)

    def slopes(self) -> dict[str, dict[str, Slope]]:
        """By measure and role: how it grows in an hour, once processes are warm. All intervals hold together.

        Memory is judged within the spans of a process's life that `familiar` tells apart.
        """
        measured = {measure: self._warm(1 + number) for number, measure in enumerate(MEASURES)}
        together = sum(any(len(at) >= LEAST for at, _ in one) for roles in measured.values() for one in roles.values())
        return {
            measure: {
                role: found
                for role, one in sorted(roles.items())
                if (found := slope(one, max(1, together), steps=measure == "memory_mb"))
            }
            for measure, roles in measured.items()
        }

    def _warm(self, column: int) -> dict[str, list[tuple[list[float], list[float]]]]:
        """By role and span: when, in seconds, what a column had."""
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
    """The spans of a warm process's life in which it had no more to do than it had had before.

    A fault that sends a process more devices than ever has it need more memory, for good and once: neither the step nor
    what fills after it is a leak. How much it has to do is told by its descriptors, which are connections for the most
    part, and not by its memory: whatever grows under a load that it knows counts, one large step as well.
    """
    spans, since, most = [list[Row]()], rows[0][0] + WARM_SECONDS, rows[0][DESCRIPTORS]
    for row in rows:
        if row[DESCRIPTORS] > MORE * most:
            most, since = row[DESCRIPTORS], max(since, row[0] + SETTLE_SECONDS)
            spans.append([])
        if row[0] >= since:
            spans[-1].append(row)
    return [span for span in spans if span]


def role_of(command: str) -> str:
    """Which process of the product this is, by its command; what is not known by it, by all of it."""
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
    """What came of it."""

    plan: SoakPlan
    about: dict[str, Any] = field(default_factory=dict)  # when, of which commit, on which machine
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    fires: list[tuple[float, float]] = field(default_factory=list)  # seconds after the beginning, seconds until told
    missed: list[str] = field(default_factory=list)  # zones
    samples: Samples = field(default_factory=Samples)
    load_ended: str = ""  # why the load's own processes ended early

    @property
    def leaks(self) -> dict[str, Slope]:
        """What grows beyond chance, by role and measure."""
        return {
            f"{role} {measure}": found
            for measure, roles in self.samples.slopes().items()
            for role, found in roles.items()
            if found.grows
        }

    @property
    def unjudged(self) -> list[str]:
        """Roles of which no process lived for long enough to tell whether its memory grows."""
        judged = self.samples.slopes()["memory_mb"]
        return sorted({role for role, _ in self.samples.rows} - judged.keys())

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, nothing was late, nothing leaks."""
        return not (self.missed or self.load_ended or self.leaks) and all(outcome.ok for outcome in self.outcomes)

    def summary(self) -> str:
        """One line, for whoever reads only that."""
        worst = max((outcome.gap for outcome in self.outcomes), default=0.0)
        latencies = sorted(took for _, took in self.fires)
        p95 = latencies[int(0.95 * (len(latencies) - 1))] * 1e3 if latencies else 0.0
        lost = sum(one.alarms_lost + one.evidence_lost for one in self.outcomes) + len(self.missed)
        doubled = sum(one.alarms_doubled + one.evidence_doubled for one in self.outcomes)
        return (
            f"soak: {'PASS' if self.ok else 'FAIL'} hours={self.seconds / 3600:.2f} seed={self.plan.seed} "
            f"faults={len(self.outcomes)} faults_failed={sum(not one.ok for one in self.outcomes)} "
            f"fires={len(self.fires)} lost={lost} doubled={doubled} gap_max_s={worst:.2f} "
            f"told_p95_ms={p95:.0f} leaks={len(self.leaks)} unjudged={len(self.unjudged)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything but the samples, which are a table of their own."""
        slopes = {
            measure: {role: asdict(found) for role, found in roles.items()}
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
    """Let the plan run until it is over, or until `stop`."""
    found, began = Soaked(plan, about_run(plan.seed)), time.monotonic()
    sampling = asyncio.get_running_loop().create_task(_sample(site, found, began), name="sample")
    try:
        for at, event in plan.schedule():
            if await _stopped(stop, began + at - time.monotonic()):
                break
            site.put_out()  # a load that grows with every fire would be taken for a leak,
            await site.reset()  # and so would alarms that nobody ends
            if event == "fire":
                await _burn(site, found, time.monotonic() - began)
            else:
                hub = site.pids("hub")
                found.outcomes.append(await try_faults(site, prober, [FAULTS[event]]))
                if site.pids("hub") != hub:  # what fills would be taken for a leak, too
                    await site.fill()
        else:
            await _stopped(stop, began + plan.seconds - time.monotonic())
    finally:
        sampling.cancel()
        found.seconds = time.monotonic() - began
    return found


async def _stopped(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    except TimeoutError:
        return False
    return True


async def _sample(site: LocalSite, found: Soaked, began: float) -> None:
    while True:
        found.samples.take(site, time.monotonic() - began)
        await asyncio.sleep(SAMPLE_SECONDS)


async def _burn(site: LocalSite, found: Soaked, at: float) -> None:
    zone, began = await site.ignite()
    try:
        await site.witness.alarmed(zone, 10.0, wall_ns(began))
    except AssertionError:
        found.missed.append(zone)
    else:
        found.fires.append((at, time.monotonic() - began))


def load_commands(plan: SoakPlan, tcp: int, mjpeg: int, rtsp: int) -> list[list[str]]:
    """The processes that play the load."""
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
    """The load's cameras and where they are pulled from."""
    found = {f"mjpeg-{number}": f"http://{HOST}:{mjpeg}/camera-{number}.mjpg" for number in range(1, plan.mjpeg + 1)}
    return found | {f"h264-{number}": f"rtsp://{HOST}:{rtsp}/camera-{number}" for number in range(1, plan.h264 + 1)}


def layout_of(plan: SoakPlan, mjpeg: int, rtsp: int) -> Layout:
    """What stands in the building: the load's devices, and those that faults are made on."""
    return Layout(
        fires=fires_of(plan),
        sensors=load_sensors(plan),
        pulled=load_cameras(plan, mjpeg, rtsp),
        clips=CLIPS,
        small_disk=False,
    )


def fires_of(plan: SoakPlan) -> int:
    """How many sensors can burn: one for each fire, four for each fault, again once they are reset."""
    events: Sequence[tuple[float, str]] = plan.schedule()
    return min(SENSORS_ON_FIRE, sum(1 if event == "fire" else 4 for _, event in events) + 4)


def write_samples(path: Path, samples: Samples) -> None:
    """All samples as a table of comma-separated values."""
    lines = ["seconds,role,pid,memory_mb,descriptors,threads,files_mb"]
    for (role, pid), rows in samples.rows.items():
        lines += [f"{at:.1f},{role},{pid},{mb:.2f},{opened},{threads},{of:.2f}" for at, mb, opened, threads, of in rows]
    path.write_text("\n".join(lines) + "\n")


def read_samples(path: Path) -> Samples:
    """What `write_samples` wrote."""
    found = Samples()
    with path.open(newline="") as table:
        for row in csv.DictReader(table):
            used = (float(row["seconds"]), float(row["memory_mb"]), int(row["descriptors"]), int(row["threads"]),
                    float(row["files_mb"]))  # fmt: skip
            found.rows[row["role"], int(row["pid"])].append(used)
    return found


def write_result(path: Path, found: Soaked) -> None:
    """The result as JSON."""
    path.write_text(json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n")


def read_soaked(folder: Path) -> Soaked:
    """A soak whose result and samples are in `folder`."""
    result = json.loads((folder / "soak.json").read_text())
    return Soaked(
        plan=SoakPlan(**result["plan"] | {"faults": tuple(result["plan"]["faults"])}),
        about=result["about"],
        seconds=result["seconds"],
        outcomes=list(map(outcome_of, result["outcomes"])),
        fires=[(at, took) for at, took in result["fires"]],
        missed=result["missed"],
        samples=read_samples(folder / "samples.csv"),
        load_ended=result["loadEnded"],
    )
