"""The metrics of walk tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import ScrapedCollector, gauge

if TYPE_CHECKING:
    from embereye.addons.walktest.keeper import WalkTests

OVERDUE = gauge(
    "embereye_hub_walktest_overdue_devices",
    "Devices of a zone that were not triggered in a walk test in time; only of zones with an interval.",
    ["namespace", "zone"],
)
RUNNING = gauge("embereye_hub_walktests_running", "Walk tests that run.")


class WalkTestMetrics(ScrapedCollector):
    """Collects the metrics of walk tests; without samples on a standby replica."""

    def __init__(self, tests: "WalkTests | None") -> None:
        self._tests = tests

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        due = self._tests.due() if self._tests else []
        yield OVERDUE.rows([(each.zone, len(each.untested)) for each in due])
        yield RUNNING.rows([((), len(self._tests.running))] if self._tests else ())
