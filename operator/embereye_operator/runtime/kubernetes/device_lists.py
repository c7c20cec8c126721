"""Which ConfigMaps of other people's the fleets take devices from: those alone are kept."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from embereye_operator.runtime.kubernetes.client.cache import ObjectKey

ABSENT_SECONDS = 10.0  # how long a ConfigMap that was not there is believed to be absent without an event


@dataclass
class DeviceLists:
    """References from fleets to ConfigMaps, both ways."""

    _by_map: dict[ObjectKey, set[ObjectKey]] = field(default_factory=dict)  # ConfigMap → fleets
    _by_fleet: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)  # fleet → names
    _absent: dict[ObjectKey, float] = field(default_factory=dict)  # those that were not there → monotonic seconds

    def __iter__(self) -> Iterator[ObjectKey]:
        """The ConfigMaps that are referred to; the references may change meanwhile."""
        return iter(list(self._by_map))

    def fleets(self, config_map: ObjectKey) -> Collection[ObjectKey]:
        """Who takes devices from it."""
        return self._by_map.get(config_map, ())

    def refer(self, fleet: ObjectKey, names: Collection[str]) -> list[ObjectKey]:
        """Note that `fleet` takes devices from `names`, and from nothing else; returns what nobody refers to now."""
        before, now = self._by_fleet.get(fleet, frozenset()), frozenset(names)
        if before == now:
            return []
        if now:
            self._by_fleet[fleet] = now
        else:
            del self._by_fleet[fleet]
        for name in now - before:
            self._by_map.setdefault(("ConfigMap", fleet[1], name), set()).add(fleet)
        given_up = []
        for key in (("ConfigMap", fleet[1], name) for name in before - now):
            self._by_map[key].discard(fleet)
            if not self._by_map[key]:
                del self._by_map[key]
                self._absent.pop(key, None)
                given_up.append(key)
        return given_up

    def lacks(self, config_map: ObjectKey, now: float) -> bool:
        """Whether it was not there a moment ago; `now` in monotonic seconds."""
        return now - self._absent.get(config_map, -ABSENT_SECONDS) < ABSENT_SECONDS

    def missing(self, config_map: ObjectKey, now: float) -> None:
        """Note that it was not there."""
        self._absent[config_map] = now

    def found(self, config_map: ObjectKey) -> None:
        """Note that it is there, or may be."""
        self._absent.pop(config_map, None)
