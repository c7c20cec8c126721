"""The masks of cameras whose clips are replayed: from the hub, a saved incident or a manifest.

A clip has the whole picture, and the detectors ignore what its camera's masks cover. Masks for privacy count as well:
what they hide is black in the clip.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from embereye.process.lifecycle import NotFoundError
from embereye.units import counted
from embereye.v1.types_pb2 import Device, Mask
from embereye_cli.hub.http import HttpHub

IGNORED = frozenset({"mask", "privacy"})  # kinds of regions that are not analysed


@dataclass(frozen=True)
class CameraMasks:
    """The regions of a camera's pictures that are not analysed."""

    outlines: tuple[Mask, ...]
    source: str  # for people: "as declared now"

    @property
    def words(self) -> str:
        """The number of masks and their source, for people."""
        number = counted(len(self.outlines), "mask") if self.outlines else "no masks"
        return f"{number}, {self.source}"

    def to_json(self) -> list[dict[str, list[float]]]:
        """The corners of each mask, in shares of the picture."""
        return [{"x": list(mask.x), "y": list(mask.y)} for mask in self.outlines]


# The masks of the camera of a recording, as the hub lists recordings; None: they are not known.
MasksOf = Callable[[Mapping[str, Any]], CameraMasks | None]


def unknown_masks(_: Mapping[str, Any]) -> CameraMasks | None:
    """Know no camera's masks."""
    return None


def masks_at_hub(hub: HttpHub) -> MasksOf:
    """Find masks as `hub` has them now; those of a camera that is not declared are not known."""
    known: dict[tuple[str, str], CameraMasks | None] = {}

    def find(recording: Mapping[str, Any]) -> CameraMasks | None:
        fleet, device = key = _camera(recording)
        if key not in known:
            known[key] = _declared_now(hub, fleet, device) if fleet else None
        return known[key]

    return find


def _declared_now(hub: HttpHub, fleet: str, device: str) -> CameraMasks | None:
    try:
        details = hub.read(f"/v1/devices/{quote(fleet)}/{quote(device, safe='')}", "device", "regions")
    except NotFoundError:
        return None
    if not details["device"]["declared"]:
        return None
    regions = [region for region in details["regions"] if region["kind"] in IGNORED]
    return CameraMasks(_outlines(regions), "as declared now")


def saved_masks(recording: Mapping[str, Any]) -> CameraMasks | None:
    """Find the masks in a saved incident."""
    if (saved := recording.get("masks")) is None:
        return None
    return CameraMasks(_outlines(saved), "as declared when it was saved")


def masks_in_manifest(devices: Mapping[tuple[str, str], Device]) -> MasksOf:
    """Find masks in declared `devices`, by fleet and id; for other cameras, in a saved incident."""

    def find(recording: Mapping[str, Any]) -> CameraMasks | None:
        device = devices.get(_camera(recording))
        if device is None:
            return saved_masks(recording)
        return CameraMasks((*device.masks, *device.privacy_masks), "of the manifest")

    return find


def _camera(recording: Mapping[str, Any]) -> tuple[str, str]:
    """The fleet and the id of the camera; programs may store clips of no fleet."""
    return recording.get("fleet", ""), recording["device"]


def _outlines(regions: Iterable[Mapping[str, Any]]) -> tuple[Mask, ...]:
    return tuple(Mask(x=region["x"], y=region["y"]) for region in regions)
