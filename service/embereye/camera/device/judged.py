"""The detectors' results in one picture, for people who want to see what the detectors see."""

from embereye.camera.device.setup import Setup
from embereye.detect.vision.observation import Finding
from embereye.levels import Kind
from embereye.margins import Measured, lasted, measured
from embereye.v1.evidence_pb2 import Judged, Region
from embereye.v1.types_pb2 import Term


def least_score(kind: Kind, setup: Setup) -> float:
    """The score from which a place is suspected, 0..1; 0: this kind has none."""
    return {Kind.SMOKE: setup.smoke_threshold, Kind.FLAME: setup.flame_threshold}.get(kind, 0.0)


def judged(finding: Finding, setup: Setup) -> Judged:
    """Describe `finding`."""
    least = least_score(finding.kind, setup)
    message = Judged(
        kind=finding.kind.wire,
        level=finding.level.wire,
        score=finding.score,
        threshold=least,
        region=region_of(finding),
        why=finding.terms,
    )
    if value := nearest(finding, least):
        name, amount, limit, unit = value
        message.nearest.CopyFrom(Term(name=name, value=amount, threshold=limit, unit=unit))
    return message


def nearest(finding: Finding, least: float) -> Measured | None:
    """The value that decides about an alarm: how long the sign lasted, or its score if there is none."""
    if finding.decisive or finding.kind == Kind.HEAT:
        return finding.decisive
    if finding.lasted_ns and finding.needed_ns:
        return lasted(finding.kind, finding.lasted_ns, finding.needed_ns)
    if finding.terms and finding.terms[0].name.startswith("model."):
        term = finding.terms[0]
        return measured(term.name, term.value, term.threshold, term.unit)
    return measured(f"{finding.kind.word}.score", finding.score, least, "1")


def region_of(finding: Finding, view: str = "") -> Region | None:
    """The place of `finding` in the camera's picture; None if it has none."""
    if finding.box is None:
        return None
    x, y, width, height = finding.box
    areas = (term.value / 100 for term in finding.terms if term.name == f"{finding.kind.word}.area")
    return Region(x=x, y=y, width=width, height=height, area=next(areas, width * height), view=view)
