"""Metrics of every shard, read at scrape time."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge
from embereye.shard.evidence.reporter import Reporter
from embereye.shard.evidence.spool import Spool
from embereye.v1.shard_pb2 import ShardStatus

DEVICES = gauge("embereye_shard_devices", "Devices this shard owns.")
COVERED = gauge("embereye_shard_devices_covered", "Owned devices that are covered.")
EPOCH = gauge("embereye_shard_epoch", "Epoch of the assignment in force.")
UTILIZATION = gauge("embereye_shard_utilization_ratio", "Share of one core in use.")
QUEUE_DEPTH = gauge("embereye_shard_queue_depth", "Items waiting for analysis.")
OLDEST_ITEM = gauge("embereye_shard_oldest_item_seconds", "Age of the item that has waited longest.")
ARRIVALS = gauge("embereye_shard_arrivals_per_second", "Arriving items: packets and readings, or frames.")
ITEM_COST = gauge("embereye_shard_item_cost_seconds", "CPU time of the whole process per item analysed.")
DRAINING = gauge("embereye_shard_draining", "1 while it hands its devices over.")
DEGRADED = gauge("embereye_shard_degraded", "1 while it cannot do a requested task besides watching.")
HUB_CONNECTED = gauge("embereye_shard_hub_connected", "1 while the hub is reachable.")
SPOOLED = gauge("embereye_shard_evidence_spooled", "Reports not yet acknowledged.")
WAITING = gauge(
    "embereye_shard_evidence_waiting_seconds", "Time in which the hub has acknowledged none of the waiting reports."
)
DELIVERED = counter("embereye_shard_evidence_delivered_total", "Reports the hub made durable.")
DROPPED = counter("embereye_shard_evidence_dropped_total", "Reports lost to a full spool.")


def shard_metrics(status: ShardStatus, reporter: Reporter, spool: Spool) -> Iterator[Metric]:
    """Yield the state of a shard and of its reports."""
    load = status.load
    yield DEVICES.value(status.declared)
    yield COVERED.value(status.covered)
    yield EPOCH.value(status.epoch)
    yield UTILIZATION.value(load.utilization)
    yield QUEUE_DEPTH.value(load.queue_depth)
    yield OLDEST_ITEM.value(load.oldest_age_ns / 1e9)
    yield ARRIVALS.value(load.arrival_rate)
    yield ITEM_COST.value(load.cost_seconds)
    yield DRAINING.value(status.draining)
    yield DEGRADED.value(bool(status.degraded))
    yield HUB_CONNECTED.value(reporter.connected)
    yield SPOOLED.value(len(spool))
    yield WAITING.value(spool.waiting_seconds())
    yield DELIVERED.value(reporter.delivered)
    yield DROPPED.value(spool.dropped)
