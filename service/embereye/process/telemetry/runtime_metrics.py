"""Metrics of every process: version, event loop, threads, memory, descriptors, certificates, disk.

`RuntimeMetrics` registers itself, and reads nearly everything when the page of metrics is requested. Only the event
loop's lag is measured in between: `run` sleeps for a fixed time, again and again, and records how late it woke up.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric

from embereye.process.identity.credentials import Credentials
from embereye.process.malformed import refused
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.telemetry.metric import EVERYBODY, ScrapedCollector, counter, gauge, histogram
from embereye.process.telemetry.tracing import own_version
from embereye.process.tls.folder import ServerTls

PROBE_SECONDS = 0.5  # between two measurements of the event loop's lag
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds

BUILD = gauge("embereye_build_info", "Always 1; the version is a label.", ["version"], EVERYBODY)
LAG = histogram(
    "embereye_event_loop_lag_seconds", "Delay with which the event loop woke its probe.", exporters=EVERYBODY
)
MALFORMED = counter(
    "embereye_grpc_malformed_total",
    "gRPC calls refused because a message was not valid protobuf.",
    exporters=EVERYBODY,
)
EXPIRATION = gauge(
    "embereye_certificate_expiration_timestamp_seconds",
    "Expiry of the process's certificate.",
    ["ports"],
    EVERYBODY,
    "control: of processes with --identity; of operators only the leader; open: of processes that serve TLS for "
    "devices or people",
)
THREADS = gauge("embereye_threads", "Threads of the process.", exporters=EVERYBODY)
# Those that alerts and dashboards use of prometheus_client's ProcessCollector, with its help texts.
counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", exporters=EVERYBODY)
gauge("process_max_fds", "Maximum number of open file descriptors.", exporters=EVERYBODY)
gauge("process_open_fds", "Number of open file descriptors.", exporters=EVERYBODY)
gauge("process_resident_memory_bytes", "Resident memory size in bytes.", exporters=EVERYBODY)
gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", exporters=EVERYBODY)


class RuntimeMetrics(ScrapedCollector):
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
        self._version = own_version()
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

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield BUILD.value(1, self._version)
        yield LAG.histograms([((), self._lag)])
        yield MALFORMED.value(refused.count)
        expirations = EXPIRATION.rows()
        if credentials := self._credentials():
            expirations.add_metric(("control",), credentials.current.expires)
        if self._tls:
            expirations.add_metric(("open",), self._tls.current.expires)
        if expirations.rows:
            yield expirations
        if (threads := _threads()) is not None:
            yield THREADS.value(threads)


def _threads() -> int | None:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # not on Linux
        return None


class DiskMetrics:
    """Free space and size of the file system where a component stores data."""

    def __init__(self, component: str) -> None:
        self._free = gauge(f"embereye_{component}_disk_free_bytes", "Free space of the file system with the data.")
        self._size = gauge(f"embereye_{component}_disk_size_bytes", "Size of the file system with the data.")

    def metrics(self, folder: Path | None) -> Iterator[Metric]:
        """Yield both for the file system of `folder`; nothing without a folder, or if it cannot be reached."""
        if folder is None:
            return
        try:
            stat = os.statvfs(folder)
        except OSError:  # writes fail, too, which other metrics show
            return
        yield self._free.value(stat.f_bavail * stat.f_frsize)
        yield self._size.value(stat.f_blocks * stat.f_frsize)


SHARD_DISK, HUB_DISK = DiskMetrics("shard"), DiskMetrics("hub")
