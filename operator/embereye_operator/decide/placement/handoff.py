"""Make before break: the choice of shards, the new owner of each device, and the old owner that watches meanwhile.

A device that changes its owner is assigned to the new shard first, while the old one stays its holder. The old one
releases it once the new one reports it as covered, or once `patience` is over. The state is in the stored record
(`moving`), so each pass, also of a new leader, continues from there. `plan` asks `place` for the owners, and decides
only who watches meanwhile. A device that its old owner does not cover needs no holder.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.decide.placement.placement import place
from embereye_operator.decide.placement.record import Move, PlacementRecord

MIN_PATIENCE = 5 * SECOND
MAX_PATIENCE = 60 * SECOND


@dataclass(frozen=True)
class Plan:
    """The new placement."""

    members: Sequence[str] = ()  # shards that can own devices
    placement: Mapping[str, str] = field(default_factory=dict)  # device → owner
    moving: Mapping[str, Move] = field(default_factory=dict)  # device → the shard that still watches it
    overdue: Sequence[str] = ()  # devices released although their new owner does not cover them

    @property
    def holders(self) -> dict[str, str]:
        """Map each device in hand-over to the shard that still watches it."""
        return {device: move.holder for device, move in self.moving.items()}


def patience(deadline: int) -> int:
    """Return how many nanoseconds a holder waits for the new owner: a silent device must not block a hand-over forever.

    Twice the device's deadline, so that every message in time arrives; between MIN_PATIENCE and MAX_PATIENCE.
    """
    return min(max(2 * deadline, MIN_PATIENCE), MAX_PATIENCE)


def choose_shards(
    count: int,
    record: PlacementRecord,
    existing: Sequence[str],
    *,
    up: Collection[str],
    loads: Mapping[str, float],
    name: Callable[[int], str],
    index: Callable[[str], int],
    unwanted: Collection[str] = (),
) -> list[str]:
    """Choose the `count` shards that should exist, by index.

    Chosen shards stay, except those that a person marked as `unwanted`. To grow, leaving shards that still exist are
    reused before new ones are created. To shrink, the cheapest go: first those that do not answer, then those with the
    least load, then the last.
    """
    chosen = [shard for shard in record.shards or existing if shard not in unwanted]
    existing = [shard for shard in existing if shard not in unwanted]
    if len(chosen) > count:
        cheapest = sorted(chosen, key=lambda shard: (shard in up, loads.get(shard, 0.0), -index(shard)))
        removed = set(cheapest[: len(chosen) - count])
        chosen = [shard for shard in chosen if shard not in removed]
    spare = sorted(
        (shard for shard in existing if shard not in chosen), key=lambda shard: (-loads.get(shard, 0.0), index(shard))
    )
    numbers = range(len(chosen) + len(spare) + len(unwanted) + count)
    fresh = (shard for number in numbers if (shard := name(number)) not in unwanted)
    while len(chosen) < count:
        chosen.append(spare.pop(0) if spare else next(shard for shard in fresh if shard not in chosen))
    return sorted(chosen, key=index)


def plan(  # noqa: PLR0913 -- all inputs of one decision
    record: PlacementRecord,
    devices: Sequence[Device],
    members: Sequence[str],
    statuses: Mapping[str, ShardStatus | None],
    *,
    weights: Mapping[str, float],
    rebalance: bool,
    now: int,
    deadline: int,
    waiting: Mapping[str, int],
) -> Plan:
    """Plan the next placement; repeated calls with the resulting state continue it, wherever it was interrupted.

    A device that changes its owner goes to the new one first. The old one watches it until the new one covers it, or
    until `patience` is over; `waiting` has since when this operator has seen the device wait.
    A device that its old owner does not cover needs no hand-over.
    """
    covering = {
        shard: {device.id for device in status.devices if device.covered}
        for shard, status in statuses.items()
        if status and not status.draining
    }
    ids = [device.id for device in devices]
    placement = place(
        ids,
        members,
        _current(record, members),
        weights=weights,
        zones={device.id: device.zone for device in devices},
        rebalance=rebalance or set(members) != set(record.members),
    )
    moving, overdue = {}, []
    for device, owner in placement.items():
        move = _move(record, device, owner, covering, now)
        if move is None:
            continue
        if now - max(move.since, waiting.get(device, now)) > patience(deadline):
            overdue.append(device)
        else:
            moving[device] = move
    if moving and placement == record.devices and not set(moving) - set(record.moving):
        # Nothing else changes: all devices are released together, instead of with an epoch for each.
        alive = {device: move for device, move in record.moving.items() if move.holder in covering}
        moving = {device: move for device, move in alive.items() if device in placement and device not in overdue}
    return Plan(members, placement, moving, overdue)


def _current(record: PlacementRecord, members: Collection[str]) -> dict[str, str]:
    """Return each device's present shard: a leaving shard that stays after all retains the devices it still watches."""
    current = dict(record.devices)
    for device, move in record.moving.items():
        if move.holder in members and (current.get(device) not in members or move.holder not in record.members):
            current[device] = move.holder
    return current


def _move(
    record: PlacementRecord, device: str, owner: str, covering: Mapping[str, Collection[str]], now: int
) -> Move | None:
    """Return the shard that must watch `device` until `owner` covers it; None if none must, or none can."""
    if device in covering.get(owner, ()):
        return None
    known = record.moving.get(device)
    holders = [known.holder if known else "", record.devices.get(device, "")]
    holder = next((shard for shard in holders if shard != owner and device in covering.get(shard, ())), None)
    if holder is None:
        return None
    same = known is not None and known.holder == holder and record.devices.get(device) == owner
    # A clock that was set back must not make the wait endless.
    return known if same and known is not None and known.since <= now else Move(holder, now)
