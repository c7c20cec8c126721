"""From what a camera sees to the signs that become evidence: one for each kind."""

from embereye.camera.device.camera import CameraDevice
from embereye.detect.vision.observation import Observation
from embereye.shard.episodes import Sign
from embereye.v1.types_pb2 import Level, Sense


def signs_of(camera: CameraDevice, seen: Observation) -> list[Sign]:
    """The signs of `seen`, in the order of its findings."""
    return [
        Sign(
            device=camera.device.id,
            zone=camera.device.zone,
            kind=finding.kind,
            sense=Sense.SENSE_CAMERA,
            level=finding.level,
            score=finding.score,
            why=finding.terms,
            snapshot=camera.status.still if finding.level >= Level.LEVEL_ALARM else b"",
        )
        for finding in seen.findings
    ]
