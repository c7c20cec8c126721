"""What a hub that cannot write its database knows, and tells no subscriber before it is stored."""

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import ZonesResponse


class Unstored:
    """Looks at zones beside a feed: `news` is what the feed keeps back, in sentences, each once."""

    def __init__(self) -> None:
        self._failing = False
        self._states: dict[str, int] = {}  # by zone, at the latest look

    def news(self, answer: ZonesResponse) -> list[str]:
        """What is to be told of this look."""
        told = list[str]()
        if answer.failing and not self._failing:
            told.append(f"{answer.failing}; until then alarms are told here and in the console alone, once each")
        elif self._failing and not answer.failing:
            told.append("the hub can write its database again, and tells what happened meanwhile")
        self._failing = bool(answer.failing)
        before, self._states = self._states, {f"{zone.namespace}/{zone.name}": zone.state for zone in answer.zones}
        for zone in answer.zones if self._failing else ():
            name, state = f"{zone.namespace}/{zone.name}", ZoneState(zone.state)
            if state is not ZoneState.NORMAL and before.get(name) != zone.state:
                told.append(f"{state.word.upper()} {name}: {zone.why} (not stored yet)")
        return told
