"""What of an assignment a camera's detectors depend on, in a form that can be compared."""

from dataclasses import dataclass
from functools import cached_property

from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device

AVAILABLE = ("flame", "heat", "motion", "smoke")  # built-in detectors of this version
MODEL = "model"  # the fleet's own


@dataclass(frozen=True)
class Setup:
    """Equal setups mean that nothing which was learnt has to be forgotten."""

    detectors: tuple[str, ...]
    masks: bytes  # serialised, to compare
    flame_threshold: float
    smoke_threshold: float
    model: bytes  # serialised, to compare; empty: none
    heat: bytes  # thresholds and what a word is worth, serialised, to compare

    @classmethod
    def of(cls, device: Device, settings: CameraSettings) -> "Setup":
        """The setup of `device` under `settings`: the device's own detectors, else the fleet's and its model."""
        masks = b"".join(mask.SerializeToString(deterministic=True) + b";" for mask in device.masks)
        detectors = tuple(sorted(device.detectors or {*settings.detectors, MODEL}))
        model = settings.model.SerializeToString(deterministic=True) if MODEL in detectors else b""
        heat = settings.heat.SerializeToString(deterministic=True)
        heat += b";" + device.radiometry.SerializeToString(deterministic=True)
        return cls(detectors, masks, settings.flame_threshold, settings.smoke_threshold, model, heat)

    # Cached: asked for with every frame.

    @cached_property
    def builtin(self) -> bool:
        """Whether any built-in detector is wanted."""
        return any(name in AVAILABLE for name in self.detectors)

    @cached_property
    def watches_pictures(self) -> bool:
        """Whether a built-in detector that works on pictures, not on temperatures, is wanted."""
        return any(name in AVAILABLE and name != "heat" for name in self.detectors)
