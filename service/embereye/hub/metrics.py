"""The hub's metrics, collected from counters and gauges of its parts when they are scraped.

Nothing is counted here. The parts count in plain attributes, and `hub_metrics` reads them at each scrape. Each metric
is declared once as a constant. The numbers of zones and shards with separate series are limited; the most urgent zones
come first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.hub.canaries import Canaries
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.services.evidence import EvidenceService
from embereye.levels import Kind, ZoneState
from embereye.process.telemetry.metric import HUB, counter, gauge, histogram, summary, unsampled
from embereye.process.telemetry.runtime_metrics import HUB_DISK
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import Zone
from embereye.zone.quality import Row

if TYPE_CHECKING:
    from embereye.hub.mqtt.publisher import MqttPublisher

CANARY_SERIES = 1_000  # most shards with separate series
ZONE_SERIES = 1_000  # most zones with separate series, the most urgent ones
EVENT_TYPES = ("state", "fault", "fault_cleared", "test", "evidence")

EVIDENCE_RECEIVED = counter(
    "embereye_hub_evidence_received_total", "Reports received from shards, including duplicates."
)
EVIDENCE_DUPLICATE = counter("embereye_hub_evidence_duplicate_total", "Reports that were duplicates.")
EVIDENCE_UNUSABLE = counter(
    "embereye_hub_evidence_unusable_total", "Reports without an id, which cannot be acknowledged."
)
EVIDENCE_REFUSED = counter(
    "embereye_hub_evidence_refused_total", "Reports refused while the database could not be written."
)
ACCESS_REFUSED = counter("embereye_hub_access_refused_total", "Requests and calls without a valid token or session.")
ROWS_UNREADABLE = counter("embereye_hub_rows_unreadable_total", "Stored rows that could not be read and were skipped.")
COMMIT_FAILURES = counter("embereye_hub_commit_failures_total", "Attempts to write the database that failed.")
COMMIT_SECONDS = summary("embereye_hub_commit_seconds", "Time from starting a batch until it is durable.")
EVENTS = counter("embereye_hub_events_total", "Alarm events.", ["type"])
EVENTS_PUSHED = counter(
    "embereye_hub_events_pushed_total", "Events pushed to subscribers that keep up, counted once for each subscriber."
)
PACKETS = counter(
    "embereye_hub_packets_total",
    "Messages of a fleet's devices by outcome, over all owners, past and present.",
    ["fleet", "outcome"],
)
ZONES = gauge("embereye_hub_zones", "Zones.", ["state"])
ZONE_ACTIVE = gauge(
    "embereye_hub_zone_active",
    "1 for a zone that is not normal; 0 while its notifications are paused, or it is under test. `sign` is the kind of "
    "its first sign.",
    ["namespace", "zone", "state", "sign"],
)
ZONES_TESTING = gauge("embereye_hub_zones_testing", "Zones under test.")
DEVICES = gauge("embereye_hub_devices", "Devices that are declared.")
DEVICES_COVERED = gauge("embereye_hub_devices_covered", "Devices that are covered.")
DEVICES_DARK = gauge("embereye_hub_devices_dark", "Devices that are dark: their fault is open.")
FALSE_ALARM_RATE = gauge(
    "embereye_hub_false_alarms_per_device_day",
    "Alarms that people marked as false, for each device and day watched in the last 30 days. `bound` is estimate, or "
    "upper for the exact 95 % limit; computed once an hour.",
    ["kind", "version", "bound"],
)
SUBSCRIBERS = gauge("embereye_hub_subscribers", "Subscribers of the alarm feeds.")
SUBSCRIBER_LAG = gauge("embereye_hub_subscriber_lag_events", "Events that the slowest subscriber is behind.")
SHARD_STREAMS = gauge("embereye_hub_shard_streams", "Shards that are connected.")
SHARD_CLOCKS_WRONG = gauge("embereye_hub_shard_clocks_wrong", "Shards whose clock differs by more than 2 s.")
CURSOR = gauge("embereye_hub_cursor", "Cursor of the newest event.")
STORE_FAILING = gauge("embereye_hub_store_failing", "1 while the database cannot be written.")
DATABASE_LOSSES = gauge("embereye_hub_database_losses", "Losses of the database in database-losses.txt.")
CLIPS = gauge("embereye_hub_clips", "Clips and stills that are stored.")
CLIPS_BYTES = gauge("embereye_hub_clips_bytes", "Bytes of all clips and stills.")
CLIPS_FAILING = gauge("embereye_hub_clips_failing", "1 while no clip can be written.")
CLIPS_REMOVED = counter("embereye_hub_clips_removed_total", "Clips removed because of their age or for lack of room.")
WEBHOOK_ATTEMPTS = counter("embereye_hub_webhook_attempts_total", "Attempts to deliver events.", ["webhook", "outcome"])
WEBHOOK_BEHIND = gauge(
    "embereye_hub_webhook_behind_events", "Events that the webhook has not reached yet.", ["webhook"]
)
WEBHOOK_DEAD_LETTERS = gauge(
    "embereye_hub_webhook_dead_letters", "Events that the webhook gave up and that were not sent again.", ["webhook"]
)
WEBHOOK_FAILING = gauge("embereye_hub_webhook_failing", "1 while the webhook's latest attempt failed.", ["webhook"])
MQTT_BEHIND = gauge("embereye_hub_mqtt_behind_topics", "Topics whose current state the broker has not acknowledged.")
MQTT_CONNECTED = gauge("embereye_hub_mqtt_connected", "1 while the hub is connected to the MQTT broker.")
MQTT_PUBLISHED = counter("embereye_hub_mqtt_published_total", "Messages that the broker acknowledged.")
MQTT_FAILURES = counter("embereye_hub_mqtt_failures_total", "Connections to the broker that failed or broke.")
SHARD = ("namespace", "kind", "fleet", "shard")
CANARY_ALARMED = gauge(
    "embereye_canary_alarmed_timestamp_seconds",
    "Time at which the latest canary became an alarm in time.",
    SHARD,
    (HUB,),
)
CANARY_OVERDUE = gauge(
    "embereye_canary_overdue",
    "1 if no canary became an alarm in time for one interval plus its time limit.",
    SHARD,
    (HUB,),
)
CANARY_WITHOUT_SERIES = gauge(
    "embereye_canary_shards_without_series",
    f"Shards beyond the first {CANARY_SERIES}, which have no separate series.",
    exporters=(HUB,),
)
CANARY_RECEIVED = counter("embereye_canary_received_total", "Reports of canaries.", exporters=(HUB,))
CANARY_LATE = counter(
    "embereye_canary_late_total", "Canaries that became alarms after their time limit.", exporters=(HUB,)
)
CANARY_DELAY = histogram(
    "embereye_canary_delay_seconds",
    "Time from a canary's first sign until its alarm was durable.",
    ["kind"],
    (HUB,),
)


def hub_metrics(
    hub: Hub,
    evidence: EvidenceService,
    clips: ClipStore | None = None,
    data: Path | None = None,
    mqtt: "MqttPublisher | None" = None,
) -> Iterator[Metric]:
    """Yield the hub's own metrics, which start with embereye_hub_ or embereye_canary_; add-ons have theirs."""
    counters, commits = hub.inbox.counters, hub.committer.counters
    yield EVIDENCE_RECEIVED.value(counters.received)
    yield EVIDENCE_DUPLICATE.value(counters.duplicate)
    yield EVIDENCE_UNUSABLE.value(counters.unusable)
    yield EVIDENCE_REFUSED.value(counters.refused)
    yield ACCESS_REFUSED.value(hub.access.refused)
    yield ROWS_UNREADABLE.value(hub.unreadable)
    yield COMMIT_FAILURES.value(commits.failures)
    yield COMMIT_SECONDS.summary(commits.commits, commits.commit_seconds)
    yield EVENTS.rows(((kind,), hub.zones.events[kind]) for kind in EVENT_TYPES)
    yield EVENTS_PUSHED.value(hub.feed.delivered)
    yield PACKETS.rows(
        ((fleet, outcome), count)
        for fleet, counts in hub.coverage.ledgers.fleet_totals()
        for outcome, count in counts.items()
    )
    yield from _gauges(hub, evidence)
    yield from _canary_metrics(hub.canaries, hub.timeline.stepped_ns())
    yield from _webhook_metrics(hub)
    yield from _mqtt_metrics(mqtt) if mqtt else unsampled("embereye_hub_mqtt_")
    if clips is not None:
        yield from _clip_metrics(clips)
    yield from HUB_DISK.metrics(data)


