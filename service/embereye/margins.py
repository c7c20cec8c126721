"""Margins: how far each detector's strongest result was from an alarm, and what suppressed it. Pure.

A device's results of some seconds become one `Margin`, with one `Peak` for each kind of fire. Margins are stored, so
that people can ask later why there was no alarm. They are plain dictionaries, because they are sent and stored as JSON.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, TypedDict

from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Term

DIGITS = 4  # of a stored value

Measured = tuple[str, float, float, str]  # name, value, limit (0: none), unit


class Suppressed(TypedDict):
    """A reason why a detector demanded more, or counted less."""

    by: str  # "familiar", "marked", "colourless", "confirmation", "test"
    why: str


class Peak(TypedDict, total=False):
    """The strongest result of one kind; values that are empty may be missing."""

    kind: str
    level: str
    score: float  # 0..1
    nearest: Measured  # the value that decides about an alarm, beside the limit of an alarm; missing: there is none
    terms: Sequence[Measured]
    note: str
    suppressed: Sequence[Suppressed]


class Margin(TypedDict, total=False):
    """One device's results from `fromNs` to `untilNs`; values that are empty may be missing."""

    device: str
    fromNs: int  # nanoseconds since the Unix epoch
    untilNs: int
    analysed: int  # readings and frames
    shed: dict[str, int]  # by reason
    rejected: dict[str, int]  # by reason
    blind: str  # why it could not show a fire at the end
    masked: float  # 0..1, share of the picture that masks hide
    peaks: Sequence[Peak]


class Result(Protocol):
    """A detector's result: a `Finding`, an `Assessment` or a `HeatAssessment`."""

    @property
    def level(self) -> Level: ...  # noqa: D102
    @property
    def score(self) -> float: ...  # noqa: D102
    @property
    def terms(self) -> Sequence[Term]: ...  # noqa: D102


def rounded(value: float) -> float:
    """`value` with as many digits as are stored; NaN and infinity, which JSON lacks, become 0."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else 0.0


def measured(name: str, value: float, limit: float, unit: str) -> Measured:
    """A value beside its limit, as stored."""
    return name, rounded(value), rounded(limit), unit


def measured_terms(terms: Iterable[Term]) -> list[Measured]:
    """Terms as stored."""
    return [measured(term.name, term.value, term.threshold, term.unit or "1") for term in terms]


def share(value: Measured) -> float:
    """The value as a share of its limit; 0 without a limit."""
    return max(0.0, value[1] / value[2]) if value[2] > 0 else 0.0


def nearest_of(values: Iterable[Measured]) -> Measured | None:
    """The value with the greatest share of its limit; None if none has one. Limits from below do not count."""
    limited = [value for value in values if value[2] > 0 and not value[0].endswith(".below")]
    return max(limited, key=share, default=None)


def peak_of(
    kind: Kind,
    result: Result,
    nearest: Measured | None,
    note: str = "",
    suppressed: Sequence[Suppressed] = (),
) -> Peak:
    """Make the peak of one kind from its strongest `result`."""
    peak: Peak = {"kind": kind.word, "level": result.level.word, "score": rounded(result.score)}
    if nearest:
        peak["nearest"] = measured(*nearest)
    if terms := measured_terms(result.terms):
        peak["terms"] = terms
    if note:
        peak["note"] = note
    if suppressed:
        peak["suppressed"] = suppressed
    return peak


def lasted(kind: Kind, lasted_ns: int, needed_ns: int) -> Measured:
    """A sign's duration beside that of an alarm, as stored."""
    return measured(f"{kind.word}.lasted", lasted_ns / SECOND, needed_ns / SECOND, "s")
