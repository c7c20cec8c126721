"""The results of `embereye bench operator`: numbers with their limits."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Number:
    """One measured number."""

    name: str
    value: float
    unit: str
    baseline: float | None  # the value that it is compared with
    ratio: float | None  # value / baseline
    reach: float  # its limit
    ok: bool
    detail: dict[str, Any]


def number(
    name: str, value: float, unit: str, reach: float, *, baseline: float | None = None, ok: bool = True, **detail: Any
) -> Number:
    """Make a number that must not exceed `reach`; `ok` adds a condition."""
    ratio = round(value / baseline, 4) if baseline else None
    return Number(name, round(value, 4), unit, baseline, ratio, reach, ok and value <= reach, detail)


def line_of(entry: Number) -> str:
    """A line about a number, for people."""
    against = f", {entry.ratio:g} of {entry.baseline:g}" if entry.baseline else ""
    detail = ", ".join(f"{key} {value}" for key, value in entry.detail.items() if not isinstance(value, dict | list))
    verdict = "ok  " if entry.ok else "MISS"
    return f"{verdict} {entry.name:<18} {entry.value:g} {entry.unit} (reach {entry.reach:g}{against}) {detail}"