def _gauges(hub: Hub, evidence: EvidenceService) -> Iterator[Metric]:
    zones = hub.zones.messages()
    states = Counter(ZoneState(zone.state) for zone in zones)
    yield ZONES.rows(
        ((state.name.lower(),), states[state]) for state in ZoneState if state is not ZoneState.UNSPECIFIED
    )
    yield ZONE_ACTIVE.rows(_active_zones(zones))
    yield ZONES_TESTING.value(sum(zone.testing for zone in zones))
    yield DEVICES.value(sum(zone.declared for zone in zones))
    yield DEVICES_COVERED.value(sum(zone.covered for zone in zones))
    yield DEVICES_DARK.value(sum(len(zone.faults) for zone in zones))
    yield FALSE_ALARM_RATE.rows(_false_alarm_rates(hub.quality.newest))
    yield SUBSCRIBERS.value(hub.feed.subscribers)
    yield SUBSCRIBER_LAG.value(hub.feed.lag)
    yield SHARD_STREAMS.value(evidence.streams)
    yield SHARD_CLOCKS_WRONG.value(evidence.clocks_wrong)
    yield CURSOR.value(hub.feed.latest)
    yield STORE_FAILING.value(bool(hub.committer.failing))
    yield DATABASE_LOSSES.value(hub.database_losses)


