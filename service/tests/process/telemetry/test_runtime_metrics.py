"""The metrics of every process."""

import asyncio
import time

from prometheus_client import CollectorRegistry

from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.telemetry.runtime_metrics import PROBE_SECONDS, RuntimeMetrics


async def test_a_blocked_event_loop_shows_in_its_lag() -> None:
    registry = CollectorRegistry()
    probe = asyncio.create_task(RuntimeMetrics(registry).run())
    await asyncio.sleep(0)
    time.sleep(PROBE_SECONDS + 0.31)  # noqa: ASYNC251  # block the loop
    await asyncio.sleep(0.01)
    probe.cancel()
    assert registry.get_sample_value("embereye_event_loop_lag_seconds_count") == 1
    late = registry.get_sample_value("embereye_event_loop_lag_seconds_sum")
    assert late is not None
    assert late >= 0.3


def test_threads_and_version_are_reported() -> None:
    registry = CollectorRegistry()
    RuntimeMetrics(registry)
    assert (registry.get_sample_value("embereye_threads") or 0) >= 1
    (build,) = (family for family in registry.collect() if family.name == "embereye_build_info")
    assert build.samples[0].labels["version"]


def test_a_negative_duration_does_not_reduce_the_sum() -> None:
    ages = LatencyHistogram()
    for seconds in (0.2, -30.0):  # of a picture whose camera's clock is ahead
        ages.observe(seconds)
    assert ages.sum == 0.2
    assert dict(ages.buckets())["0.001"] == 1
