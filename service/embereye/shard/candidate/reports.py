"""The reports of a shard's candidate to the hub: its differences, and regularly its counts.

Differences wait in memory until the hub has stored them; the oldest are dropped beyond PENDING.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import grpc

from embereye.process.candidates_call import CALL, CandidateReport, DifferenceRow
from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.tasks import UnrequestedCancellationError, first_of, no_stray_cancellation
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.shard.candidate.comparison import Difference
from embereye.shard.candidate.counts import CandidateCounts
from embereye.shard.links import Links
from embereye.v1.shard_pb2 import Candidate

logger = logging.getLogger(__name__)
PENDING = 1_000  # differences that wait for the hub
PART = 200  # differences in one report
REPORT_SECONDS = 30.0  # between two reports without differences
SEND_SECONDS = 10.0  # to wait for the hub's answer
DRAIN_SECONDS = 1.0


class CandidateReports:
    """Sends the differences of one candidate after another. For one event loop."""

    def __init__(self, names: Callable[[], tuple[str, str]]) -> None:
        """`names` returns the names of the fleet and the shard."""
        self._names = names
        self._candidate: Candidate | None = None
        self._counts = CandidateCounts()
        self._since_ns = 0
        self._problem = ""  # the latest one
        self._pending = deque[DifferenceRow](maxlen=PENDING)
        self._wake = asyncio.Event()

    def begin(self, candidate: Candidate | None = None, counts: CandidateCounts | None = None) -> None:
        """Report about `candidate` from now on; None: there is none. Unsent differences of another one are dropped."""
        self._candidate, self._counts, self._since_ns = candidate, counts or CandidateCounts(), now_ns()
        self._pending.clear()
        self._wake.set()

    def add(self, difference: Difference) -> None:
        """Send `difference` soon."""
        self._counts.note(difference)
        self._pending.append(
            DifferenceRow(
                id=difference.id, device=difference.device, zone=difference.zone, kind=difference.kind.word,
                level=difference.level.word, which=difference.which, atNs=difference.at_ns, terms=difference.terms,
                episode=difference.episode,
            )
        )  # fmt: skip
        self._wake.set()

    def note_problem(self) -> None:
        """Report soon if the reason why devices are not compared has changed. Call it about every second."""
        if self._counts.problem != self._problem:
            self._problem = self._counts.problem
            self._wake.set()

    async def run(self, links: Links) -> None:
        """Send reports until cancelled; later if the hub cannot be reached."""
        backoff, failing, failed = Backoff(floor=0.5, cap=30.0), Condition(logger), 0
        while True:
            await first_of(self._wake.wait(), timeout=REPORT_SECONDS)
            if reason := await self._send(links, failed):
                failed += 1
                failing.fail(reason, "reports of the candidate wait for the hub: %s; alarms are not affected", reason)
                await asyncio.sleep(backoff.next())
            else:
                failing.clear("the hub stores reports of the candidate again")
                backoff.reset()
                failed = 0

    async def drain(self, links: Links) -> None:
        """Send everything for a moment; the rest is lost."""
        if self._pending:
            try:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._send(links)
            except TimeoutError:
                pass

    def _report(self, candidate: Candidate, rows: list[DifferenceRow]) -> CandidateReport:
        fleet, shard = self._names()
        counts = self._counts
        return CandidateReport(
            fleet, shard, candidate.name, candidate.id, self._since_ns, now_ns(),
            counts.seen, counts.unseen, counts.cpu_seconds, rows, counts.problem,
        )  # fmt: skip

    async def _send(self, links: Links, failed: int = 0) -> str:
        """Send what waits; return why that stopped early, or ''."""
        self._wake.clear()
        async with links.hub(failed) as link:
            while (candidate := self._candidate) is not None:
                rows = list(self._pending)[:PART]
                try:
                    with no_stray_cancellation("reporting a candidate"):
                        await CALL.send(link, self._report(candidate, rows).dump(), SEND_SECONDS)
                except UnrequestedCancellationError as error:
                    self._wake.set()
                    return str(error)
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.INVALID_ARGUMENT:
                        self._wake.set()
                        return reason_of(error)
                    logger.warning("a report of the candidate is refused: %s", error.details())
                sent = {row["id"] for row in rows}
                while self._pending and self._pending[0]["id"] in sent:
                    self._pending.popleft()
                if not self._pending:
                    break
        return ""
