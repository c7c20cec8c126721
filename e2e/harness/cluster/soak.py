"""A soak in a cluster: hours of load with fires, bursts and faults, in pieces that are joined to one record.

`ClusterPlan.schedule` draws everything random from a seed. `soak` works through the schedule from the point that an
earlier piece reached. Each fire must alarm once, and arrive by feed, webhook and MQTT. Every finished event is written
to the books at once and every sample to the series, so a run that was cut loses at most the event in progress.
`read_run` joins the pieces; the verdict always comes from the files, whether the run was cut or not.
"""

import asyncio
import json
import random
import signal
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from harness.calls import cancel_and_wait
from harness.cluster.books import Books
from harness.cluster.cluster import until
from harness.cluster.faults import FAULTS
from harness.cluster.figures import Figures, Sources
from harness.cluster.soak_site import SURGE_SHARDS, TOTALS, LoadPlan, SoakRelease
from harness.cluster.writes import BURST, REST_SECONDS, fault_spans, judge_writes
from harness.machine.soak import Soaked, read_samples, stopped_within
from harness.matrix.matrix import Outcome, outcome_of, try_faults, wall_ns
from harness.matrix.rules import SLOW
from harness.records.about import about_run
from harness.records.witness import Lit

BURST_SECONDS, CALM_SECONDS = 120.0, 300.0  # time limits for a burst's shards to come, and to leave
PAIRED = 1 / 6  # share of faults that are paired with a second one
ALARM_SECONDS = 20.0  # time limit for an alarm at each receiver, without a fault
DELIVERY_SECONDS = 5.0  # time limit from an alarm in the feed to webhook and MQTT, without a fault
BURN_SECONDS = 8.0  # duration of a fire after its alarm
QUIET_SECONDS = 90.0  # time limit for people to reset all zones after their fires
GROWTH_MB = 1.5  # MB an hour: allowed upper bound of a container's growth
# Exit codes that no fault causes
CRASHES = {128 + number for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)}
JUDGED_SECONDS = 7200.0  # shortest run whose memory is judged by GROWTH_MB
# Total counts of a piece that must be 0.
ZEROS = (
    "evidence_lost", "evidence_doubled", "alarms_lost", "alarms_doubled", "taken_back", "webhooks_missing",
    "mqtt_missing",
)  # fmt: skip
SHORT_SECONDS = 240.0
SHORT_FIRES = (10.0, 35.0, 60.0)  # seconds after the start
SHORT_FAULT = 75.0
# A load that leaves CPU for the judgement of a single fault, and no fleet for bursts.
SHORT_LOAD: dict[str, Any] = {
    "sensors": 20, "rate": 1.0, "frame_rate": 0.2, "mjpeg": 1, "h264": 2, "fps": 3.0, "burst_seconds": 0.0,
}  # fmt: skip
# All faults but one: a release with several hubs has no single hub.
SOAK_FAULTS = tuple(name for name in FAULTS if name != "hub killed")
# Faults from which the site recovers within seconds, so that a short run has the time for one. Without "all hubs
# killed": a hub needs 1.4 s of CPU to start, which is nearly all of the gap that is allowed.
SHORT_FAULTS = ("shard killed", "shard deleted", "owner killed", "operators killed", "sessions ended")


@dataclass(frozen=True)
class ClusterPlan(LoadPlan):
    """The plan of a soak in a cluster."""

    fault_seconds: float = 450.0
    fire_seconds: float = 150.0
    faults: tuple[str, ...] = SOAK_FAULTS
    short: bool = False  # three fires and one fault, for CI

    def schedule(self) -> list[tuple[float, str]]:
        """The times of all events, in seconds after the start: "fire", "burst", a fault, or two joined by " and "."""
        dice = random.Random(self.seed + 1)
        if self.short:
            return [*((at, "fire") for at in SHORT_FIRES), (SHORT_FAULT, dice.choice(self.faults))]
        events = [
            (at, event if event == "fire" else self._maybe_paired(event, dice)) for at, event in super().schedule()
        ]
        bursts = int(self.seconds / self.burst_seconds) if self.burst_seconds else 0
        return sorted([*events, *((number * self.burst_seconds, BURST) for number in range(1, bursts + 1))])

    def _maybe_paired(self, name: str, dice: random.Random) -> str:
        first, second = FAULTS[name], FAULTS[dice.choice(self.faults)]
        order = list(FAULTS)
        compatible = order.index(first.name) < order.index(second.name) and not (
            first.takes and first.takes == second.takes
        )
        return f"{first.name} and {second.name}" if dice.random() < PAIRED and compatible else name


