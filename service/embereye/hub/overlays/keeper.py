"""Overlays: at most one thermal picture on top of each camera's picture, with its position and scale.

The HTTP routes are the only callers. All overlays are in memory, and each change is a step of the committer, durable
before it is answered. The pictures are not stored here: the console combines the devices' latest ones.
"""

from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Committer, Draft
from embereye.hub.refusals import InvalidError, UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.tables.overlays import OVERLAYS, CameraKey, Overlay
from embereye.hub.tables.transaction import Rows

MAX_OVERLAYS = 10_000


class Overlays(Rows[CameraKey, Overlay]):
    """All overlays: in memory and in the database."""

    def __init__(self, committer: Committer) -> None:
        super().__init__(OVERLAYS)
        self._committer = committer

    def all(self) -> list[tuple[CameraKey, Overlay]]:
        """All overlays, sorted by camera."""
        return sorted(self.items(), key=lambda entry: entry[0])

    async def store(self, by: Principal, camera: CameraKey, overlay: Overlay) -> None:
        """Set the overlay of `camera`; raises InvalidError if it is invalid, and StoreFailingError."""
        for name, value, most in (("x", overlay.x, 1), ("y", overlay.y, 1), ("opacity", overlay.opacity, 1)):
            if not 0 <= value <= most:
                raise InvalidError(f"{name}: {value:g} is not from 0 to {most}")
        if not 0.05 <= overlay.scale <= 4:
            raise InvalidError(f"scale: {overlay.scale:g} is not from 0.05 to 4")

        def step(draft: Draft) -> None:
            if camera not in self and len(self) >= MAX_OVERLAYS:
                raise InvalidError(f"there are {MAX_OVERLAYS} overlays already. Remove some first.")
            self.put(draft.transaction, camera, overlay)
            add_entry(draft, by, "store overlay", "/".join(camera), f"{overlay.fleet}/{overlay.sensor}")

        await self._committer.commit(step)

    async def remove(self, by: Principal, camera: CameraKey) -> None:
        """Remove the overlay of `camera`; UnknownNameError, StoreFailingError."""

        def step(draft: Draft) -> None:
            if camera not in self:
                raise UnknownNameError(f"{camera[1][:80]}: has no overlay")
            self.put(draft.transaction, camera, None)
            add_entry(draft, by, "remove overlay", "/".join(camera))

        await self._committer.commit(step)
