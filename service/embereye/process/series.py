"""Families of thousands of series, written for Prometheus in a tenth of the time that its library takes for them."""

from collections.abc import Sequence
from functools import lru_cache

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


class ManySeries(Metric):
    """A gauge or a counter with many label values; `samples` are made only where somebody asks for them."""

    def __init__(self, name: str, documentation: str, type_: str, labels: Sequence[str]) -> None:
        """`name` is without a counter's _total; `type_` is gauge or counter."""
        self.rows: list[tuple[tuple[str, ...], float]] = []
        self._labels = tuple(labels)
        self._series = f"{name}_total" if type_ == "counter" else name
        super().__init__(name, documentation, type_)

    def add_metric(self, values: tuple[str, ...], value: float) -> None:
        """One series: its label values in order."""
        self.rows.append((values, value))

    @property
    def samples(self) -> list[Sample]:
        """What the library makes of any family."""
        return [
            Sample(self._series, dict(zip(self._labels, values, strict=True)), value) for values, value in self.rows
        ]

    @samples.setter
    def samples(self, _: list[Sample]) -> None:
        """The library's own constructor empties them: there are none yet."""

    def text(self) -> str:
        """The family as Prometheus reads it."""
        name, labels = self._series, self._labels
        head = f"# HELP {name} {_escaped(self.documentation, quotes=False)}\n# TYPE {name} {self.type}\n"
        return head + "".join([f"{name}{{{_labelled(labels, row)}}} {_number(value)}\n" for row, value in self.rows])


def exposition(registry: CollectorRegistry) -> bytes:
    """All families of `registry` as Prometheus reads them."""
    many: list[ManySeries] = []

    class Others:
        """What is left to the library."""

        def collect(self) -> list[Metric]:
            families: list[Metric] = []
            for family in registry.collect():
                if isinstance(family, ManySeries):
                    many.append(family)
                else:
                    families.append(family)
            return families

    return generate_latest(Others()) + "".join([family.text() for family in many]).encode()


# Devices stay the same from scrape to scrape.
@lru_cache(maxsize=16_384)
def _labelled(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(labels, values, strict=True))


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    text = repr(float(value))
    return SPECIAL.get(text, text)
