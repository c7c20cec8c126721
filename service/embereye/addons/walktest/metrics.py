"""The metrics of walk tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import gauge

if TYPE_CHECKING:
    from embereye.addons.walktest.keeper import WalkTests

OVERDUE = gauge(
    "embereye_hub_walktest_overdue_devices",
    "Devices of a zone that were not triggered in a walk test in time; only of zones with an interval.",
    ["namespace", "zone"],
)
RUNNING = gauge("embereye_hub_walktests_running", "Walk tests that run.")


def walktest_metrics(tests: "WalkTests") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_walktest."""
    yield OVERDUE.rows([(each.zone, len(each.untested)) for each in tests.due()])
    yield RUNNING.value(len(tests.running))
