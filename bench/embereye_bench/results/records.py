"""Records of benchmarks: rows with all their samples, on which machine, of which commit; and whether one got worse.

A record stands in `bench/results`. Every sample was taken beside a reference load, the same work in every run: what a
slow minute does to a row it does to the reference load as well.
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
WORSE = 0.05  # share by which a row may be worse, noise aside
CONFIDENCE = 2.0  # standard errors: of chance alone one comparison in twenty is further off
TOO_NOISY = 0.15  # share of noise above which a row says nothing


@dataclass(frozen=True)
class Sample:
    """One measurement of a row."""

    value: float
    baseline: float
    reference: float  # CPU ms that the reference load took beside it


@dataclass(frozen=True)
class Row:
    """One benchmark and everything that was measured of it."""

    name: str
    unit: str
    reach: str
    samples: tuple[Sample, ...]

    @property
    def higher_is_better(self) -> bool:
        """Whether more is better, as what is to be reached says."""
        return self.reach.startswith("≥")

    @property
    def value(self) -> float:
        """The median, as it was measured."""
        return statistics.median(sample.value for sample in self.samples)


@dataclass(frozen=True)
class Record:
    """All that was measured in one run."""

    at: str  # ISO 8601, UTC
    commit: str
    changed: bool  # whether files were, since that commit
    machine: Mapping[str, Any]
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row | None:
        """The row `name`; None where it was not measured."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def reference(self) -> float:
        """The median of what the reference load took, CPU ms."""
        return statistics.median(sample.reference for row in self.rows for sample in row.samples)


def describe_machine() -> dict[str, Any]:
    """What the numbers of this machine depend on."""
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


def is_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether numbers of two machines can be compared."""
    return all(one.get(field) == other.get(field) for field in ("cpu", "cores"))


def write(path: Path, record: Record) -> None:
    """Write a record."""
    document = {"version": VERSION, **asdict(record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Record:
    """Read a record; UserError where it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise UserError(f"{path}: version {document['version']} of records is not {VERSION}, which is read here")
        rows = tuple(
            Row(row["name"], row["unit"], row["reach"], tuple(Sample(**sample) for sample in row["samples"]))
            for row in document["rows"]
        )
        return Record(document["at"], document["commit"], document["changed"], document["machine"], rows)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no record of benchmarks: {error}") from error


def newest(folder: Path, machine: Mapping[str, Any]) -> Path | None:
    """The latest record in `folder` of a machine like `machine`; None where there is none."""
    found = [(record.at, path) for path in folder.glob("*.json") if is_alike((record := read(path)).machine, machine)]
    return max(found)[1] if found else None


@dataclass(frozen=True)
class Comparison:
    """One row, then and now."""

    name: str
    unit: str
    old: float  # as it was measured
    new: float  # as it was measured
    change: float  # share by which it got better, the reference load taken into account; negative: worse
    noise: float  # share that may be chance

    @property
    def verdict(self) -> str:
        """worse, better, same, or noisy: where nothing can be said."""
        if self.change < -(WORSE + self.noise):
            return "worse"
        if self.noise > TOO_NOISY:
            return "noisy"
        return "better" if self.change > WORSE + self.noise else "same"


def compare(old: Record, new: Record) -> list[Comparison]:
    """The rows that both have. A machine that was slower then, by its reference load, is not held against now."""
    found = []
    for row in new.rows:
        before = old.row(row.name)
        if before is not None:
            change, noise = _change(before, row)
            found.append(Comparison(row.name, row.unit, before.value, row.value, change, noise))
    return found


def _change(old: Row, new: Row) -> tuple[float, float]:
    """Share by which `new` is better, and how much of it may be chance."""
    every = [sample.value for row in (old, new) for sample in row.samples]
    if min(every) <= 0:  # counts of what should not be: fewer are better, and there is no share of none
        fewer = old.value - new.value
        return (1.0 if fewer > 0 else -1.0 if fewer < 0 else 0.0), 0.0
    (before, before_error), (now, now_error) = _estimate(old), _estimate(new)
    return math.expm1(now - before), math.expm1(CONFIDENCE * math.hypot(before_error, now_error))


def _estimate(row: Row) -> tuple[float, float]:
    """The logarithm of how good a row is on a machine whose reference load takes 1 ms, and its standard error.

    Sample by sample, where a slow minute hits both alike, or by the two medians, where it hits one: what varies less.
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
    """The standard error of their median, from their median absolute deviation, which one slow sample does not move."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return 1.2533 * deviation / math.sqrt(len(values))
