"""Selections of the feed's events by zone, level, kind, device and type (pure).

Feeds, history, stored subscriptions and webhooks all use this one type. It is read from protobuf or from words; both
ways refuse unknown values. `is_match` then decides for each event alone. The end of an alarm lists no signs, so it
matches every selection that the alarm may have matched.

A selection is immutable and hashable, so the feed can serve all subscribers with an equal one together.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from embereye.hub.refusals import InvalidError
from embereye.hub.roles import EVERYWHERE, Scope
from embereye.levels import Kind, Level, ZoneState
from embereye.v1 import alarms_pb2 as messages
from embereye.v1.alarms_pb2 import AlarmEvent

MAX_VALUES = 500  # values in one field of a selection
MAX_VALUE = 253  # characters of one value

E = TypeVar("E")

LEVELS = {level.word: level for level in (Level.CLEAR, Level.PRE_ALARM, Level.ALARM, Level.CRITICAL)}
KINDS = {kind.word: kind for kind in (Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME)}
TYPES: Mapping[str, AlarmEvent.Type.ValueType] = {
    name.removeprefix("TYPE_").lower().replace("_", "-"): number
    for name, number in AlarmEvent.Type.items()
    if number not in {AlarmEvent.TYPE_UNSPECIFIED, AlarmEvent.TYPE_ALIVE}
}
SIGNS = frozenset({AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE})  # event types with levels and kinds
# An alarm remains one after somebody acknowledged it, and while it waits for its reset.
LEVEL_OF = {
    ZoneState.NORMAL: Level.CLEAR,
    ZoneState.PRE_ALARM: Level.PRE_ALARM,
    ZoneState.ALARM: Level.ALARM,
    ZoneState.ACKNOWLEDGED: Level.ALARM,
    ZoneState.RESTORED: Level.ALARM,
}


@dataclass(frozen=True)
class Selection:
    """A choice of events. An empty field selects everything.

    A selection of levels or kinds of fire still includes faults and tests, unless `types` leaves them out: a blind
    device must not look like one that sees no fire. The end of an alarm matches every selection that the alarm may
    have matched, because an end does not list the alarm's signs.
    """

    zones: frozenset[str] = frozenset()  # ZONE or NAMESPACE/ZONE
    levels: frozenset[Level] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    devices: frozenset[str] = frozenset()  # ids
    types: frozenset[int] = frozenset()  # numbers of AlarmEvent.Type
    scope: Scope = EVERYWHERE  # of the client; neither sent nor stored

    def is_match(self, event: AlarmEvent) -> bool:
        """True if `event` is in the selection."""
        if not self.scope.has_zone(event.namespace, event.zone):
            return False
        if self.zones and event.zone not in self.zones and f"{event.namespace}/{event.zone}" not in self.zones:
            return False
        if self.types and event.type not in self.types:
            return False
        is_end = _is_end(event)
        if self.devices and not is_end and not self._has_device(event):
            return False
        if event.type not in SIGNS:
            return True
        if self.levels and not self.levels & levels_of(event):
            return False
        signs = () if is_end else event.contributions
        return not self.kinds or not signs or any(Kind(sign.kind) in self.kinds for sign in signs)

    def within(self, scope: Scope) -> "Selection":
        """The same selection for a client that is limited to `scope`."""
        return replace(self, scope=scope)

    def _has_device(self, event: AlarmEvent) -> bool:
        if event.HasField("fault"):
            return event.fault.device in self.devices
        if event.type == AlarmEvent.TYPE_SILENCE:
            return not event.silence.device or event.silence.device in self.devices
        # An event without a device concerns the whole zone, such as the reset of an alarm whose signs have ended.
        return not event.contributions or any(sign.device in self.devices for sign in event.contributions)

    @property
    def message(self) -> messages.Selection:
        """The selection as it is sent and stored."""
        return messages.Selection(
            zones=sorted(self.zones),
            levels=[level.wire for level in sorted(self.levels)],
            kinds=[kind.wire for kind in sorted(self.kinds)],
            devices=sorted(self.devices),
            types=[AlarmEvent.Type.ValueType(number) for number in sorted(self.types)],
        )

    @property
    def words(self) -> dict[str, list[str]]:
        """The selection as people write it: {"zones": [...], "levels": [...], ...}, without empty fields."""
        names: dict[int, str] = {number: word for word, number in TYPES.items()}
        written = {
            "zones": sorted(self.zones),
            "levels": [level.word for level in sorted(self.levels)],
            "kinds": [kind.word for kind in sorted(self.kinds)],
            "devices": sorted(self.devices),
            "types": [names.get(number, str(number)) for number in sorted(self.types)],
        }
        return {name: values for name, values in written.items() if values}


EVERYTHING = Selection()
FIELDS = tuple(field.name for field in fields(Selection) if field.name != "scope")


def levels_of(event: AlarmEvent) -> frozenset[Level]:
    """The levels of `event`: the more serious of its zone before and after it; a critical alarm is also an alarm."""
    level = max(LEVEL_OF.get(ZoneState(state), Level.CLEAR) for state in (event.state, event.previous))
    critical = _is_end(event) or any(Level(sign.level) is Level.CRITICAL for sign in event.contributions)
    return frozenset({level, Level.CRITICAL} if critical and level is Level.ALARM else {level})


def _is_end(event: AlarmEvent) -> bool:
    """True if it ends an alarm or pre-alarm."""
    normal = event.type == AlarmEvent.TYPE_STATE and ZoneState(event.state) is ZoneState.NORMAL
    return normal and LEVEL_OF.get(ZoneState(event.previous), Level.CLEAR) > Level.CLEAR


def parse_selection(message: messages.Selection) -> Selection:
    """Read a selection from `message`; InvalidError if it has an impossible value."""
    return Selection(
        _names("zones", message.zones),
        frozenset(_checked("levels", message.levels, LEVELS.values(), Level)),
        frozenset(_checked("kinds", message.kinds, KINDS.values(), Kind)),
        _names("devices", message.devices),
        frozenset(_checked("types", message.types, TYPES.values(), int)),
    )


def read_selection(written: Mapping[str, object]) -> Selection:
    """Read a selection as people write it, see `Selection.words`; InvalidError names the impossible value."""
    for name in written:
        if name not in FIELDS:
            raise InvalidError(f'"{str(name)[:80]}" is not one of {", ".join(FIELDS)}')
    values = {name: _texts(name, written.get(name, [])) for name in FIELDS}
    return Selection(
        _names("zones", values["zones"]),
        frozenset(_word("levels", word, LEVELS) for word in values["levels"]),
        frozenset(_word("kinds", word, KINDS) for word in values["kinds"]),
        _names("devices", values["devices"]),
        frozenset(_word("types", word, TYPES) for word in values["types"]),
    )


def _texts(name: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise InvalidError(f"{name}: {str(value)[:80]!r} is not a list of strings")
    return list(value)


def _names(field: str, values: Collection[str]) -> frozenset[str]:
    if len(values) > MAX_VALUES:
        raise InvalidError(f"{field}: {len(values)} values are too many. Use at most {MAX_VALUES}.")
    for value in values:
        if not value or len(value) > MAX_VALUE:
            raise InvalidError(f'{field}: "{value[:80]}" is not a name of 1 to {MAX_VALUE} characters')
    return frozenset(values)


def _word(field: str, word: str, words: Mapping[str, E]) -> E:
    if word not in words:
        raise InvalidError(f'{field}: "{word[:80]}" is not one of {", ".join(words)}')
    return words[word]


def _checked(field: str, numbers: Iterable[int], known: Collection[int], make: type[E]) -> Iterable[E]:
    for number in numbers:
        if number not in known:
            raise InvalidError(f"{field}: {number} is not one of {', '.join(str(int(number)) for number in known)}")
        yield make(number)  # type: ignore[call-arg]
