"""The results of `embereye bench operator`: numbers with their limits."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)


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


def attempt(name: str, measure: Callable[[], None], show: Callable[[Sequence[Number]], None]) -> None:
    """Run a measurement; its failure is shown as a number that misses its limit and does not stop the others."""
    try:
        measure()
    except Exception as error:
        logger.exception("benchmark %s failed", name)
        show([number(name, 0.0, "", 0.0, ok=False, failed=f"{type(error).__name__}: {error}"[:200])])


def line_of(entry: Number) -> str:
    """A line about a number, for people."""
    against = f", {entry.ratio:g} of {entry.baseline:g}" if entry.baseline else ""
    detail = ", ".join(f"{key} {value}" for key, value in entry.detail.items() if not isinstance(value, dict | list))
    verdict = "ok  " if entry.ok else "MISS"
    return f"{verdict} {entry.name:<18} {entry.value:g} {entry.unit} (reach {entry.reach:g}{against}) {detail}"
