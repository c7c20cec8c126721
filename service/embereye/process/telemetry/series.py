"""Metric families that are written for Prometheus in a quarter of its library's time, which checks every name.

They store label values and numbers as plain tuples and format them themselves. `exposition` joins their text with that
of other families, which the library formats. Formatted labels are cached, because devices are the same from scrape to
scrape. Code that reads `samples`, such as tests, gets the library's objects.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


class ManySeries(Metric):
    """A gauge or a counter with many label values; `samples` are made only on demand."""

    def __init__(self, name: str, documentation: str, type_: str, labels: Sequence[str]) -> None:
        """`name` is without a counter's _total; `type_` is gauge or counter."""
        self.rows: list[tuple[tuple[str, ...], float]] = []
        self._labels = tuple(labels)
        self._series = f"{name}_total" if type_ == "counter" else name
        # The same fields as in the library's constructor, which spends 2 µs on checking the name.
        self.name, self.documentation, self.type, self.unit = name, documentation, type_, ""

    def add_metric(self, values: tuple[str, ...], value: float) -> None:
        """Add a series: its label values, in order, and its value."""
        self.rows.append((values, value))

    @property
    def samples(self) -> list[Sample]:  # type: ignore[override] # the library has a list there
        """The samples in the library's form."""
        return [
            Sample(self._series, dict(zip(self._labels, values, strict=True)), value) for values, value in self.rows
        ]

    def text(self) -> str:
        """The family in Prometheus' text format."""
        name, labels = self._series, self._labels
        head = f"# HELP {name} {_escaped(self.documentation, quotes=False)}\n# TYPE {name} {self.type}\n"
        return head + "".join([f"{name}{_braced(labels, row)} {_number(value)}\n" for row, value in self.rows])


class Histograms(Metric):
    """Histograms with the same bounds, one for each tuple of label values."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self.name, self.documentation, self.type, self.unit = name, documentation, "histogram", ""
        self._rows: list[tuple[tuple[str, ...], Sequence[tuple[str, float]], float]] = []
        self._labels = tuple(labels)

    def add_metric(self, values: tuple[str, ...], buckets: Sequence[tuple[str, float]], total: float) -> None:
        """Add a histogram: its label values, cumulative counts by upper bound (the last is +Inf), and the sum."""
        self._rows.append((values, buckets, total))

    @property
    def samples(self) -> list[Sample]:  # type: ignore[override] # the library has a list there
        """The samples in the library's form."""
        family = HistogramMetricFamily(self.name, self.documentation, labels=self._labels)
        for values, buckets, total in self._rows:
            family.add_metric(values, buckets, total)
        return family.samples

    def text(self) -> str:
        """The family in Prometheus' text format."""
        name, lines = self.name, []
        for values, buckets, total in self._rows:
            heads = _bucket_heads(name, self._labels, values, tuple([bound for bound, _ in buckets]))
            lines += [f"{head}{_number(count)}\n" for head, (_, count) in zip(heads, buckets, strict=True)]
            braced = _braced(self._labels, values)
            lines.append(f"{name}_count{braced} {_number(buckets[-1][1])}\n{name}_sum{braced} {_number(total)}\n")
        head = f"# HELP {name} {_escaped(self.documentation, quotes=False)}\n# TYPE {name} histogram\n"
        return head + "".join(lines)


def exposition(registry: CollectorRegistry) -> bytes:
    """All families of `registry` in Prometheus' text format."""
    texts: list[str] = []
    others: list[Metric] = []
    for family in registry.collect():
        if isinstance(family, ManySeries | Histograms):
            texts.append(family.text())
        else:
            others.append(family)
    return (generate_latest(_Families(others)) if others else b"") + "".join(texts).encode()


class _Families(Collector):
    """The families that the library formats."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


# Cached, because devices are the same from scrape to scrape.
@lru_cache(maxsize=16_384)
def _braced(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(labels, values, strict=True))
    return f"{{{text}}}" if text else ""


@lru_cache(maxsize=1024)
def _bucket_heads(
    name: str, labels: tuple[str, ...], values: tuple[str, ...], bounds: tuple[str, ...]
) -> tuple[str, ...]:
    pairs = [sorted(zip((*labels, "le"), (*values, bound), strict=True)) for bound in bounds]
    return tuple(
        f"{name}_bucket{_braced(tuple(key for key, _ in pair), tuple(value for _, value in pair))} " for pair in pairs
    )


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    text = repr(float(value))
    return SPECIAL.get(text, text)
