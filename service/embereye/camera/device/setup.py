"""The settings that a camera's detectors depend on, in a form that can be compared."""

from dataclasses import dataclass
from functools import cached_property

from embereye.detect.vision.thresholds import SmokeScene
from embereye.v1 import shard_pb2 as pb
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device

AVAILABLE = ("flame", "heat", "motion", "smoke")  # built-in detectors of this version
MODEL = "model"  # the fleet's own network
SCENES = {
    pb.SMOKE_SCENE_UNSPECIFIED: SmokeScene.ROOM,
    pb.SMOKE_SCENE_ROOM: SmokeScene.ROOM,
    pb.SMOKE_SCENE_YARD: SmokeScene.YARD,
    pb.SMOKE_SCENE_LANDSCAPE: SmokeScene.LANDSCAPE,
}


@dataclass(frozen=True)
class Setup:
    """The settings of one camera's analysis. If two are equal, no learned state has to be dropped."""

    detectors: tuple[str, ...]
    masks: bytes  # also for privacy; serialised, to compare
    flame_threshold: float
    smoke_threshold: float
    smoke_scene: SmokeScene
    model: bytes  # serialised, to compare; empty: none
    heat: bytes  # thresholds, areas and the unit of frames, serialised, to compare

    @classmethod
    def of(cls, device: Device, settings: CameraSettings) -> "Setup":
        """Make the setup of `device` under `settings`: the device's detectors, or else the fleet's and its model."""
        masks = b"".join(mask.SerializeToString(deterministic=True) + b";" for mask in device.masks)
        masks += b"".join(mask.SerializeToString(deterministic=True) + b"," for mask in device.privacy_masks)
        detectors = tuple(sorted(device.detectors or {*settings.detectors, MODEL}))
        model = settings.model.SerializeToString(deterministic=True) if MODEL in detectors else b""
        scene = SCENES.get(settings.smoke_scene, SmokeScene.ROOM)  # later versions may have more
        heat = settings.heat.SerializeToString(deterministic=True)
        heat += b";" + device.radiometry.SerializeToString(deterministic=True)
        heat += b"".join(b";" + area.SerializeToString(deterministic=True) for area in device.areas)
        return cls(detectors, masks, settings.flame_threshold, settings.smoke_threshold, scene, model, heat)

    # Cached because every frame reads them.

    @cached_property
    def has_builtin(self) -> bool:
        """True if any built-in detector is wanted."""
        return any(name in AVAILABLE for name in self.detectors)

    @cached_property
    def has_picture_detector(self) -> bool:
        """True if a built-in detector for pictures, not temperatures, is wanted."""
        return any(name in AVAILABLE and name != "heat" for name in self.detectors)
