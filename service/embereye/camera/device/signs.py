"""Conversion of a camera's observation to signs, one per kind; signs become evidence."""

from embereye.camera.device.camera import CameraDevice
from embereye.camera.device.judged import region_of
from embereye.camera.device.view_store import view_of
from embereye.detect.vision.observation import Observation
from embereye.levels import Level, Sense
from embereye.shard.evidence.episodes import Sign


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
            region=region_of(finding, view) if finding.level > Level.CLEAR else None,
        )
        for finding in seen.findings
    ]
