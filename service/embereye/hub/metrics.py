"""The hub's metrics, collected from counters and gauges of its parts when they are scraped."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from embereye.hub.associations import Associations
from embereye.hub.canaries import Canaries
from embereye.hub.clips.store import ClipStore
from embereye.hub.control.actuators import Actuators
from embereye.hub.hub import Hub
from embereye.hub.services.evidence import EvidenceService
from embereye.levels import ZoneState
from embereye.process.telemetry.runtime_metrics import disk_metrics
from embereye.units import SECOND

if TYPE_CHECKING:
    from embereye.hub.bus.jetstream import JetStreamBus
    from embereye.hub.mqtt.publisher import MqttPublisher

CANARY_SERIES = 1_000  # most shards with separate series


class HubCollector(Collector):
    """Collects all metrics that start with embereye_hub_ or embereye_canary_."""

    def __init__(
        self,
        hub: Hub,
        evidence: EvidenceService,
        clips: ClipStore | None = None,
        data: Path | None = None,
        control: "ControlMetrics | None" = None,
        mqtt: "MqttPublisher | None" = None,
        bus: "JetStreamBus | None" = None,
    ) -> None:
        self._hub = hub
        self._evidence = evidence
        self._clips = clips
        self._data = data
        self._control = control
        self._mqtt = mqtt
        self._bus = BusMetrics(bus)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise prometheus_client would collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        counters, commits = self._hub.inbox.counters, self._hub.committer.counters
        for name, text, value in (
            ("evidence_received", "Reports received from shards, including duplicates.", counters.received),
            ("evidence_duplicate", "Reports that were duplicates.", counters.duplicate),
            ("evidence_unusable", "Reports without an id, which cannot be acknowledged.", counters.unusable),
            ("access_refused", "Requests and calls without a valid token or session.", self._hub.access.refused),
            ("evidence_refused", "Reports refused while the database could not be written.", counters.refused),
            ("rows_unreadable", "Stored rows that could not be read and were skipped.", self._hub.unreadable),
            ("commit_failures", "Attempts to write the database that failed.", commits.failures),
        ):
            yield CounterMetricFamily(f"embereye_hub_{name}", text, value=value)
        events = CounterMetricFamily("embereye_hub_events", "Alarm events.", labels=["type"])
        for kind in ("state", "fault", "fault_cleared", "test", "evidence"):
            events.add_metric([kind], self._hub.zones.events[kind])
        yield events
        yield CounterMetricFamily(
            "embereye_hub_events_pushed",
            "Events pushed to subscribers that keep up, counted once for each subscriber.",
            value=self._hub.feed.delivered,
        )
        yield SummaryMetricFamily(
            "embereye_hub_commit_seconds",
            "Time from starting a batch until it is durable.",
            count_value=commits.commits,
            sum_value=commits.commit_seconds,
        )
        packets = CounterMetricFamily(
            "embereye_hub_packets",
            "Messages of a fleet's devices by outcome, over all owners, past and present.",
            labels=["fleet", "outcome"],
        )
        for fleet, counts in self._hub.coverage.ledgers.fleet_totals():
            for outcome, count in counts.items():
                packets.add_metric([fleet, outcome], count)
        yield packets
        yield from self._gauges()
        yield from _canary_metrics(self._hub.canaries, self._hub.timeline.stepped_ns())
        yield from _webhook_metrics(self._hub)
        yield from _mqtt_metrics(self._mqtt)
        yield from self._bus.collect()
        if self._clips is not None:
            yield from self._clip_metrics(self._clips)
        if self._control is not None:
            yield from self._control.collect()
        yield from disk_metrics("hub", self._data)

    @staticmethod
    def _clip_metrics(clips: ClipStore) -> Iterator[Metric]:
        for name, text, value in (
            ("clips", "Clips and stills that are stored.", len(clips)),
            ("clips_bytes", "Bytes of all clips and stills.", clips.size),
            ("clips_failing", "1 while no clip can be written.", int(bool(clips.failing))),
        ):
            yield GaugeMetricFamily(f"embereye_hub_{name}", text, value=value)
        yield CounterMetricFamily(
            "embereye_hub_clips_removed", "Clips removed because of their age or for lack of room.", value=clips.removed
        )

    def _gauges(self) -> Iterator[Metric]:
        hub, zones = self._hub, self._hub.zones.messages()
        states = Counter(ZoneState(zone.state) for zone in zones)
        by_state = GaugeMetricFamily("embereye_hub_zones", "Zones.", labels=["state"])
        for state in ZoneState:
            if state is not ZoneState.UNSPECIFIED:
                by_state.add_metric([state.name.lower()], states[state])
        yield by_state
        for name, text, value in (
            ("devices", "Devices that are declared.", sum(zone.declared for zone in zones)),
            ("devices_covered", "Devices that are covered.", sum(zone.covered for zone in zones)),
            ("devices_dark", "Devices that are dark: their fault is open.", sum(len(zone.faults) for zone in zones)),
            ("zones_testing", "Zones under test.", sum(zone.testing for zone in zones)),
            ("subscribers", "Subscribers of the alarm feeds.", hub.feed.subscribers),
            ("subscriber_lag_events", "Events that the slowest subscriber is behind.", hub.feed.lag),
            ("shard_streams", "Shards that are connected.", self._evidence.streams),
            ("shard_clocks_wrong", "Shards whose clock differs by more than 2 s.", self._evidence.clocks_wrong),
            ("cursor", "Cursor of the newest event.", hub.feed.latest),
            ("store_failing", "1 while the database cannot be written.", int(bool(hub.committer.failing))),
            ("database_losses", "Losses of the database in database-losses.txt.", hub.database_losses),
        ):
            yield GaugeMetricFamily(f"embereye_hub_{name}", text, value=value)


def _webhook_metrics(hub: Hub) -> Iterator[Metric]:
    webhooks = hub.webhooks.all()
    attempts = CounterMetricFamily(
        "embereye_hub_webhook_attempts", "Attempts to deliver events.", labels=["webhook", "outcome"]
    )
    for webhook in webhooks:
        attempts.add_metric([webhook.options.name, "delivered"], webhook.delivered)
        attempts.add_metric([webhook.options.name, "failed"], webhook.failed)
    yield attempts
    for name, text, value in (
        (
            "behind_events",
            "Events that the webhook has not reached yet.",
            lambda webhook: hub.feed.latest - webhook.position,
        ),
        ("dead_letters", "Events that the webhook gave up and that were not sent again.", lambda webhook: webhook.dead),
        ("failing", "1 while the webhook's latest attempt failed.", lambda webhook: int(bool(webhook.failing))),
    ):
        gauge = GaugeMetricFamily(f"embereye_hub_webhook_{name}", text, labels=["webhook"])
        for webhook in webhooks:
            gauge.add_metric([webhook.options.name], value(webhook))
        yield gauge


def _mqtt_metrics(mqtt: "MqttPublisher | None") -> Iterator[Metric]:
    """Yield the families of MQTT, without samples if no broker is declared."""
    behind = GaugeMetricFamily(
        "embereye_hub_mqtt_behind_topics", "Topics whose current state the broker has not acknowledged.", labels=()
    )
    connected = GaugeMetricFamily(
        "embereye_hub_mqtt_connected", "1 while the hub is connected to the MQTT broker.", labels=()
    )
    published = CounterMetricFamily("embereye_hub_mqtt_published", "Messages that the broker acknowledged.", labels=())
    failures = CounterMetricFamily(
        "embereye_hub_mqtt_failures", "Connections to the broker that failed or broke.", labels=()
    )
    if mqtt is not None:
        behind.add_metric((), mqtt.behind)
        connected.add_metric((), int(mqtt.connected))
        published.add_metric((), mqtt.published)
        failures.add_metric((), mqtt.failures)
    yield from (behind, connected, published, failures)


class BusMetrics(Collector):
    """Collects the metrics that start with embereye_hub_bus_; without samples if NATS is not used."""

    def __init__(self, bus: "JetStreamBus | None") -> None:
        self._bus = bus

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise prometheus_client would collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        bus = self._bus
        failing = GaugeMetricFamily(
            "embereye_hub_bus_failing", "1 while the stream in NATS accepts no reports.", labels=()
        )
        waiting = GaugeMetricFamily(
            "embereye_hub_bus_waiting_reports", "Reports in the stream that this hub has not read.", labels=()
        )
        published = CounterMetricFamily(
            "embereye_hub_bus_published", "Reports that the stream acknowledged.", labels=()
        )
        failures = CounterMetricFamily(
            "embereye_hub_bus_failures", "Connections to NATS that failed or broke.", labels=()
        )
        if bus is not None:
            failing.add_metric((), int(bool(bus.failing)))
            waiting.add_metric((), bus.pending)
            published.add_metric((), bus.published)
            failures.add_metric((), bus.failures)
        yield from (failing, waiting, published, failures)


class ControlMetrics:
    """Collects the metrics that start with embereye_hub_control_ or embereye_hub_associations."""

    def __init__(self, actuators: Actuators, associations: Associations) -> None:
        self._actuators = actuators
        self._associations = associations

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        counts, actuators, now = self._actuators.counts, self._actuators.all, self._actuators.steady()
        steered = [actuator for actuator in actuators if actuator.controller is not None]
        for name, text, value in (
            ("control_actuators", "Actuators that are connected.", len(actuators)),
            (
                "control_actuators_silent",
                "Connected actuators that are silent.",
                sum(actuator.is_silent(now) for actuator in actuators),
            ),
            ("control_controllers", "Controllers that steer an actuator.", len(steered)),
            ("associations", "Associations that are open.", len(self._associations)),
        ):
            yield GaugeMetricFamily(f"embereye_hub_{name}", text, value=value)
        for name, text, value in (
            ("control_states", "States that actuators sent.", counts.states),
            ("control_commands", "Commands that took effect.", counts.commands),
            ("control_missed", "Commands that missed their deadline.", counts.missed),
            ("control_fallbacks", "Times that safe values replaced a controller's.", counts.fallbacks),
            ("control_refused", "Control sessions that ended because of an invalid message.", counts.refused),
            ("associations_refused", "Associations that were refused.", self._associations.refused),
        ):
            yield CounterMetricFamily(f"embereye_hub_{name}", text, value=value)


def _canary_metrics(canaries: Canaries, stepped_ns: int) -> Iterator[Metric]:
    """Yield the families of canaries, labelled with the shard's fleet; times are `stepped_ns` ahead of the timeline."""
    labels = ["namespace", "kind", "fleet", "shard"]
    alarmed = GaugeMetricFamily(
        "embereye_canary_alarmed_timestamp_seconds",
        "Time at which the latest canary became an alarm in time.",
        labels=labels,
    )
    overdue = GaugeMetricFamily(
        "embereye_canary_overdue",
        "1 if no canary became an alarm in time for one interval plus its time limit.",
        labels=labels,
    )
    beats = canaries.heartbeats(stepped_ns)
    for beat in beats[:CANARY_SERIES]:
        names = [*[*beat.key.fleet.split("/"), "", ""][:3], beat.key.shard]
        overdue.add_metric(names, int(beat.overdue))
        if beat.latest is not None:
            alarmed.add_metric(names, beat.latest.alarmed_ns / SECOND)
    yield alarmed
    yield overdue
    yield GaugeMetricFamily(
        "embereye_canary_shards_without_series",
        f"Shards beyond the first {CANARY_SERIES}, which have no separate series.",
        value=len(beats[CANARY_SERIES:]),
    )
    yield CounterMetricFamily("embereye_canary_received", "Reports of canaries.", value=canaries.received)
    yield CounterMetricFamily(
        "embereye_canary_late", "Canaries that became alarms after their time limit.", value=canaries.late
    )
    delays = HistogramMetricFamily(
        "embereye_canary_delay_seconds", "Time from a canary's first sign until its alarm was durable.", labels=["kind"]
    )
    for kind, histogram in canaries.delays.items():
        delays.add_metric([kind], histogram.buckets(), histogram.sum)
    yield delays
