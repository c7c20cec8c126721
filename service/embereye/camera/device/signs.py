"""From what a camera sees to the signs that become evidence: one for each kind."""

from embereye.camera.device.camera import CameraDevice
from embereye.detect.vision.observation import Observation
from embereye.levels import Level, Sense
from embereye.shard.evidence.episodes import Sign


def signs_of(camera: CameraDevice, seen: Observation) -> list[Sign]:
    """The signs of `seen`, in the order of its findings."""
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
        )
        for finding in seen.findings
    ]
