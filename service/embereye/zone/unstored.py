"""What a hub that cannot write its database knows, and tells no subscriber before it is stored."""

from collections.abc import Iterator

from embereye.levels import ZoneState
from embereye.units import counted
from embereye.v1.alarms_pb2 import Zone, ZonesResponse

NAMED = 3  # devices of one zone that went dark since the last look


class Unstored:
    """Looks at zones beside a feed: `news` is what the feed keeps back, in sentences, each once."""

    def __init__(self) -> None:
        self._failing = False
        self._zones: dict[str, tuple[int, set[str]]] = {}  # at the latest look: state and dark devices

    def news(self, answer: ZonesResponse) -> list[str]:
        """What is to be told of this look."""
        told = list[str]()
        if answer.failing and not self._failing:
            told.append(f"{answer.failing}; until then alarms are told here and in the console alone, once each")
        elif self._failing and not answer.failing:
            told.append("the hub can write its database again, and tells what happened meanwhile")
        self._failing = bool(answer.failing)
        before, self._zones = self._zones, {}
        for zone in answer.zones:
            name = f"{zone.namespace}/{zone.name}"
            self._zones[name] = (zone.state, {fault.device for fault in zone.faults})
            if self._failing:
                state, dark = before.get(name, (ZoneState.NORMAL.wire, set()))
                told += (f"{sentence} (not stored yet)" for sentence in _changes(name, zone, state, dark))
        return told


def _changes(name: str, zone: Zone, before: int, dark: set[str]) -> Iterator[str]:
    """What is worse in `zone` than it was, in sentences."""
    state = ZoneState(zone.state)
    if state is not ZoneState.NORMAL and zone.state != before:
        yield f"{state.word.upper()} {name}: {zone.why}"
    faults = [fault for fault in zone.faults if fault.device not in dark]
    if faults:
        named = [f"{fault.device} is dark: {fault.reason}" for fault in faults[:NAMED]]
        if len(faults) > NAMED:
            named.append(counted(len(faults) - NAMED, "more is dark", "more are dark"))
        yield f"FAULT {name}: {'; '.join(named)}"
