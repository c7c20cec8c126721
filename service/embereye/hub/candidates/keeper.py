"""The differences that shards report, in the database, and the newest report of each shard, in memory."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from embereye.hub.committer import Draft
from embereye.hub.hub import Hub
from embereye.hub.tables.candidate_differences import (
    CANDIDATE_DIFFERENCES,
    StoredDifference,
    count_differences,
    list_differences,
)
from embereye.levels import Level
from embereye.process.candidates_call import CandidateReport
from embereye.units import SECOND
from embereye.v1.roster_pb2 import CandidateResult

STALE_NS = 120 * SECOND  # after its latest report, a shard's candidate counts as ended


@dataclass(frozen=True)
class Compared:
    """A candidate that is being compared, added up over a fleet's shards."""

    fleet: str
    name: str
    id: str
    since_ns: int  # the earliest start of a shard
    seen: int
    unseen: int
    cpu_seconds: float
    problem: str  # why a shard's candidate cannot judge; empty: all can


class Candidates:
    """All candidates of a hub. For the event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._reports: dict[tuple[str, str], tuple[int, CandidateReport]] = {}  # by fleet and shard, with its arrival
        self._counts: dict[tuple[str, str], Counter[str]] = {}  # by fleet and comparison

    async def record(self, report: CandidateReport) -> None:
        """Store a report's differences. Raises StoreFailingError, and StoreError."""
        now_ns = time.time_ns()
        shift_ns = now_ns - report.sent_ns  # the shard's clock may be wrong; the age of its differences is not
        rows = [
            StoredDifference(
                row["id"], report.fleet, report.id, report.candidate, row["device"], row["zone"], row["kind"],
                row["level"], row["which"], row["atNs"] + shift_ns, row["episode"], row["terms"],
            )
            for row in report.differences
        ]  # fmt: skip

        def step(draft: Draft) -> None:
            draft.transaction[CANDIDATE_DIFFERENCES].update({row.id: row for row in rows})

        # First, so that nobody is shown a difference of a candidate that is not listed.
        self._reports[report.fleet, report.shard] = now_ns, report
        if rows:
            await self._hub.committer.commit(step)
        key = report.fleet, report.id
        if rows or key not in self._counts:
            self._counts[key] = await self._hub.read(lambda store: count_differences(store, *key))

    def compared(self) -> list[Compared]:
        """The candidates that are being compared now, by fleet."""
        fleets: dict[str, list[CandidateReport]] = {}
        for _, report in self._current():
            fleets.setdefault(report.fleet, []).append(report)
        return [_added_up(reports) for _, reports in sorted(fleets.items())]

    def result(self, fleet: str) -> CandidateResult | None:
        """The result of a fleet's candidate; None if no shard reports one."""
        newest = max((entry for entry in self._current() if entry[1].fleet == fleet), default=None, key=itemgetter(0))
        if newest is None:
            return None
        report = newest[1]
        counts = self._counts.get((fleet, report.id), Counter())
        return CandidateResult(
            id=report.id, alarms=counts[Level.ALARM.word], pre_alarms=counts[Level.PRE_ALARM.word],
            problem=_problem([entry for _, entry in self._current() if (entry.fleet, entry.id) == (fleet, report.id)]),
        )  # fmt: skip

    def counts(self) -> Iterable[tuple[tuple[str, str], int]]:
        """Yield the number of differences of each fleet's candidate, by fleet and level."""
        for compared in self.compared():
            for level, count in sorted(self._counts.get((compared.fleet, compared.id), Counter()).items()):
                yield (compared.fleet, level), count

    async def differences(self, since_ns: int, until_ns: int, limit: int) -> Sequence[StoredDifference]:
        """The newest differences of a span, the newest first. Raises StoreError."""
        return await self._hub.read(lambda store: list_differences(store, since_ns, until_ns, limit))

    def _current(self) -> list[tuple[int, CandidateReport]]:
        """The newest report of each shard, without shards that report none any more."""
        now_ns = time.time_ns()
        for key in [key for key, (arrived_ns, _) in self._reports.items() if now_ns - arrived_ns > STALE_NS]:
            del self._reports[key]
        return list(self._reports.values())


def _added_up(reports: Sequence[CandidateReport]) -> Compared:
    """Add up the reports of one fleet's shards; while a candidate is being replaced, only those of the newest one."""
    newest = max(reports, key=lambda report: report.since_ns)
    same = [report for report in reports if report.id == newest.id]
    return Compared(
        fleet=newest.fleet,
        name=newest.candidate,
        id=newest.id,
        since_ns=min(report.since_ns for report in same),
        seen=sum(report.seen for report in same),
        unseen=sum(report.unseen for report in same),
        cpu_seconds=sum(report.cpu_seconds for report in same),
        problem=_problem(same),
    )


def _problem(reports: Sequence[CandidateReport]) -> str:
    return next((report.problem[:500] for report in reports if report.problem), "")
