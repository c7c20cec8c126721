"""Privacy masks of one camera: parts of its pictures that nobody may see.

Its frames are neither shown nor stored. Instead, the decoder makes a picture twice a second, in which these parts are
black.
"""

from dataclasses import dataclass, field

from embereye.units import SECOND, Polygon
from embereye.v1.types_pb2 import Device

PICTURE_NS = SECOND // 2  # between two pictures
PRIVATE = "PRIVATE"  # instead of an encoding, in live pictures


@dataclass
class Privacy:
    """The hidden parts, and the times that matter to them, nanoseconds since the Unix epoch."""

    hidden: tuple[Polygon, ...] = field(default=(), init=False)
    _since_ns: int = field(default=0, init=False)
    _pictured_ns: int = field(default=0, init=False)  # when the latest picture was made

    def __bool__(self) -> bool:
        return bool(self.hidden)

    def declare(self, device: Device, now_ns: int) -> bool:
        """Hide what `device` declares from now on. True if that is something else than before."""
        hidden = hidden_parts(device)
        if hidden == self.hidden:
            return False
        self.hidden, self._since_ns = hidden, now_ns
        return True

    def is_picture_due(self, now_ns: int) -> bool:
        """True if parts are hidden and the latest picture is old enough."""
        return bool(self.hidden) and now_ns - self._pictured_ns >= PICTURE_NS

    def note_picture(self, now_ns: int) -> None:
        """Note that a picture was made."""
        self._pictured_ns = now_ns

    def is_outdated(self, received_ns: int) -> bool:
        """True if a frame received then may have been decoded with other hidden parts."""
        return received_ns < self._since_ns


def hidden_parts(device: Device) -> tuple[Polygon, ...]:
    """The parts of the pictures of `device` that nobody may see."""
    return tuple(tuple(zip(mask.x, mask.y, strict=False)) for mask in device.privacy_masks)
