"""Which events of the feed somebody wants: by zone, level, kind, device and type (pure)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from embereye.levels import Kind, Level, ZoneState
from embereye.v1 import alarms_pb2 as messages
from embereye.v1.alarms_pb2 import AlarmEvent

MAX_VALUES = 500  # in one field of a selection
MAX_VALUE = 253  # characters of one

E = TypeVar("E")

LEVELS = {one.word: one for one in (Level.CLEAR, Level.PRE_ALARM, Level.ALARM, Level.CRITICAL)}
KINDS = {one.word: one for one in (Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME)}
TYPES: Mapping[str, AlarmEvent.Type.ValueType] = {
    name.removeprefix("TYPE_").lower().replace("_", "-"): number
    for name, number in AlarmEvent.Type.items()
    if number not in {AlarmEvent.TYPE_UNSPECIFIED, AlarmEvent.TYPE_ALIVE}
}
SIGNS = frozenset({AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE})  # what levels and kinds can be asked of
# An alarm that somebody knows of, or that only waits for its reset, is one still.
LEVEL_OF = {
    ZoneState.NORMAL: Level.CLEAR,
    ZoneState.PRE_ALARM: Level.PRE_ALARM,
    ZoneState.ALARM: Level.ALARM,
    ZoneState.ACKNOWLEDGED: Level.ALARM,
    ZoneState.RESTORED: Level.ALARM,
}


@dataclass(frozen=True)
class Selection:
    """What somebody wants to be told of. A field that is empty asks for everything.

    Whoever asks for certain levels or kinds of fire is told of faults and tests all the same, unless `types` leaves
    them out: a device that sees nothing must not look like one that sees no fire. Of the end of an alarm all are told
    who may have been told of it: an end does not say what signs there were.
    """

    zones: frozenset[str] = frozenset()  # ZONE or NAMESPACE/ZONE
    levels: frozenset[Level] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    devices: frozenset[str] = frozenset()  # ids
    types: frozenset[int] = frozenset()  # of AlarmEvent

    def wants(self, event: AlarmEvent) -> bool:
        """Whether `event` is in the selection."""
        if self.zones and event.zone not in self.zones and f"{event.namespace}/{event.zone}" not in self.zones:
            return False
        if self.types and event.type not in self.types:
            return False
        ends = _ends(event)
        if self.devices and not ends and not self._concerns(event):
            return False
        if event.type not in SIGNS:
            return True
        if self.levels and not self.levels & levels_of(event):
            return False
        signs = () if ends else event.contributions
        return not self.kinds or not signs or any(Kind(one.kind) in self.kinds for one in signs)

    def _concerns(self, event: AlarmEvent) -> bool:
        if event.HasField("fault"):
            return event.fault.device in self.devices
        if event.type == AlarmEvent.TYPE_SILENCE:
            return not event.silence.device or event.silence.device in self.devices
        # What names no device, as the reset of an alarm whose signs have ended, concerns all of its zone.
        return not event.contributions or any(one.device in self.devices for one in event.contributions)

    @property
    def message(self) -> messages.Selection:
        """As it is sent and stored."""
        return messages.Selection(
            zones=sorted(self.zones),
            levels=[one.wire for one in sorted(self.levels)],
            kinds=[one.wire for one in sorted(self.kinds)],
            devices=sorted(self.devices),
            types=[AlarmEvent.Type.ValueType(one) for one in sorted(self.types)],
        )

    @property
    def words(self) -> dict[str, list[str]]:
        """As people write it: {"zones": [...], "levels": [...], ...}, without what is empty."""
        names: dict[int, str] = {number: word for word, number in TYPES.items()}
        told = {
            "zones": sorted(self.zones),
            "levels": [one.word for one in sorted(self.levels)],
            "kinds": [one.word for one in sorted(self.kinds)],
            "devices": sorted(self.devices),
            "types": [names.get(one, str(one)) for one in sorted(self.types)],
        }
        return {name: values for name, values in told.items() if values}


EVERYTHING = Selection()
FIELDS = tuple(field.name for field in fields(Selection))


def levels_of(event: AlarmEvent) -> frozenset[Level]:
    """How serious `event` is: as its zone before or after it, the more serious; a critical alarm is an alarm, too."""
    level = max(LEVEL_OF.get(ZoneState(state), Level.CLEAR) for state in (event.state, event.previous))
    critical = _ends(event) or any(Level(one.level) is Level.CRITICAL for one in event.contributions)
    return frozenset({level, Level.CRITICAL} if critical and level is Level.ALARM else {level})


def _ends(event: AlarmEvent) -> bool:
    """Whether it ends an alarm or pre-alarm."""
    normal = event.type == AlarmEvent.TYPE_STATE and ZoneState(event.state) is ZoneState.NORMAL
    return normal and LEVEL_OF.get(ZoneState(event.previous), Level.CLEAR) > Level.CLEAR


def parse_selection(message: messages.Selection) -> Selection:
    """What `message` asks for; ValueError where it asks for what cannot be."""
    return Selection(
        _names("zones", message.zones),
        frozenset(_known("levels", message.levels, LEVELS.values(), Level)),
        frozenset(_known("kinds", message.kinds, KINDS.values(), Kind)),
        _names("devices", message.devices),
        frozenset(_known("types", message.types, TYPES.values(), int)),
    )


def read_selection(told: Mapping[str, object]) -> Selection:
    """What people wrote, as in `Selection.words`; ValueError names what cannot be meant."""
    for name in told:
        if name not in FIELDS:
            raise ValueError(f'"{str(name)[:80]}" is not one of {", ".join(FIELDS)}')
    values = {name: _texts(name, told.get(name, [])) for name in FIELDS}
    return Selection(
        _names("zones", values["zones"]),
        frozenset(_word("levels", word, LEVELS) for word in values["levels"]),
        frozenset(_word("kinds", word, KINDS) for word in values["kinds"]),
        _names("devices", values["devices"]),
        frozenset(_word("types", word, TYPES) for word in values["types"]),
    )


def _texts(name: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name}: {str(value)[:80]!r} is not a list of strings")
    return list(value)


def _names(field: str, values: Collection[str]) -> frozenset[str]:
    if len(values) > MAX_VALUES:
        raise ValueError(f"{field}: {len(values)} are more than {MAX_VALUES}")
    for value in values:
        if not value or len(value) > MAX_VALUE:
            raise ValueError(f'{field}: "{value[:80]}" is not a name of 1 to {MAX_VALUE} characters')
    return frozenset(values)


def _word(field: str, word: str, words: Mapping[str, E]) -> E:
    if word not in words:
        raise ValueError(f'{field}: "{word[:80]}" is not one of {", ".join(words)}')
    return words[word]


def _known(field: str, numbers: Iterable[int], known: Collection[int], make: type[E]) -> Iterable[E]:
    for number in numbers:
        if number not in known:
            raise ValueError(f"{field}: {number} is not one of {', '.join(str(int(one)) for one in known)}")
        yield make(number)  # type: ignore[call-arg]