@dataclass
class ClusterSoaked(Soaked):
    """The result of a soak in a cluster, all pieces together."""

    target: ClassVar[str] = "soak-cluster"
    pieces: int = 1
    totals: dict[str, int] = field(default_factory=dict)  # counts of all pieces
    delivered: dict[str, list[float]] = field(default_factory=dict)  # receiver → seconds from each fire to its arrival
    problems: list[str] = field(default_factory=list)  # everything else that must not happen
    figures: dict[str, dict[str, float]] = field(default_factory=dict)  # counts of logs, events, requests and writes

    @property
    def growing(self) -> list[str]:
        """The roles whose memory may grow by more than `GROWTH_MB` an hour; empty for a run too short to judge."""
        if self.seconds < JUDGED_SECONDS:
            return []
        return [role for role, growth in self.samples.slopes()["memory_mb"].items() if growth.high > GROWTH_MB]

    @property
    def ok(self) -> bool:
        """True if nothing was lost, doubled, late, wrong or leaking."""
        wrong = any(self.totals.get(name) for name in ZEROS) or self.problems or self.growing
        return super().ok and not wrong

    def summary(self) -> str:
        """The result in one line."""
        counts = " ".join(f"{name}={self.totals.get(name, 0)}" for name in ZEROS)
        passed = sum(outcome.ok for outcome in self.outcomes)
        return (
            f"soak-cluster: {'PASS' if self.ok else 'FAIL'} hours={self.seconds / 3600:.2f} pieces={self.pieces} "
            f"seed={self.plan.seed} fires={len(self.fires) + len(self.missed)} missed={len(self.missed)} "
            f"faults={passed}/{len(self.outcomes)} {counts} problems={len(self.problems)} "
            f"leaks={len(self.leaking) + len(self.growing)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything except the samples."""
        return {**super().to_json(), "pieces": self.pieces, "totals": self.totals, "delivered": self.delivered,
                "problems": self.problems, "figures": self.figures}  # fmt: skip


def new_run(folder: Path, plan: ClusterPlan) -> None:
    """Create the folder of a run, with its plan."""
    folder.mkdir(parents=True)
    run = {"about": about_run(plan.seed), "plan": asdict(plan)}
    (folder / "run.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")


def read_plan(folder: Path) -> ClusterPlan:
    """Read the plan of a run."""
    plan = json.loads((folder / "run.json").read_text())["plan"]
    return ClusterPlan(**plan | {"faults": tuple(plan["faults"])})


def unfinished_run(results: Path, seed: int | None) -> Path | None:
    """The newest run in `results` that has not reached its end, with this seed if one is given."""
    runs = sorted(path.parent for path in results.glob("soak-cluster-*/run.json"))
    for folder in reversed(runs):
        plan = read_plan(folder)
        if seed in (None, plan.seed) and Books(folder).reached < plan.seconds:
            return folder
    return None


def read_run(folder: Path) -> ClusterSoaked:
    """Join the pieces of a run to one result."""
    books = Books(folder)
    fires = books.of("fire")
    alarmed = [entry for entry in fires if entry["feed"] is not None]
    latest = {entry["piece"]: entry["counts"] for entry in books.of("totals")}  # a piece counts on until its end
    totals = {name: sum(counts[name] for counts in latest.values()) for name in TOTALS}
    series = folder / "samples.csv"
    result = ClusterSoaked(
        plan=read_plan(folder),
        about=json.loads((folder / "run.json").read_text())["about"],
        seconds=books.reached,
        outcomes=[outcome_of(entry["outcome"]) for entry in books.of("fault")],
        fires=[(entry["at"], entry["feed"]) for entry in alarmed],
        missed=[entry["zone"] for entry in fires if entry["feed"] is None],
        pieces=books.pieces,
        totals=totals,
        delivered={
            way: [entry[way] for entry in fires if entry[way] is not None] for way in ("feed", "webhook", "mqtt")
        },
        problems=[_text(entry) for entry in books.of("problem")] + judge_quiet(books) + judge_writes(books),
        figures=sum_figures(books),
    )
    return replace(result, samples=read_samples(series)) if series.exists() else result


def sum_figures(books: Books) -> dict[str, dict[str, float]]:
    """The figures of all pieces together: counts are added, of sizes the latest counts."""
    latest = {entry["piece"]: entry for entry in books.of("figures")}
    result: dict[str, dict[str, float]] = {}
    for entry in latest.values():
        for name in ("lines", "events", "requests", "asked", "writes"):
            counts = result.setdefault(name, {})
            for key, count in entry[name].items():
                counts[key] = counts.get(key, 0) + count
        result["sizes"] = entry["sizes"]
    return result


def judge_quiet(books: Books) -> list[str]:
    """All crashes, and the problems without faults: restarts, alerts, and the operator's writes at rest."""
    spans = [(begin, end) for _, begin, end in fault_spans(books)]
    spans += [(entry["at"], entry["at"]) for entry in books.of("piece")]

    def quiet(entry: dict[str, Any]) -> bool:
        # At first, no fault of an earlier piece excuses a restart. What is written then belongs to the installation.
        excuses = [span for span in spans if span != (0.0, 0.0)] if entry["kind"] == "restart" else spans
        return not any(begin - REST_SECONDS / 4 <= entry["at"] <= end + REST_SECONDS for begin, end in excuses)

    restarts = [
        f"{entry['at']:.0f} s: {entry['container']} "
        f"{'crashed' if entry['code'] in CRASHES else 'restarted without a fault'}: {entry['reason']} {entry['code']}"
        for entry in books.of("restart")
        if quiet(entry) or entry["code"] in CRASHES
    ]
    writes = [
        f"{entry['at']:.0f} s: written at rest: {entry['text']}"
        for entry in books.of("write")
        if quiet(entry) and not entry.get("is_alive")  # a status is written each 15 minutes, as a sign of life
    ]
    alerts = [
        f"{entry['at']:.0f} s: {entry['name']} fired without a fault"
        for entry in books.of("alert")
        if quiet(entry) and entry["name"] not in SLOW
    ]
    return restarts + alerts + writes


def _text(entry: dict[str, Any]) -> str:
    return f"{entry['at']:.0f} s: {entry['text']}"


@dataclass
class Piece:
    """One piece of a run: works through the schedule from where the books end."""

    release: SoakRelease
    plan: ClusterPlan
    books: Books
    stop: asyncio.Event

    def __post_init__(self) -> None:
        self._offset = self.books.reached
        site = self.release.site
        sources = Sources(site.ingest, self.release.database_mb, self.release.alerts, self.plan.audited)
        self._figures = Figures(site.cluster, self.books, lambda: self.now, sources)
        self._started = time.monotonic()
        self._number = self.books.pieces + 1
        self.books.add("piece", self._offset, piece=self._number)

    @property
    def now(self) -> float:
        """The seconds of soaking so far."""
        return self._offset + time.monotonic() - self._started

    async def run(self) -> None:
        """Work until the plan's end, or until `stop`."""
        collecting = asyncio.get_running_loop().create_task(self._figures.run(), name="figures")
        remaining = list(enumerate(self.plan.schedule()))[self.books.next_event :]
        try:
            for number, (at, event) in remaining:
                if await stopped_within(self.stop, at - self.now):
                    return
                await self._make(number, event)
                await self._clear_up()
                self._count()
            await stopped_within(self.stop, self.plan.seconds - self.now)
        finally:
            self._count()
            if collecting.done() and (error := collecting.exception()):
                self.books.add("problem", self.now, text=f"the figures ended early: {error!r}")
            await cancel_and_wait(collecting)
            await self._figures.read_writes()  # those since the last count

    async def _make(self, number: int, event: str) -> None:
        if event == BURST:
            await self._surge(number)
        elif event == "fire":
            await self._burn(number)
        else:
            await self._harm(number, event)

    async def _surge(self, number: int) -> None:
        at, release = self.now, self.release
        self.books.add("harm", at, event=BURST)  # shards come and go, and the operator writes
        release.flood(self.plan.burst_lines)
        up: float | None = None
        try:
            await until(release.surge_shards, SURGE_SHARDS.__eq__, f"{SURGE_SHARDS} shards", BURST_SECONDS)
            up = self.now - at
            release.flood(0)
            await until(release.surge_shards, (1).__eq__, "one shard again", CALM_SECONDS)
        except AssertionError as error:
            self.books.add("problem", self.now, text=f"a burst: {error}")
        finally:
            release.flood(0)
        self.books.add(BURST, at, number=number, seconds=round(self.now - at, 1), up=up)
        release.diary.print_line(f"{at:7.0f} s  burst: {SURGE_SHARDS} shards after {up or 0:.0f} s")

    async def _burn(self, number: int) -> None:
        at, release = self.now, self.release
        zone, lit_at = await release.ignite()
        fire = Lit(zone, wall_ns(lit_at))
        feed: float | None = None
        try:
            heard = await release.witness.alarmed(zone, ALARM_SECONDS, fire.since_ns)
            feed = (heard.time_ns - fire.since_ns) / 1e9
        except AssertionError as error:
            release.diary.note("fire", str(error), "bad")
        webhook = await release.webhook.arrivals.arrived(fire, DELIVERY_SECONDS)
        mqtt = await release.mqtt.arrived(fire, DELIVERY_SECONDS)
        self.books.add("fire", at, number=number, zone=zone, feed=feed, webhook=webhook, mqtt=mqtt)
        release.diary.print_line(f"{at:7.0f} s  fire in {zone}: {_seconds(feed, webhook, mqtt)}")
        await stopped_within(self.stop, BURN_SECONDS)

    async def _harm(self, number: int, event: str) -> None:
        at, release = self.now, self.release
        self.books.add("harm", at, event=event)
        faults = [FAULTS[name] for name in event.split(" and ")]
        outcome = await try_faults(release, release.prober, faults, release.alerts)
        self.books.add("fault", at, number=number, seconds=round(self.now - at, 1), outcome=_row(outcome))
        verdict = f"{'ok' if outcome.ok else 'FAILED'}: {outcome.text()} {outcome.problem}"
        release.diary.print_line(f"{at:7.0f} s  {event}: {verdict}")

    async def _clear_up(self) -> None:
        """Put the fires out, and let people acknowledge and reset their zones."""
        self.release.put_out()
        deadline = time.monotonic() + QUIET_SECONDS
        while self.release.burnt and not self.stop.is_set():
            await self.release.reset()
            if time.monotonic() > deadline:
                text = f"zones that people could not reset: {', '.join(self.release.burnt)}"
                self.books.add("problem", self.now, text=text)
                return
            await stopped_within(self.stop, 1.0)

    def _count(self) -> None:
        self.books.add("totals", self.now, piece=self._number, counts=self.release.counts())
        self.books.add("figures", self.now, piece=self._number, **self._figures.counts())


def _row(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"ok": outcome.ok}


def _seconds(*delays: float | None) -> str:
    ways = zip(("feed", "webhook", "MQTT"), delays, strict=True)
    return ", ".join(f"{way} {'missing' if delay is None else f'{delay:.2f} s'}" for way, delay in ways)
