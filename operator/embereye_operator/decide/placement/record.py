"""The stored placement, which a new leader reads before it decides anything.

It is the content of the placement ConfigMap: owners, devices in hand-over and the epoch in one key, and each shard's
assignment in a separate key, which the shard mounts as a file. A pass writes it before it calls any shard, so that the
next leader knows every epoch that a shard may have seen. If it is lost or was edited, `recover` takes the owners that
shards report, and no device moves.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.manifests.config_map import PLACEMENT_KEY, placement_files
from embereye_operator.decide.placement.assignments import decode

MAX_EPOCH = 2**32 - 1  # shards and hub refuse an epoch more than 2**32 above theirs


@dataclass(frozen=True)
class Move:
    """A device in hand-over: `holder` watches it until its new owner does."""

    holder: str
    since: int  # nanoseconds since the Unix epoch


@dataclass(frozen=True)
class PlacementRecord:
    """The owner of each device, and the epoch of the latest assignments."""

    epoch: int = 0
    devices: Mapping[str, str] = field(default_factory=dict)  # device id → shard
    members: tuple[str, ...] = ()  # shards that can own devices
    shards: tuple[str, ...] = ()  # shards that should exist; empty in records of old versions
    moving: Mapping[str, Move] = field(default_factory=dict)  # device id → its former owner
    assignments: Mapping[str, Assignment | None] = field(default_factory=dict)  # None: unreadable

    def to_manifest(self) -> Manifest:
        """Return the record without the assignments, which are stored in other keys."""
        manifest: Manifest = {
            "epoch": self.epoch,
            "members": list(self.members),
            "shards": list(self.shards),
            "devices": dict(self.devices),
        }
        if self.moving:
            manifest["moving"] = {
                device: {"from": move.holder, "since": move.since} for device, move in self.moving.items()
            }
        return manifest

    @property
    def holders(self) -> dict[str, str]:
        """Map each device in hand-over to the shard that still watches it."""
        return {device: move.holder for device, move in self.moving.items()}


def read_record(fleet: Fleet, manifest: Mapping[str, Any] | None) -> PlacementRecord:
    """Read the placement ConfigMap; empty if it does not exist or is unreadable."""
    data = placement_files(manifest or {})
    names = [name.removesuffix(".json") for name in data if name.endswith(".json")]
    assignments = {name: decode(data[f"{name}.json"]) for name in names if fleet.names.index(name) is not None}
    try:
        raw = json.loads(data.get(PLACEMENT_KEY, "{}"))
        epoch = int(raw.get("epoch", 0))
        if not 0 <= epoch <= MAX_EPOCH:
            raise ValueError(f"epoch: {epoch}: not between 0 and {MAX_EPOCH}")
        return PlacementRecord(
            epoch=epoch,
            devices={str(device): str(shard) for device, shard in raw.get("devices", {}).items()},
            members=_shards(fleet, raw.get("members", ())),
            shards=_shards(fleet, raw.get("shards", ())),
            moving={
                str(device): Move(str(move["from"]), int(move["since"]))
                for device, move in raw.get("moving", {}).items()
            },
            assignments=assignments,
        )
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return PlacementRecord(assignments=assignments)


def recover(record: PlacementRecord, statuses: Mapping[str, ShardStatus | None]) -> PlacementRecord:
    """Return `record`, with the owners that shards report if it has none: a lost record moves no device."""
    if record.devices:
        return record
    answers = sorted((status.epoch, shard) for shard, status in statuses.items() if status and status.epoch)
    devices = {}
    for _, shard in answers:  # the latest epoch wins
        status = statuses[shard]
        devices.update({device.id: shard for device in status.devices} if status else {})
    return replace(record, devices=devices)


def _shards(fleet: Fleet, names: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in names if fleet.names.index(str(name)) is not None)
