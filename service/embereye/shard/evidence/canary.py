"""A synthetic fire at every interval, through the shard's real path: the hub must alarm it in time, or people are told.

Whoever names a canary's id speaks for it: each fire draws a new one, which nobody outside of the process learns before
it has burnt out.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from embereye.levels import Level
from embereye.process.timing.aligned_sleep import until_aligned
from embereye.process.timing.clock import now_ns
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, EvidenceItem
from embereye.v1.shard_pb2 import Canary
from embereye.zone.canary import PREFIX, ZONE

logger = logging.getLogger(__name__)
POLL_SECONDS = 1.0  # between two looks at whether a fire is due
SETTLE_SECONDS = 3.0  # from the first moment that one may be lit: shards that start together do not burn together


class Fire:
    """One canary: `light` says when it begins to burn, `report` passes its evidence on."""

    def __init__(self, plan: CanaryPlan, shard: str, report: Callable[[EvidenceItem], None]) -> None:
        self.device = f"{PREFIX}{secrets.token_hex(16)}"
        self.within = plan.within_ns / SECOND
        self.reported = asyncio.Event()  # at a level that is an alarm
        self._mark = CanaryFire(shard=shard, process=plan.process, within_ns=plan.within_ns)
        self._report = report

    def light(self) -> None:
        """Its first sign is given now."""
        self._mark.lit_ns = now_ns()

    def report(self, evidence: EvidenceItem) -> None:
        """Send `evidence` as a canary's; in the spool it replaces the one before it, which says no more."""
        evidence.id = f"{PREFIX}{evidence.id}"
        evidence.episode, evidence.zone = PREFIX, ZONE
        evidence.ClearField("snapshot")
        evidence.canary.CopyFrom(self._mark)
        self._report(evidence)
        if evidence.level >= Level.ALARM:
            self.reported.set()


class Canaries:
    """Lights a fire at every interval of the assignment, as long as `ready()`.

    `light(fire)` is to give the fire's signs; it is cancelled once nobody waits for the fire any more.
    """

    def __init__(
        self,
        shard: str,
        *,
        settings: Callable[[], Canary],
        ready: Callable[[], bool],
        light: Callable[[Fire], Awaitable[None]],
        report: Callable[[EvidenceItem], None],
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._ready = ready
        self._light = light
        self._report = report
        self._process = secrets.token_hex(8)
        self._failing = ""
        self.sent = 0

    def plan(self, *, ending: bool = False) -> CanaryPlan:
        """What the hub may expect of this process; of one that is `ending`: nothing, an interval of 0."""
        settings = self._settings()
        interval_ns = 0 if ending else settings.interval_ns
        return CanaryPlan(process=self._process, interval_ns=interval_ns, within_ns=settings.within_ns)

    async def run(self) -> None:
        """Serve until cancelled. A canary that cannot be lit is logged, and missed by the hub."""
        due: float | None = None
        while True:
            now, plan = time.monotonic(), self.plan()
            if not plan.interval_ns or not self._ready():
                due = None
            elif due is None:
                due = now + random.uniform(0, min(SETTLE_SECONDS, plan.interval_ns / SECOND))
            elif now >= due:
                due = now + plan.interval_ns / SECOND
                await self._burn(Fire(plan, self._shard, self._report))
            wait = until_aligned(POLL_SECONDS)
            await asyncio.sleep(wait if due is None else max(0.0, min(wait, due - time.monotonic())))

    async def _burn(self, fire: Fire) -> None:
        self.sent += 1
        failing = ""
        try:
            async with asyncio.timeout(fire.within):
                await self._light(fire)
        except TimeoutError:
            failing = f"it made no evidence within {fire.within:g} s"
        except Exception as error:  # whatever it is, devices are watched all the same
            failing = f"{type(error).__name__}: {error}"
        if failing and failing != self._failing:
            logger.warning("the shard's canary was not seen: %s", failing)
        elif self._failing and not failing:
            logger.info("the shard's canary is seen again")
        self._failing = failing

    def metrics(self) -> Iterator[Metric]:
        """Its metric families, read at scrape time."""
        yield CounterMetricFamily("embereye_canary_sent", "Synthetic fires that were lit.", value=self.sent)
        yield GaugeMetricFamily(
            "embereye_canary_interval_seconds",
            "Between two synthetic fires; 0: there are none.",
            value=self._settings().interval_ns / SECOND,
        )
