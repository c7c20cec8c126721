"""Canaries: synthetic fires at regular intervals through the shard's real path. The hub warns if one raises no alarm.

Each fire has a new random id, so that other programs cannot send data for it: they do not know it before its end.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from embereye.levels import Level
from embereye.process.condition import Condition
from embereye.process.telemetry.metric import SHARDS, counter, gauge
from embereye.process.timing.aligned_sleep import until_aligned
from embereye.process.timing.clock import now_ns
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, EvidenceItem
from embereye.v1.shard_pb2 import Canary
from embereye.zone.canary import PREFIX, ZONE

logger = logging.getLogger(__name__)
POLL_SECONDS = 1.0  # between two checks whether a fire is due
SPREAD_SECONDS = 3.0  # random delay of the first fire, so that shards that start together do not burn together

SENT = counter("embereye_canary_sent_total", "Synthetic fires started.", exporters=SHARDS)
INTERVAL = gauge("embereye_canary_interval_seconds", "Seconds between two synthetic fires; 0: none.", exporters=SHARDS)


class Fire:
    """One canary: call `light` when it begins to burn, and `report` with its evidence."""

    def __init__(self, plan: CanaryPlan, shard: str, report: Callable[[EvidenceItem], None]) -> None:
        self.device = f"{PREFIX}{secrets.token_hex(16)}"
        self.within = plan.within_ns / SECOND
        self.reported = asyncio.Event()  # set once an alarm level was reported
        self._mark = CanaryFire(shard=shard, process=plan.process, within_ns=plan.within_ns)
        self._report = report

    def light(self) -> None:
        """Note that its first sign is given now."""
        self._mark.lit_ns = now_ns()

    def report(self, evidence: EvidenceItem) -> None:
        """Send `evidence` as a canary's. In the spool it replaces the previous one, because the episode is the same."""
        evidence.id = f"{PREFIX}{evidence.id}"
        evidence.episode, evidence.zone = PREFIX, ZONE
        evidence.ClearField("snapshot")
        evidence.canary.CopyFrom(self._mark)
        self._report(evidence)
        if evidence.level >= Level.ALARM:
            self.reported.set()


@dataclass(eq=False)
class Canaries:
    """Lights a fire at every interval of the assignment, while `ready()` is true.

    `light(fire)` gives the fire's signs; it is cancelled when the fire's time is over.
    """

    shard: str
    settings: Callable[[], Canary]
    ready: Callable[[], bool]
    light: Callable[[Fire], Awaitable[None]]
    report: Callable[[EvidenceItem], None]
    _process: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _failing: Condition = field(default_factory=lambda: Condition(logger, end=logging.INFO), init=False)
    sent: int = field(default=0, init=False)

    def plan(self, *, ending: bool = False) -> CanaryPlan:
        """The canaries that the hub has to expect from this process; an interval of 0, for none, if it is `ending`."""
        settings = self.settings()
        interval_ns = 0 if ending else settings.interval_ns
        return CanaryPlan(process=self._process, interval_ns=interval_ns, within_ns=settings.within_ns)

    async def run(self) -> None:
        """Light fires until cancelled. A failure is logged, and the hub notices that the canary is missing."""
        due: float | None = None
        while True:
            now, plan = time.monotonic(), self.plan()
            if not plan.interval_ns or not self.ready():
                due = None
            elif due is None:
                due = now + random.uniform(0, min(SPREAD_SECONDS, plan.interval_ns / SECOND))
            elif now >= due:
                due = now + plan.interval_ns / SECOND
                await self._burn(Fire(plan, self.shard, self.report))
            wait = until_aligned(POLL_SECONDS)
            await asyncio.sleep(wait if due is None else max(0.0, min(wait, due - time.monotonic())))

    async def _burn(self, fire: Fire) -> None:
        self.sent += 1
        failing = ""
        try:
            async with asyncio.timeout(fire.within):
                await self.light(fire)
        except TimeoutError:
            failing = f"no evidence within {fire.within:g} s"
        except Exception as error:  # no error may stop the shard from watching devices
            failing = f"{type(error).__name__}: {error}"
        if failing:
            self._failing.fail(failing, "canary: the shard did not detect it: %s", failing)
        else:
            self._failing.clear("canary: the shard detects it again")

    def metrics(self) -> Iterator[Metric]:
        """Yield its metric families."""
        yield SENT.value(self.sent)
        yield INTERVAL.value(self.settings().interval_ns / SECOND)
