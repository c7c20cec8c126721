"""Live thermal pictures: each frame of a sensor while somebody looks at it.

A frame is packed after it was analysed, and the newest one replaces those that still wait for the hub.
"""

from embereye.process.live_queue import LivePicture
from embereye.sensor.device.frames import ThermalImage
from embereye.shard.live import LiveSender
from embereye.wire.thermal_picture import pack_thermal


class LiveThermal(LiveSender):
    """The newest thermal pictures of the sensors that people look at."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[str, ThermalImage] = {}  # by device

    def offer(self, device: str, picture: ThermalImage | None, at_ns: int) -> None:
        """Send `picture` with the arrival `at_ns` of its frame, if somebody looks at `device`.

        A damaged frame makes no picture: the device still has that of an earlier frame then, which was sent already.
        """
        if device not in self._asked or picture is None or not self._is_shown(device):
            return
        if picture is not self._latest.get(device):
            self._latest[device] = picture
            self._queue(device, LivePicture(pack_thermal(picture.pixels, relative=picture.relative), at_ns))

    def _prune(self) -> None:
        super()._prune()
        self._latest = {name: picture for name, picture in self._latest.items() if name in self._shown}