def _active_zones(zones: Iterable[Zone]) -> Iterator[tuple[tuple[str, ...], float]]:
    active = (zone for zone in zones if ZoneState(zone.state) not in {ZoneState.UNSPECIFIED, ZoneState.NORMAL})
    for zone in islice(active, ZONE_SERIES):
        # Not that with the smallest `since_ns`: a sign that returns has a newer one, and a new label restarts alerts.
        first = next(iter(zone.contributions), None)
        sign = Kind(first.kind).word if first else "unknown"
        labels = zone.namespace, zone.name, ZoneState(zone.state).name.lower(), sign
        yield labels, not (zone.silenced or zone.testing)


def _false_alarm_rates(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, ...], float]]:
    for row in rows:
        if len(row.subject) == 1 and (limits := row.limits) is not None:
            yield (*row.subject, row.version, "estimate"), row.false_alarms / row.days
            yield (*row.subject, row.version, "upper"), limits[1]


def _clip_metrics(clips: ClipStore) -> Iterator[Metric]:
    yield CLIPS.value(len(clips))
    yield CLIPS_BYTES.value(clips.size)
    yield CLIPS_FAILING.value(bool(clips.failing))
    yield CLIPS_REMOVED.value(clips.removed)


def _webhook_metrics(hub: Hub) -> Iterator[Metric]:
    webhooks = {webhook.options.name: webhook for webhook in hub.webhooks.all()}
    attempts = WEBHOOK_ATTEMPTS.rows()
    for name, webhook in webhooks.items():
        attempts.add_metric((name, "delivered"), webhook.delivered)
        attempts.add_metric((name, "failed"), webhook.failed)
    yield attempts
    yield WEBHOOK_BEHIND.counts({name: hub.feed.latest - webhook.position for name, webhook in webhooks.items()})
    yield WEBHOOK_DEAD_LETTERS.counts({name: webhook.dead for name, webhook in webhooks.items()})
    yield WEBHOOK_FAILING.counts({name: bool(webhook.failing) for name, webhook in webhooks.items()})


def _mqtt_metrics(mqtt: "MqttPublisher") -> Iterator[Metric]:
    yield MQTT_BEHIND.value(mqtt.behind)
    yield MQTT_CONNECTED.value(mqtt.connected)
    yield MQTT_PUBLISHED.value(mqtt.published)
    yield MQTT_FAILURES.value(mqtt.failures)


def _canary_metrics(canaries: Canaries, stepped_ns: int) -> Iterator[Metric]:
    """Yield the families of canaries, labelled with the shard's fleet; times are `stepped_ns` ahead of the timeline."""
    alarmed, overdue = CANARY_ALARMED.rows(), CANARY_OVERDUE.rows()
    beats = canaries.heartbeats(stepped_ns)
    for beat in beats[:CANARY_SERIES]:
        namespace, kind, fleet = [*beat.key.fleet.split("/"), "", ""][:3]
        labels = namespace, kind, fleet, beat.key.shard
        overdue.add_metric(labels, beat.overdue)
        if beat.latest is not None:
            alarmed.add_metric(labels, beat.latest.alarmed_ns / SECOND)
    yield alarmed
    yield overdue
    yield CANARY_WITHOUT_SERIES.value(len(beats[CANARY_SERIES:]))
    yield CANARY_RECEIVED.value(canaries.received)
    yield CANARY_LATE.value(canaries.late)
    yield CANARY_DELAY.histograms(((kind,), histogram) for kind, histogram in canaries.delays.items())
