"""The metrics of notifications."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge

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


def notify_metrics(notifier: "Notifier") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_notify_."""
    outlets, incidents, calendars = notifier.outlets, notifier.incidents, notifier.calendars
    yield ATTEMPTS.rows(
        ((name, outcome), value)
        for name, outlet in outlets.items()
        for outcome, value in (("delivered", outlet.sent), ("failed", outlet.failed))
    )
    yield WAITING.counts({name: len(incidents.pending(name)) for name in outlets})
    yield DEAD.counts({name: len(incidents.dead(name)) for name in outlets})
    yield FAILING.counts({name: bool(outlet.failing) for name, outlet in outlets.items()})
    states = {name: notifier.proofs[name].state(each.route.canary, notifier.now_ns()) for name, each in outlets.items()}
    yield UNCONFIRMED.counts({name: state == "unconfirmed" for name, state in states.items()})
    yield CALENDAR_STALE.counts({name: calendars.is_stale(name) for name in calendars.duties})
    yield UNROUTED.value(len(incidents.unrouted()))
