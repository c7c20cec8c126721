"""The owner of each device: it stays the same unless the shards' loads would differ too much.

`place` leaves each device with its present owner if that still exists. It gives the others, heaviest first, to a shard
with room that has the fewest devices of their zone. Then it levels loads: if a shard is empty, or with `rebalance` if
they differ by more than LIMIT. It levels down to SLACK, and the gap between the two prevents constant moves. The result
depends only on the arguments and not on their order, so a repeated pass decides the same. `handoff.plan` calls it in
each pass that may change the placement.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LIMIT = 1.10  # largest load divided by the mean before a rebalance
SLACK = 1.02  # the same ratio after a rebalance, so that the next one is far away


def _order(device: str) -> bytes:
    # Any order that ignores names will do: similar names often mean the same floor or maker.
    return hashlib.blake2b(device.encode(), digest_size=8).digest()


def spread(loads: Mapping[str, float]) -> float:
    """Return the largest load divided by the mean; 1 without any load."""
    mean = sum(loads.values()) / len(loads) if loads else 0.0
    return max(loads.values()) / mean if mean else 1.0


def shard_loads(placement: Mapping[str, str], shards: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the load of each of `shards`; a device without a weight counts as 1."""
    loads = dict.fromkeys(shards, 0.0)
    for device, shard in placement.items():
        if shard in loads:
            loads[shard] += weights.get(device, 1.0)
    return loads


def place(
    devices: Sequence[str],
    shards: Sequence[str],
    current: Mapping[str, str],
    *,
    weights: Mapping[str, float] | None = None,
    zones: Mapping[str, str] | None = None,
    rebalance: bool = True,
) -> dict[str, str]:
    """Return the owner of every device: device → shard; empty without shards.

    A device stays with its owner in `current` if that is one of `shards`. The others go, heaviest first, to a shard
    with room, preferring the one with the fewest devices of the same zone: a lost shard must not blind a whole zone.
    Then the shards are balanced if one has no device while others have several, or with `rebalance` if one has more
    than LIMIT of the mean load. Shards above the mean give devices to those below it, as few as possible.

    `weights` are the devices' loads in any one unit; a device without one gets the mean of the others. The result
    depends only on the arguments, and not on their order.
    """
    if not shards:
        return {}
    return _Placing(devices, sorted(shards), current, weights or {}, zones or {}).run(rebalance=rebalance)


@dataclass
class _Placing:
    devices: Sequence[str]
    shards: Sequence[str]
    current: Mapping[str, str]
    weights: Mapping[str, float]
    zones: Mapping[str, str]

    def __post_init__(self) -> None:
        known = [self.weights[device] for device in self.devices if device in self.weights]
        default = (sum(known) / len(known) if known else 1.0) or 1.0
        self.weight = {device: self.weights.get(device, default) for device in self.devices}
        self.owner: dict[str, str] = {}
        self.load = dict.fromkeys(self.shards, 0.0)
        self.count = dict.fromkeys(self.shards, 0)
        self.zone_count: dict[str, Counter[str]] = {shard: Counter() for shard in self.shards}
        self.mean = sum(self.weight.values()) / len(self.shards)

    def run(self, *, rebalance: bool) -> dict[str, str]:
        unplaced = []
        for device in self.devices:
            owner = self.current.get(device)
            if owner in self.load:
                self._assign_device(device, owner)
            else:
                unplaced.append(device)
        unplaced.sort(key=lambda device: (-self.weight[device], _order(device)))
        for device in unplaced:
            self._assign_device(device, self._room(device, self.shards))
        empty = min(self.count.values()) == 0 and max(self.count.values()) > 1
        if empty or (rebalance and max(self.load.values()) > LIMIT * self.mean):
            self._level()
        return {device: self.owner[device] for device in self.devices}

    def _assign_device(self, device: str, shard: str) -> None:
        self.owner[device] = shard
        self.load[shard] += self.weight[device]
        self.count[shard] += 1
        self.zone_count[shard][self.zones.get(device, "")] += 1

    def _release_device(self, device: str) -> None:
        shard = self.owner.pop(device)
        self.load[shard] -= self.weight[device]
        self.count[shard] -= 1
        self.zone_count[shard][self.zones.get(device, "")] -= 1

    def _room(self, device: str, shards: Sequence[str]) -> str:
        """Choose a shard with room and the fewest devices of the zone; without room, the least loaded one."""
        weight, limit = self.weight[device], self.mean * SLACK
        fitting = [shard for shard in shards if self.load[shard] + weight <= limit]
        zone = self.zones.get(device, "") if self.zones else ""
        if zone and fitting:
            return min(fitting, key=lambda shard: (self.zone_count[shard][zone], self.load[shard], shard))
        return min(shards, key=lambda shard: (self.load[shard], shard))

    def _level(self) -> None:
        """Move devices from shards above the mean to those below it."""
        owned: dict[str, list[str]] = {shard: [] for shard in self.shards}
        for device, shard in self.owner.items():
            owned[shard].append(device)
        top = self.mean * SLACK
        for donor in sorted(self.shards, key=lambda shard: (-self.load[shard], shard)):
            if self.load[donor] <= top:
                break
            crowd = self.zone_count[donor]
            # Heavy devices first, so that fewer move; among equals those whose zone is most frequent on this shard.
            owned[donor].sort(
                key=lambda device: (-self.weight[device], -crowd[self.zones.get(device, "")], _order(device))
            )
            for device in owned[donor]:
                if self.load[donor] <= top:
                    break
                self._move(device, donor)

    def _move(self, device: str, donor: str) -> None:
        weight = self.weight[device]
        receivers = [shard for shard in self.shards if shard != donor and self.load[shard] < self.mean]
        if not receivers:
            return
        shard = self._room(device, receivers)
        # Worth it only if the heavier of the two shards becomes lighter, and the donor retains its share.
        if self.load[shard] + weight < self.load[donor] and (
            self.load[donor] - weight >= self.mean * (2 - SLACK) or self.load[shard] + weight <= self.mean * SLACK
        ):
            self._release_device(device)
            self._assign_device(device, shard)
