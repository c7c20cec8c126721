"""The metric of statements."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import gauge

if TYPE_CHECKING:
    from embereye.addons.statements.keeper import Statements

MISSING = gauge("embereye_hub_statements_missing", "Past days without a statement of watch, an hour after midnight.")


def statement_metrics(statements: "Statements") -> Iterator[Metric]:
    """Yield the metric of statements."""
    yield MISSING.value(statements.overdue)
