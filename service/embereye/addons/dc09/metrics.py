"""The metrics of monitoring stations and of panels that report here."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge
from embereye.units import SECOND

if TYPE_CHECKING:
    from embereye.addons.dc09.listener import Listener
    from embereye.addons.dc09.station import Station

FAILING = gauge(
    "embereye_hub_dc09_receiver_failing", "1 while a receiver of a monitoring station does not answer.",
    ("station", "receiver"),
)  # fmt: skip
WAITING = gauge("embereye_hub_dc09_waiting_messages", "Messages that no receiver has acknowledged.", ("station",))
OLDEST = gauge(
    "embereye_hub_dc09_waiting_seconds", "Age of the oldest message that no receiver has acknowledged.", ("station",)
)
MESSAGES = counter("embereye_hub_dc09_messages_total", "Messages for a monitoring station.", ("station", "outcome"))
PANELS = counter("embereye_hub_dc09_panel_messages_total", "Messages of panels.", ("outcome",))
OUTCOMES = ("acknowledged", "repeated", "refused", "polled")


def dc09_metrics(stations: "Sequence[Station]", listener: "Listener | None") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_dc09_."""
    yield FAILING.rows(
        ((station.options.name, str(receiver)), float(bool(condition)))
        for station in stations
        for receiver, condition in station.failing.items()
    )
    yield WAITING.rows(((station.options.name,), float(len(station.queue.waiting))) for station in stations)
    yield OLDEST.rows(((station.options.name,), station.waiting_ns / SECOND) for station in stations)
    yield MESSAGES.rows(
        ((station.options.name, outcome), float(count))
        for station in stations
        for outcome, count in (
            *((outcome, station.counts[outcome]) for outcome in OUTCOMES), ("dropped", station.queue.dropped),
        )
    )  # fmt: skip
    yield PANELS.counts(listener.counts if listener else {})
