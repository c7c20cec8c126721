"""A sensor shard's metrics, read from plain slots at scrape time."""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from prometheus_client.core import Metric

from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.telemetry.series import Histograms, ManySeries, counter, gauge
from embereye.process.timing.clock import now_ns
from embereye.sensor.archive import Archive
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.status import measurements
from embereye.shard.ledger import Ledger
from embereye.shard.series import DEVICE_SERIES, over_limit

# name of a measurement → metric, help, factor to the base unit
GAUGES = {
    "temperature.max": ("temperature_max_celsius", "Hottest pixel.", 1.0),
    "temperature.mean": ("temperature_mean_celsius", "Mean over all pixels.", 1.0),
    "gas": ("gas_ppm", "Gas, ppm CO2-equivalent.", 1.0),
    "smoke": ("smoke_ratio", "Smoke, share of the converter's range.", 0.01),
    "flame": ("flame_ratio", "Flame, share of the converter's range.", 0.01),
    "frames.damaged": ("damaged_frames", "Damaged thermal pixels and frames since the shard got the device.", 1.0),
}


class ShardCounts(NamedTuple):
    """The counts of a shard, besides its devices' ledgers."""

    connections: int  # open text connections
    handshakes_failed: int  # of text connections with TLS
    streams: int  # open gRPC streams
    waiting_bytes: int  # waiting for a tick
    ticks: int
    relayed: int  # messages relayed to the shard that owns their device
    relay_dropped: int
    garbage: Counter[str]  # invalid lines, by reason
    archive: Archive | None
    waits: LatencyHistogram  # wait of a tick's first packet for the tick
    works: LatencyHistogram  # duration of ticks


def shard_metrics(counts: ShardCounts) -> Iterator[Metric]:
    """Yield counters of the whole shard."""
    yield gauge("embereye_sensor_connections", "Open text connections.", counts.connections)
    yield counter(
        "embereye_sensor_tls_handshakes_failed", "Text connections whose TLS handshake failed.",
        counts.handshakes_failed,
    )  # fmt: skip
    yield gauge("embereye_sensor_streams", "Open gRPC streams.", counts.streams)
    yield gauge("embereye_sensor_waiting_bytes", "Bytes waiting for a tick.", counts.waiting_bytes)
    yield counter("embereye_sensor_ticks", "Ticks.", counts.ticks)
    latency = Histograms(
        "embereye_sensor_latency_seconds",
        "Time of a tick's packets: `wait` from the first one's arrival to the tick, `analyse` the tick's work.",
        labels=["stage"],
    )
    for stage, histogram in (("wait", counts.waits), ("analyse", counts.works)):
        latency.add_metric((stage,), histogram.buckets(), histogram.sum)
    yield latency
    yield counter("embereye_sensor_relayed", "Messages relayed to the shard that owns their device.", counts.relayed)
    yield counter("embereye_sensor_relay_dropped", "Messages that could not be relayed.", counts.relay_dropped)
    if (archive := counts.archive) is not None:
        items = Counter(written=archive.written, dropped=archive.dropped)
        yield _labelled("embereye_sensor_archive_items", "Readings and frames for the archive.", items, "outcome")
        yield gauge("embereye_sensor_archive_failing", "1 while the archive cannot be written.", bool(archive.failing))
    yield _labelled("embereye_sensor_garbage", "Invalid lines.", counts.garbage)


def device_metrics(devices: Collection[SensorDevice], departed: Ledger) -> Iterator[Metric]:
    """Yield sums over the ledgers of all devices, also `departed` ones, and gauges of each device's measurements."""
    totals = Ledger()
    for ledger in (departed, *(device.arrivals.ledger for device in devices)):
        totals.add(ledger)
    packets = Counter(
        offered=totals.offered,
        analysed=totals.analysed,
        duplicate=totals.duplicate,
        shed=totals.shed.total(),
        rejected=totals.rejected.total(),
    )
    yield _labelled("embereye_sensor_packets", "Packets by outcome.", packets, "outcome")
    yield _labelled("embereye_sensor_shed", "Packets shed, by reason.", totals.shed)
    yield _labelled("embereye_sensor_rejected", "Packets rejected, by reason.", totals.rejected)
    yield counter(
        "embereye_sensor_takeovers", "Times that a device's lines moved to another connection.", totals.takeovers
    )
    gauges = {
        name: ManySeries(f"embereye_sensor_{metric}", text, "gauge", ("device", "zone"))
        for name, (metric, text, _) in GAUGES.items()
    }
    age = ManySeries(
        "embereye_sensor_age_seconds", "Seconds since the device was last heard.", "gauge", ("device", "zone")
    )
    now = now_ns()
    yield from over_limit(len(devices))
    for device in islice(devices, DEVICE_SERIES):
        labels = device.spec.id, device.spec.zone
        if heard_ns := device.arrivals.watch.heard_ns:
            age.add_metric(labels, (now - heard_ns) / 1e9)
        for name, value, _ in measurements(device):
            if name in gauges:
                gauges[name].add_metric(labels, value * GAUGES[name][2])
    yield age
    yield from gauges.values()


def _labelled(name: str, text: str, counts: Counter[str], label: str = "reason") -> Metric:
    family = ManySeries(name, text, "counter", (label,))
    for reason, count in sorted(counts.items()):
        family.add_metric((reason,), count)
    return family
