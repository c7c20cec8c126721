"""The domain's enumerations: kinds and levels of fire signs, senses, states of a zone.

Their numbers are those of the wire (`embereye.v1`). Convert at the boundary: `Level(report.level)` on the way in,
`level.wire` on the way out. A number from a newer version is preserved, as a member named UNKNOWN_….
"""

from enum import IntEnum
from typing import Self

from embereye.v1 import alarms_pb2, types_pb2


class _WireEnum(IntEnum):
    """An enumeration of the wire that preserves unknown numbers."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"UNKNOWN_{value}", value
        return member


class Kind(_WireEnum):
    """The kind of a fire sign."""

    UNSPECIFIED = types_pb2.KIND_UNSPECIFIED
    HEAT = types_pb2.KIND_HEAT
    SMOKE = types_pb2.KIND_SMOKE
    GAS = types_pb2.KIND_GAS
    FLAME = types_pb2.KIND_FLAME

    @property
    def wire(self) -> types_pb2.Kind.ValueType:
        """The value as the wire's type."""
        return types_pb2.Kind.ValueType(self)

    @property
    def word(self) -> str:
        """The word for people: "heat"; "sign" for an unknown kind."""
        return _KIND_WORDS.get(self, "sign")


class Level(_WireEnum):
    """The strength of a sign. Each level includes the ones below it."""

    UNSPECIFIED = types_pb2.LEVEL_UNSPECIFIED  # unknown
    CLEAR = types_pb2.LEVEL_CLEAR  # there is no sign, or it has ended
    PRE_ALARM = types_pb2.LEVEL_PRE_ALARM  # counts only together with another kind
    ALARM = types_pb2.LEVEL_ALARM  # alone enough for an alarm
    CRITICAL = types_pb2.LEVEL_CRITICAL  # alone enough, without waiting for confirmation

    @property
    def wire(self) -> types_pb2.Level.ValueType:
        """The value as the wire's type."""
        return types_pb2.Level.ValueType(self)

    @property
    def word(self) -> str:
        """The word for people: "pre-alarm"."""
        return self.name.lower().replace("_", "-")


class Sense(_WireEnum):
    """The sense that noticed a sign."""

    UNSPECIFIED = types_pb2.SENSE_UNSPECIFIED
    SENSOR = types_pb2.SENSE_SENSOR
    CAMERA = types_pb2.SENSE_CAMERA

    @property
    def wire(self) -> types_pb2.Sense.ValueType:
        """The value as the wire's type."""
        return types_pb2.Sense.ValueType(self)


class ZoneState(_WireEnum):
    """The state of a zone between normal and alarm."""

    UNSPECIFIED = alarms_pb2.ZONE_STATE_UNSPECIFIED
    NORMAL = alarms_pb2.ZONE_STATE_NORMAL
    PRE_ALARM = alarms_pb2.ZONE_STATE_PRE_ALARM
    ALARM = alarms_pb2.ZONE_STATE_ALARM
    ACKNOWLEDGED = alarms_pb2.ZONE_STATE_ACKNOWLEDGED  # a person knows; the signs may continue
    RESTORED = alarms_pb2.ZONE_STATE_RESTORED  # acknowledged, and the signs have ended

    @property
    def wire(self) -> alarms_pb2.ZoneState.ValueType:
        """The value as the wire's type."""
        return alarms_pb2.ZoneState.ValueType(self)

    @property
    def word(self) -> str:
        """The word for people: "pre-alarm"; "unknown" for an unknown state."""
        return self.name.lower().replace("_", "-") if ZoneState.NORMAL <= self <= ZoneState.RESTORED else "unknown"

    @property
    def severity(self) -> int:
        """The urgency, only to be compared with that of other states: greater is more urgent."""
        return _SEVERITY.index(self) if self in _SEVERITY else -1


_KIND_WORDS = {Kind.HEAT: "heat", Kind.SMOKE: "smoke", Kind.GAS: "gas", Kind.FLAME: "flame"}
# From least to most urgent. An acknowledged alarm continues; a restored one only waits for its reset.
_SEVERITY = (
    ZoneState.UNSPECIFIED,
    ZoneState.NORMAL,
    ZoneState.RESTORED,
    ZoneState.PRE_ALARM,
    ZoneState.ACKNOWLEDGED,
    ZoneState.ALARM,
)
