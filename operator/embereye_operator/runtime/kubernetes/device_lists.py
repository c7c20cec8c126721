"""The ConfigMaps of other people that fleets use as lists of devices: the cache has only those.

`KubernetesWorld` records the names that each fleet uses. An event about another ConfigMap is ignored, and one about a
used ConfigMap marks its fleets dirty. A ConfigMap that no fleet uses any more leaves the cache. A missing one is
remembered as absent for a while, so that not every pass asks the server for it.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from embereye_operator.runtime.kubernetes.client.cache import ObjectKey

ABSENT_SECONDS = 10.0  # how long a missing ConfigMap counts as absent without an event


@dataclass
class DeviceLists:
    """References from fleets to ConfigMaps, both ways."""

    _by_map: dict[ObjectKey, set[ObjectKey]] = field(default_factory=dict)  # ConfigMap → fleets
    _by_fleet: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)  # fleet → names
    _absent: dict[ObjectKey, float] = field(default_factory=dict)  # missing ConfigMap → monotonic seconds

    def __iter__(self) -> Iterator[ObjectKey]:
        """Iterate over the referenced ConfigMaps; the references may change meanwhile."""
        return iter(list(self._by_map))

    def fleets(self, config_map: ObjectKey) -> Collection[ObjectKey]:
        """Return the fleets that use this ConfigMap."""
        return self._by_map.get(config_map, ())

    def refer(self, fleet: ObjectKey, names: Collection[str]) -> list[ObjectKey]:
        """Record that `fleet` uses exactly `names`; return the ConfigMaps that no fleet uses any more."""
        before, now = self._by_fleet.get(fleet, frozenset()), frozenset(names)
        if before == now:
            return []
        if now:
            self._by_fleet[fleet] = now
        else:
            del self._by_fleet[fleet]
        for name in now - before:
            self._by_map.setdefault(("ConfigMap", fleet[1], name), set()).add(fleet)
        unused = []
        for key in (("ConfigMap", fleet[1], name) for name in before - now):
            self._by_map[key].discard(fleet)
            if not self._by_map[key]:
                del self._by_map[key]
                self._absent.pop(key, None)
                unused.append(key)
        return unused

    def is_absent(self, config_map: ObjectKey, now: float) -> bool:
        """True if it was missing within ABSENT_SECONDS before `now`, in monotonic seconds."""
        return now - self._absent.get(config_map, -ABSENT_SECONDS) < ABSENT_SECONDS

    def note_absent(self, config_map: ObjectKey, now: float) -> None:
        """Record that it is missing."""
        self._absent[config_map] = now

    def note_present(self, config_map: ObjectKey) -> None:
        """Record that it may exist."""
        self._absent.pop(config_map, None)
