"""The metrics of readings by HTTP."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge

WHERE = "the fleet has a source push or http"
REQUESTS = counter(
    "embereye_sensor_http_requests_total",
    "Requests that bring readings, by status code.",
    ("status",),
    only_where=WHERE,
)
POLLS = counter(
    "embereye_sensor_http_polls_total", "Requests for readings, by outcome.", ("outcome",), only_where=WHERE
)
POLLED_FAILING = gauge(
    "embereye_sensor_http_failing", "Sensors that cannot be read by HTTP at present.", only_where=WHERE
)


@dataclass
class Counts:
    """The counts of one shard."""

    requests: Counter[int] = field(default_factory=Counter)  # by status code
    polls: Counter[str] = field(default_factory=Counter)  # read, failed

    def metrics(self, failing: int) -> Iterator[Metric]:
        """Yield all metric families; `failing` is the number of sensors that cannot be read."""
        yield REQUESTS.rows(((str(status),), float(number)) for status, number in sorted(self.requests.items()))
        yield POLLS.rows(((outcome,), float(number)) for outcome, number in sorted(self.polls.items()))
        yield POLLED_FAILING.rows([((), float(failing))])
