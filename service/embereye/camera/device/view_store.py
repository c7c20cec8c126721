"""Storage of the cameras' usual levels across restarts, in one small file per camera.

`CameraShard` loads a camera's levels when it gets the camera, and saves them when it releases the camera or stops. In
between it saves one camera at a time, each every ten minutes. A file's name contains the camera and its view (streams,
and the mark that people change when they move the camera), so levels of another view are never loaded.
"""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.process.condition import Condition
from embereye.process.files import write_whole
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

logger = logging.getLogger(__name__)

EVERY_NS = 600 * SECOND  # between two saves of one camera, so a crash loses no more
MAX_VIEWS = 1_000  # stored views, including those of removed cameras; many more than a shard has cameras
Camera = TypeVar("Camera")


class ViewStore:
    """A folder of views. Unreadable or unwritable files are logged and the view is learned again; it is no fault."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saved_ns: dict[str, int] = {}
        self._failing = Condition(logger, first_only=True)

    def load(self, device: Device) -> UsualLevels | None:
        """Return the stored usual level of the present view of `device`. Files of its earlier views are removed."""
        path = self._path(device)
        try:
            for other in self._folder.glob(f"{_short(device.id)}-*"):
                if other != path:
                    other.unlink(missing_ok=True)
            return UsualLevels.load(path.read_bytes()) if path.exists() else None
        except (OSError, ValueError) as error:
            logger.warning("camera %s: %s: the usual level of its view cannot be used: %s", device.id, path, error)
            return None

    def save(self, device: Device, usual_levels: UsualLevels) -> None:
        """Store the usual level of the present view of `device`, if any is known."""
        if not usual_levels.has_content:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._path(device)
            if not path.exists():
                self._make_room()
            write_whole(path, usual_levels.dump(), durable=False)
            self._failing.clear()
        except OSError as error:
            sentence = "%s: the usual levels of camera views cannot be saved: %s"
            self._failing.fail(str(error), sentence, self._folder, error)

    def _make_room(self) -> None:
        """Remove the views saved longest ago if there are too many; their cameras are probably gone."""
        stored = sorted(self._folder.glob("*.view"), key=lambda path: path.stat().st_mtime_ns)
        for path in stored[: max(0, len(stored) - MAX_VIEWS + 1)]:
            path.unlink(missing_ok=True)

    def next_due(self, cameras: Mapping[str, Camera], now_ns: int) -> Camera | None:
        """Return the camera that was not saved for longest, if EVERY_NS have passed, and restart its time."""
        self._saved_ns = {name: min(now_ns, self._saved_ns.get(name, now_ns)) for name in cameras}
        name = min(self._saved_ns, key=self._saved_ns.__getitem__, default="")
        if not name or now_ns - self._saved_ns[name] < EVERY_NS:
            return None
        self._saved_ns[name] = now_ns
        return cameras[name]

    def _path(self, device: Device) -> Path:
        return self._folder / f"{_short(device.id)}-{view_of(device)}.view"


def view_of(device: Device) -> str:
    """The identifier of the present view of `device`."""
    return _short("\n".join((device.source, device.detect_stream, device.view)))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
