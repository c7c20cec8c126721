"""Conversion of a camera's observation to signs, one per kind; signs become evidence."""

from embereye.camera.device.camera import CameraDevice
from embereye.camera.device.view_store import view_of
from embereye.detect.vision.observation import Finding, Observation
from embereye.levels import Level, Sense
from embereye.shard.evidence.episodes import Sign
from embereye.v1.evidence_pb2 import Region


def signs_of(camera: CameraDevice, seen: Observation) -> list[Sign]:
    """Return the signs of `seen`, in the order of its findings."""
    view = view_of(camera.device) if seen.level > Level.CLEAR else ""
    return [
        Sign(
            device=camera.device.id,
            zone=camera.device.zone,
            kind=finding.kind,
            sense=Sense.CAMERA,
            level=finding.level,
            score=finding.score,
            why=finding.terms,
            snapshot=camera.status.still if finding.level >= Level.ALARM else b"",
            region=_region(finding, view) if finding.level > Level.CLEAR else None,
        )
        for finding in seen.findings
    ]


def _region(finding: Finding, view: str) -> Region | None:
    if finding.box is None:
        return None
    x, y, width, height = finding.box
    areas = (term.value / 100 for term in finding.terms if term.name == f"{finding.kind.word}.area")
    return Region(x=x, y=y, width=width, height=height, area=next(areas, width * height), view=view)
