"""The metrics of notifications."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import ScrapedCollector, counter, gauge

if TYPE_CHECKING:
    from embereye.addons.notify.notifier import Notifier

ATTEMPTS = counter(
    "embereye_hub_notify_attempts_total", "Attempts to send messages to people.", ["route", "outcome"]
)  # fmt: skip
WAITING = gauge(
    "embereye_hub_notify_waiting", "News about alarms and faults that a route has not accepted yet.", ["route"]
)
DEAD = gauge("embereye_hub_notify_dead_letters", "News that the route gave up and that was not sent again.", ["route"])
FAILING = gauge("embereye_hub_notify_failing", "1 while the route's latest attempt failed.", ["route"])
UNCONFIRMED = gauge(
    "embereye_hub_notify_unconfirmed", "1 while nobody has confirmed the route's canary in time.", ["route"]
)
CALENDAR_STALE = gauge(
    "embereye_hub_notify_calendar_stale", "1 while the calendar of a duty was not readable for too long.", ["duty"]
)
UNROUTED = gauge("embereye_hub_notify_unrouted_alarms", "Open alarms for which no escalation is declared.")


class NotifyMetrics(ScrapedCollector):
    """Collects the metrics that start with embereye_hub_notify_; without samples if nobody is notified."""

    def __init__(self, notifier: "Notifier | None") -> None:
        self._notifier = notifier

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        outlets = self._notifier.outlets if self._notifier else {}
        incidents = self._notifier.incidents if self._notifier else None
        yield ATTEMPTS.rows(
            ((name, outcome), value)
            for name, outlet in outlets.items()
            for outcome, value in (("delivered", outlet.sent), ("failed", outlet.failed))
        )
        pending = {name: len(incidents.pending(name)) for name in outlets} if incidents else {}
        dead = {name: len(incidents.dead(name)) for name in outlets} if incidents else {}
        yield WAITING.counts(pending)
        yield DEAD.counts(dead)
        yield FAILING.counts({name: bool(outlet.failing) for name, outlet in outlets.items()})
        yield UNCONFIRMED.counts(
            {
                name: self._notifier.proofs[name].state(outlet.route.canary, self._notifier.now_ns()) == "unconfirmed"
                for name, outlet in outlets.items()
            }
            if self._notifier
            else {}
        )
        calendars = self._notifier.calendars if self._notifier else None
        yield CALENDAR_STALE.counts({name: calendars.is_stale(name) for name in calendars.duties} if calendars else {})
        yield UNROUTED.rows([((), len(incidents.unrouted()))] if incidents else ())
