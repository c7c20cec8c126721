"""A dashboard, its rows, panels and queries, and the selector and interval of every query.

`panels.py` lists the dashboards of EmberEye. The module `monitoring` of an add-on lists panels for the hub's row.
"""

from dataclasses import dataclass
from typing import Literal

C = 'cluster=~"$cluster"'  # selects by the variable that every dashboard has
RATE = "$__rate_interval"


@dataclass(frozen=True)
class Query:
    """An expression, and the legend of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel; the runbook of `alert` explains problems that it shows."""

    title: str
    description: str
    unit: str  # in Grafana's notation
    alert: str
    queries: tuple[Query, ...]
    form: Literal["timeseries", "stat", "table"] = "timeseries"
    warning: float | None = None  # yellow from here, red from `critical`; lower values are worse if critical < warning
    critical: float | None = None
    width: int = 8  # of 24
    # The condition under which it shows anything.
    needs: str = ""
    words: tuple[tuple[str, str], ...] = ()  # shown instead of the values 0, 1, …: text and color


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard; its file and uid contain `name`."""

    name: str
    title: str
    description: str
    variables: tuple[Literal["namespace", "fleet", "sensor shard", "camera shard"], ...]
    rows: tuple[Row, ...]
    scaling: bool = False  # mark changes of the number of shards
    fires: bool = False  # mark the times of fire alarms


def line(expression: str, legend: str = "") -> tuple[Query, ...]:
    """Return the only query of a panel."""
    return (Query(expression, legend),)
