"""The metrics of self-tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import gauge
from embereye.units import SECOND

if TYPE_CHECKING:
    from embereye.addons.selftest.keeper import SelfTestKeeper

PASSED = gauge(
    "embereye_hub_selftest_passed",
    "1 if the newest run of a self-test was seen in time; 0 if it was not, or could not be run.",
    ["test"],
)
RUN = gauge("embereye_hub_selftest_run_timestamp_seconds", "Start of the newest run of a self-test.", ["test"])


def selftest_metrics(tests: "SelfTestKeeper") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_selftest."""
    known = [(name, result) for name, result in tests.results().items() if result and result.outcome != "running"]
    yield PASSED.rows([((name,), result.outcome == "seen") for name, result in known])
    yield RUN.rows([((name,), result.started_ns / SECOND) for name, result in known])
