"""The metric of statements."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import ScrapedCollector, gauge

if TYPE_CHECKING:
    from embereye.addons.statements.keeper import Statements

MISSING = gauge("embereye_hub_statements_missing", "Past days without a statement of watch, an hour after midnight.")


class StatementMetrics(ScrapedCollector):
    """Collects the metric of statements; without samples on a standby replica."""

    def __init__(self, statements: "Statements | None") -> None:
        self._statements = statements

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        yield MISSING.rows([((), self._statements.overdue)] if self._statements else ())
