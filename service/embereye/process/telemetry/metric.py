"""Metric families. Each is declared once, beside the code that measures it; the page of metrics collects them.

A declaration is a module's constant and enters `DECLARED` on import, where a second one with the same name is an error.
The start of the name says which processes export it, its end gives the unit. A declaration has no values: collectors
pass them to `value`, `rows` or `histograms` at each scrape.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import Metric as Family
from prometheus_client.core import SummaryMetricFamily
from prometheus_client.registry import Collector

from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.telemetry.series import Histograms, ManySeries

OPERATOR, SENSOR, CAMERA, HUB = "operator", "sensor shard", "camera shard", "hub"
SHARDS = (SENSOR, CAMERA)
EVERYBODY = (OPERATOR, *SHARDS, HUB)
EXPORTERS = {
    "embereye_fleet_": (OPERATOR,),
    "embereye_operator_": (OPERATOR,),
    "embereye_shard_": SHARDS,
    "embereye_sensor_": (SENSOR,),
    "embereye_camera_": (CAMERA,),
    "embereye_hub_": (HUB,),
}
UNITS = {  # by the end of a name; the first that matches
    "cpu_seconds": "CPU seconds",
    "cost_seconds": "CPU seconds",
    "timestamp_seconds": "seconds since 1970",
    "_per_second": "1/s",
    "_hertz": "1/s",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_ratio": "ratio",
    "_ppm": "ppm",
    "_celsius": "°C",
    "_cores": "cores",
}

DECLARED: dict[str, "Metric"] = {}  # every family whose module was imported, by name


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric family. A counter's name ends in _total; a histogram's or summary's series add _bucket, _sum, _count."""

    name: str
    type: Literal["counter", "gauge", "histogram", "summary"]
    help: str
    labels: tuple[str, ...] = ()  # set by the process
    exporters: tuple[str, ...] = ()  # those that the name says, if empty
    only_where: str = ""  # the condition under which it exists, if it does not always

    def __post_init__(self) -> None:
        """Add it to the declared ones.

        Raises:
            ValueError: the name is taken, or does not say who exports it.
        """
        if self.name in DECLARED:
            raise ValueError(f"{self.name} is declared twice")
        if not self.exporters:
            by_name = [who for start, who in EXPORTERS.items() if self.name.startswith(start)]
            if not by_name:
                raise ValueError(f"{self.name} does not say who exports it")
            object.__setattr__(self, "exporters", by_name[0])
        DECLARED[self.name] = self

    @property
    def unit(self) -> str:
        """The unit of its values; empty: a count, or 0 and 1."""
        name = self.name.removesuffix("_total")
        return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series."""
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}.get(self.type, ("",))
        return tuple(f"{self.name}{suffix}" for suffix in suffixes)

    def value(self, value: float, *labels: str) -> Family:
        """Return the family with one series: its value, and its label values in order."""
        return self.rows([(labels, value)])

    def rows(self, rows: Iterable[tuple[tuple[str, ...], float]] = ()) -> ManySeries:
        """Return the family of a gauge or counter with a series for each row: label values in order, and the value."""
        family = ManySeries(self.name.removesuffix("_total"), self.help, self.type, self.labels)
        family.rows.extend(rows)
        return family

    def counts(self, counts: Mapping[str, float]) -> ManySeries:
        """Return the family with one label, and a series for each of its values in `counts`."""
        return self.rows([((name,), count) for name, count in sorted(counts.items())])

    def histograms(self, rows: Iterable[tuple[tuple[str, ...], LatencyHistogram]]) -> Family:
        """Return the family with a histogram for each row: label values in order, and the histogram."""
        family = Histograms(self.name, self.help, self.labels)
        for labels, histogram in rows:
            family.add_metric(labels, histogram.buckets(), histogram.sum)
        return family

    def summary(self, count: int, total: float) -> Family:
        """Return the family of a summary without labels."""
        return SummaryMetricFamily(self.name, self.help, count_value=count, sum_value=total)


class ScrapedCollector(Collector):
    """A collector whose families are read only at scrape time."""

    def describe(self) -> Iterable[Family]:
        """Return no families: otherwise prometheus_client would collect at registration."""
        return ()


class Scraped(ScrapedCollector):
    """Collects the families that a function yields."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """Call the function."""
        return self._families()


def unsampled(start: str) -> Iterator[Family]:
    """Yield the declared gauges and counters whose name begins with `start`, without samples."""
    return (metric.rows() for name, metric in DECLARED.items() if name.startswith(start))


def gauge(
    name: str, text: str, labels: Sequence[str] = (), exporters: tuple[str, ...] = (), only_where: str = ""
) -> Metric:
    """Declare a gauge; `text` is its help."""
    return Metric(name, "gauge", text, tuple(labels), exporters, only_where)


def counter(
    name: str, text: str, labels: Sequence[str] = (), exporters: tuple[str, ...] = (), only_where: str = ""
) -> Metric:
    """Declare a counter, whose name ends in _total; `text` is its help."""
    return Metric(name, "counter", text, tuple(labels), exporters, only_where)


def histogram(
    name: str, text: str, labels: Sequence[str] = (), exporters: tuple[str, ...] = (), only_where: str = ""
) -> Metric:
    """Declare a histogram; `text` is its help."""
    return Metric(name, "histogram", text, tuple(labels), exporters, only_where)


def summary(name: str, text: str, exporters: tuple[str, ...] = ()) -> Metric:
    """Declare a summary without labels; `text` is its help."""
    return Metric(name, "summary", text, (), exporters)
