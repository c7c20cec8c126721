"""A sensor shard's metrics, read from plain slots at scrape time."""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge, histogram
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.status import measurements
from embereye.sensor.sessions import Sessions
from embereye.sensor.tick import TickBatcher
from embereye.shard.ledger import Ledger
from embereye.shard.series import DEVICE_SERIES, over_limit

DEVICE = ("device", "zone")  # labels of a device's series
CONNECTIONS = gauge("embereye_sensor_connections", "Open text connections.")
HANDSHAKES_FAILED = counter(
    "embereye_sensor_tls_handshakes_failed_total", "Text connections whose TLS handshake failed."
)
STREAMS = gauge("embereye_sensor_streams", "Open gRPC streams.")
WAITING_BYTES = gauge("embereye_sensor_waiting_bytes", "Bytes waiting for a tick.")
TICKS = counter("embereye_sensor_ticks_total", "Ticks.")
LATENCY = histogram(
    "embereye_sensor_latency_seconds",
    "Time of a tick's packets: `wait` from the first one's arrival to the tick, `analyse` the tick's work.",
    ["stage"],
)
RELAYED = counter("embereye_sensor_relayed_total", "Messages relayed to the shard that owns their device.")
RELAY_DROPPED = counter("embereye_sensor_relay_dropped_total", "Messages that could not be relayed.")
WITH_ARCHIVE = "spec.telemetry.archive is true"
ARCHIVE_ITEMS = counter(
    "embereye_sensor_archive_items_total", "Readings and frames for the archive.", ["outcome"], only_where=WITH_ARCHIVE
)
ARCHIVE_FAILING = gauge(
    "embereye_sensor_archive_failing", "1 while the archive cannot be written.", only_where=WITH_ARCHIVE
)
LIVE_DEVICES = gauge("embereye_sensor_live_devices", "Sensors whose thermal pictures the shard sends to the hub live.")
LIVE_BYTES = counter("embereye_sensor_live_bytes_total", "Bytes of live thermal pictures sent to the hub.")
LIVE_DROPPED = counter("embereye_sensor_live_dropped_total", "Live thermal pictures that a newer one replaced.")
GARBAGE = counter("embereye_sensor_garbage_total", "Invalid lines.", ["reason"])
PACKETS = counter("embereye_sensor_packets_total", "Packets by outcome.", ["outcome"])
SHED = counter("embereye_sensor_shed_total", "Packets shed, by reason.", ["reason"])
REJECTED = counter("embereye_sensor_rejected_total", "Packets rejected, by reason.", ["reason"])
TAKEOVERS = counter("embereye_sensor_takeovers_total", "Times that a device's lines moved to another connection.")
AGE = gauge("embereye_sensor_age_seconds", "Seconds since the device was last heard.", DEVICE)
# name of a measurement → metric, factor to the base unit
GAUGES = {
    "temperature.max": (gauge("embereye_sensor_temperature_max_celsius", "Hottest pixel.", DEVICE), 1.0),
    "temperature.mean": (gauge("embereye_sensor_temperature_mean_celsius", "Mean over all pixels.", DEVICE), 1.0),
    "gas": (gauge("embereye_sensor_gas_ppm", "Gas, ppm CO2-equivalent.", DEVICE), 1.0),
    "smoke": (gauge("embereye_sensor_smoke_ratio", "Smoke, share of the converter's range.", DEVICE), 0.01),
    "flame": (gauge("embereye_sensor_flame_ratio", "Flame, share of the converter's range.", DEVICE), 0.01),
    "frames.damaged": (
        gauge(
            "embereye_sensor_damaged_frames",
            "Damaged thermal pixels and frames since the shard got the device.",
            DEVICE,
        ),
        1.0,
    ),
}


def shard_metrics(sessions: Sessions, batcher: TickBatcher, *, streams: int, garbage: Counter[str]) -> Iterator[Metric]:
    """Yield counters of the whole shard; `streams` are its open gRPC streams, `garbage` invalid lines by reason."""
    yield CONNECTIONS.value(len(sessions))
    yield HANDSHAKES_FAILED.value(sessions.handshakes_failed)
    yield STREAMS.value(streams)
    yield WAITING_BYTES.value(batcher.waiting)
    yield TICKS.value(batcher.works.count)
    yield LATENCY.histograms([(("wait",), batcher.waits), (("analyse",), batcher.works)])
    yield RELAYED.value(sessions.relayed)
    yield RELAY_DROPPED.value(sessions.relay_dropped)
    if (archive := batcher.archive) is not None:
        yield ARCHIVE_ITEMS.counts({"written": archive.written, "dropped": archive.dropped})
        yield ARCHIVE_FAILING.value(bool(archive.failing))
    yield LIVE_DEVICES.value(batcher.live.shown)
    yield LIVE_BYTES.value(batcher.live.sent_bytes)
    yield LIVE_DROPPED.value(batcher.live.dropped)
    yield GARBAGE.counts(garbage)


def device_metrics(devices: Collection[SensorDevice], departed: Ledger) -> Iterator[Metric]:
    """Yield sums over the ledgers of all devices, also `departed` ones, and gauges of each device's measurements."""
    totals = Ledger()
    for ledger in (departed, *(device.arrivals.ledger for device in devices)):
        totals.add(ledger)
    yield PACKETS.counts(
        {
            "offered": totals.offered,
            "analysed": totals.analysed,
            "duplicate": totals.duplicate,
            "shed": totals.shed.total(),
            "rejected": totals.rejected.total(),
        }
    )
    yield SHED.counts(totals.shed)
    yield REJECTED.counts(totals.rejected)
    yield TAKEOVERS.value(totals.takeovers)
    gauges = {name: metric.rows() for name, (metric, _) in GAUGES.items()}
    age = AGE.rows()
    now = now_ns()
    yield from over_limit(len(devices))
    for device in islice(devices, DEVICE_SERIES):
        labels = device.spec.id, device.spec.zone
        if heard_ns := device.arrivals.watch.heard_ns:
            age.add_metric(labels, (now - heard_ns) / 1e9)
        for name, value, _ in measurements(device):
            if name in gauges:
                gauges[name].add_metric(labels, value * GAUGES[name][1])
    yield age
    yield from gauges.values()
