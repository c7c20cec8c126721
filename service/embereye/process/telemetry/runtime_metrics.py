"""Metrics of every process: version, event loop, threads, memory, descriptors, certificates, disk."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from embereye.process.identity.credentials import Credentials
from embereye.process.malformed import refused
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.tls.folder import ServerTls

PROBE_SECONDS = 0.5  # between two measurements of the event loop's lag
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


class RuntimeMetrics(Collector):
    """Registers itself and prometheus_client's collectors; `run` measures the event loop."""

    def __init__(
        self,
        registry: CollectorRegistry,
        credentials: Callable[[], Credentials | None] = lambda: None,
        tls: ServerTls | None = None,
    ) -> None:
        """`credentials` returns the process's present credentials, if any; `tls` is for its open ports."""
        self._tls = tls
        self._credentials = credentials
        self._lag = LatencyHistogram(LAG_BOUNDS)
        try:
            self._version = version("embereye")
        except PackageNotFoundError:
            self._version = "unknown"
        registry.register(self)
        for part in (ProcessCollector, PlatformCollector, GCCollector):
            part(registry=registry)

    async def run(self) -> None:
        """Measure how late the event loop wakes this task, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_SECONDS
            await asyncio.sleep(PROBE_SECONDS)
            self._lag.observe(loop.time() - due)

    def describe(self) -> Iterable[Metric]:
        """Return no families: otherwise prometheus_client would collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        build = GaugeMetricFamily("embereye_build_info", "Always 1; the version is a label.", labels=["version"])
        build.add_metric([self._version], 1)
        yield build
        yield HistogramMetricFamily(
            "embereye_event_loop_lag_seconds",
            "Delay with which the event loop woke its probe.",
            buckets=self._lag.buckets(),
            sum_value=self._lag.sum,
        )
        yield CounterMetricFamily(
            "embereye_grpc_malformed",
            "gRPC calls refused because a message was not valid protobuf.",
            value=refused.count,
        )
        expirations = GaugeMetricFamily(
            "embereye_certificate_expiration_timestamp_seconds",
            "Expiry of the process's certificate.",
            labels=["ports"],
        )
        if credentials := self._credentials():
            expirations.add_metric(["control"], credentials.current.expires)
        if self._tls:
            expirations.add_metric(["open"], self._tls.current.expires)
        if expirations.samples:
            yield expirations
        if (threads := _threads()) is not None:
            yield GaugeMetricFamily("embereye_threads", "Threads of the process.", value=threads)


def _threads() -> int | None:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # not on Linux
        return None


def disk_metrics(component: str, folder: Path | None) -> Iterator[Metric]:
    """Yield free room and size of the file system of `folder`, where a component stores data."""
    if folder is None:
        return
    try:
        stat = os.statvfs(folder)
    except OSError:  # unreachable: writes fail, too, which other metrics show
        return
    yield GaugeMetricFamily(
        f"embereye_{component}_disk_free_bytes",
        "Free space of the file system with the data.",
        value=stat.f_bavail * stat.f_frsize,
    )
    yield GaugeMetricFamily(
        f"embereye_{component}_disk_size_bytes", "Size of the file system with the data.",
        value=stat.f_blocks * stat.f_frsize,
    )  # fmt: skip
