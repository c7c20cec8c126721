"""Sentences about signs, values and durations, for people."""

from collections.abc import Sequence

from embereye.levels import Kind
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term

_MINUTE = 60
_OVER_NORMAL = "temperature.over_normal"
_AREA = "area."  # "area.NAME.KIND"
_REPORTED = ".reported"  # the device itself has decided
_DRIFTS = {"left": "to the left", "right": "to the right", "up": "upwards", "down": "downwards"}


def quantity(value: float, unit: str) -> str:
    """`value` with as many digits as help a reader, and its unit: "61.3 °C", "15/s"; "1" is no unit."""
    digits = f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if unit in {"", "1"}:
        return digits
    return f"{digits}{unit[1:]}" if unit.startswith("1/") else f"{digits} {unit}"


def _decisive(terms: Sequence[Term]) -> Term | None:
    """The first term at or over its threshold, else the first one; None without terms."""
    crossed = [term for term in terms if term.threshold and term.value >= term.threshold]
    return next(iter(crossed or terms), None)


def smoke_words(terms: Sequence[Term]) -> str:
    """Say in words how smoke-like a place is to the appearance network; "" if the terms do not say."""
    values = {term.name: term.value for term in terms}
    if "smoke.likeness" not in values:
        return ""
    words = f"-like {values['smoke.likeness']:.0f} % of this place, usually {values.get('smoke.usual', 0.0):.0f} %"
    if growing := values.get("smoke.growing"):
        words += f"; growing for {growing:.0f} s"
    for direction, phrase in _DRIFTS.items():
        if f"smoke.drift.{direction}" in values:
            words += f"; drifts {phrase}"
    return words


def area_words(term: Term) -> str:
    """Say what a measuring area measured: "belt: highest 84 °C, limit 80 °C"; "" if `term` is not of an area."""
    if not term.name.startswith(_AREA):
        return ""
    area, _, kind = term.name.removeprefix(_AREA).rpartition(".")
    return f"{area}: {kind} {quantity(term.value, term.unit)}, limit {quantity(term.threshold, term.unit)}"


def sign(item: EvidenceItem) -> str:
    """One sign in words: "heat 61.3 °C ≥ 57 °C at s-01"."""
    if words := smoke_words(item.why):
        return f"{Kind(item.kind).word}{words} at {item.device}"
    term = _decisive(item.why)
    if term is not None and (words := area_words(term)):
        return f"{words} at {item.device}"
    if term is not None and term.name.endswith(_REPORTED):
        return f"{term.name.removesuffix(_REPORTED)} reported by {item.device}"
    if term is None:
        measured = f"score {quantity(item.score, '')}"
    elif not term.threshold:
        measured = quantity(term.value, term.unit)
    else:
        relation = "≥" if term.value >= term.threshold else "against"
        measured = f"{quantity(term.value, term.unit)} {relation} {quantity(term.threshold, term.unit)}"
    if term is not None and term.name == _OVER_NORMAL:
        measured += " over normal"
    relative = " (a rise, not calibrated)" if item.relative else ""
    return f"{Kind(item.kind).word} {measured}{relative} at {item.device}"


def duration(nanoseconds: int) -> str:
    """A rounded time span: "45 s", "5 min", "26 h"."""
    seconds = nanoseconds / 1e9
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 120 * _MINUTE:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _MINUTE / 60:.0f} h"
