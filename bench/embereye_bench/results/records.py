"""Store records of benchmarks, all samples with machine and commit, and detect rows that got worse.

Records are in `bench/results`. Every sample was taken next to a reference load, the same work in every run: a slow
minute affects the reference load as much as the row.
"""

import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import UserError

VERSION = 1
WORSE = 0.05  # share by which a row may be worse, apart from noise
CONFIDENCE = 2.0  # standard errors; chance alone exceeds this in one of twenty comparisons
TOO_NOISY = 0.15  # share of noise above which a row proves nothing


@dataclass(frozen=True)
class Sample:
    """One measurement of a row."""

    value: float
    baseline: float
    reference: float  # CPU ms of the reference load next to it


@dataclass(frozen=True)
class Row:
    """One benchmark and all its samples."""

    name: str
    unit: str
    reach: str
    samples: tuple[Sample, ...]

    @property
    def higher_is_better(self) -> bool:
        """True if more is better, judging by the goal."""
        return self.reach.startswith("≥")

    @property
    def value(self) -> float:
        """The median, as measured."""
        return statistics.median(sample.value for sample in self.samples)


@dataclass(frozen=True)
class Record:
    """The results of one run."""

    at: str  # ISO 8601, UTC
    commit: str
    changed: bool  # files were changed since that commit
    machine: Mapping[str, Any]
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row | None:
        """The row `name`; None if it was not measured."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def reference(self) -> float:
        """The median CPU ms of the reference load."""
        return statistics.median(sample.reference for row in self.rows for sample in row.samples)


def describe_machine() -> dict[str, Any]:
    """The properties of this machine that numbers depend on."""
    models = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]  # fmt: skip
    memory = Path("/proc/meminfo").read_text().partition("MemTotal:")[2].split()[0]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memoryGb": round(int(memory) / 1024**2, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def is_alike(machine: Mapping[str, Any], reference: Mapping[str, Any]) -> bool:
    """True if numbers of the two machines can be compared."""
    return all(machine.get(field) == reference.get(field) for field in ("cpu", "cores"))


def write(path: Path, record: Record) -> None:
    """Write a record."""
    document = {"version": VERSION, **asdict(record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Record:
    """Read a record; UserError if it is malformed."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise UserError(f"{path}: version {document['version']} of records is not supported. Expected {VERSION}.")
        rows = tuple(
            Row(row["name"], row["unit"], row["reach"], tuple(Sample(**sample) for sample in row["samples"]))
            for row in document["rows"]
        )
        return Record(document["at"], document["commit"], document["changed"], document["machine"], rows)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a record of benchmarks: {error}") from error


@dataclass(frozen=True)
class Comparison:
    """The old and the new value of one row."""

    name: str
    unit: str
    old: float  # as measured
    new: float  # as measured
    change: float  # share by which it got better, corrected by the reference load; negative: worse
    noise: float  # share that chance may explain

    @property
    def verdict(self) -> str:
        """worse, better, same, or noisy if nothing can be concluded."""
        if self.change < -(WORSE + self.noise):
            return "worse"
        if self.noise > TOO_NOISY:
            return "noisy"
        return "better" if self.change > WORSE + self.noise else "same"


def compare(old: Record, new: Record) -> list[Comparison]:
    """Compare the rows that both records have, corrected by the speed of the machine in each."""
    comparisons = []
    for row in new.rows:
        before = old.row(row.name)
        if before is not None:
            change, noise = _change(before, row)
            comparisons.append(Comparison(row.name, row.unit, before.value, row.value, change, noise))
    return comparisons


def _change(old: Row, new: Row) -> tuple[float, float]:
    """The share by which `new` is better, and the share that chance may explain."""
    every = [sample.value for row in (old, new) for sample in row.samples]
    if min(every) <= 0:  # counts of failures: fewer are better, and shares of zero are undefined
        fewer = old.value - new.value
        return (1.0 if fewer > 0 else -1.0 if fewer < 0 else 0.0), 0.0
    (before, before_error), (now, now_error) = _estimate(old), _estimate(new)
    return math.expm1(now - before), math.expm1(CONFIDENCE * math.hypot(before_error, now_error))


def _estimate(row: Row) -> tuple[float, float]:
    """The logarithm of a row's goodness on a machine whose reference load takes 1 ms, and its standard error.

    Either by pairs of samples, if a slow minute affects both alike, or by two medians, if not: whichever varies less.
    """
    sign = 1 if row.higher_is_better else -1
    goods = [sign * math.log(sample.value) for sample in row.samples]
    loads = [math.log(sample.reference) for sample in row.samples]
    paired = [good + load for good, load in zip(goods, loads, strict=True)]
    apart = math.hypot(_error(goods), _error(loads))
    if _error(paired) <= apart:
        return statistics.median(paired), _error(paired)
    return statistics.median(goods) + statistics.median(loads), apart


def _error(values: Sequence[float]) -> float:
    """The standard error of the median, from the median absolute deviation, which resists single slow samples."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return 1.2533 * deviation / math.sqrt(len(values))
