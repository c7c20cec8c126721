"""Comparison of a candidate's signs with those in force. Pure: time is an argument.

Both sides pass each of their signs to `note`. Once a side reaches a pre-alarm, or an alarm, the other one must reach it
within TOLERANCE_NS of its kind, before or after. If it does not, `due` returns a `Difference`. A level that returns
within SAME_NS is not compared again. Data that the candidate did not get is not compared; a sign that the candidate
raises then and still has later is compared later.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from embereye.levels import Kind, Level
from embereye.margins import Measured, measured_terms
from embereye.shard.evidence.episodes import Sign
from embereye.units import SECOND

Side = Literal["inForce", "candidate"]
Key = tuple[str, Kind]  # device, kind

# As long as people may wait for such a sign: flame 5 s, smoke 15 s.
TOLERANCE_NS = {Kind.HEAT: 10 * SECOND, Kind.SMOKE: 15 * SECOND, Kind.GAS: 10 * SECOND, Kind.FLAME: 5 * SECOND}
LONGEST_NS = max(TOLERANCE_NS.values())
SAME_NS = 60 * SECOND  # signs flicker: without this, one fire would give many differences
COMPARED = (Level.PRE_ALARM, Level.ALARM)
NEVER_NS = -(2**62)


@dataclass(frozen=True)
class Difference:
    """A pre-alarm or an alarm that only one side raised."""

    id: str  # unique
    device: str
    zone: str
    kind: Kind
    level: Level  # PRE_ALARM or ALARM
    which: Side  # the side that raised it
    at_ns: int  # nanoseconds, on the clock of the signs
    terms: Sequence[Measured] = ()  # of the side that raised it
    episode: str = ""  # the one whose clips and recordings show it


@dataclass
class _Rise:
    """A level that one side has reached and the other may still reach."""

    at_ns: int
    level: Level
    sign: Sign
    episode: str


@dataclass
class _Side:
    level: Level = Level.CLEAR  # of the present sign
    reached_ns: dict[Level, int] = field(default_factory=dict)  # when each level was last in force
    rise: _Rise | None = None

    def has_reached(self, level: Level, since_ns: int) -> bool:
        """True if `level` is in force, or was since `since_ns`."""
        return self.level >= level or self.reached_ns.get(level, NEVER_NS) >= since_ns

    def is_idle(self, now_ns: int) -> bool:
        """True if nothing is lost with it."""
        past = all(now_ns - reached_ns > SAME_NS for reached_ns in self.reached_ns.values())
        return self.rise is None and self.level <= Level.CLEAR and past


class Comparison:
    """Compares the signs of all devices of a shard."""

    def __init__(self) -> None:
        self._sides: dict[Side, dict[Key, _Side]] = {"inForce": {}, "candidate": {}}
        self._unseen: dict[str, int] = {}  # device → when the candidate last did not get its data

    def note(self, which: Side, sign: Sign, now_ns: int, episode: str = "") -> None:
        """Note a sign of one side, also the clear one at its end; `episode` is that of its report."""
        key, level = (sign.device, sign.kind), min(sign.level, Level.ALARM)  # critical signs count as alarms
        side = self._sides[which].get(key)
        if side is None:
            if level <= Level.CLEAR:
                return
            side = self._sides[which][key] = _Side()
        side.level = level
        reached = [step for step in COMPARED if level >= step]
        new = [step for step in reached if now_ns - side.reached_ns.get(step, NEVER_NS) > SAME_NS]
        side.reached_ns |= dict.fromkeys(reached, now_ns)
        if side.rise:
            side.rise.episode = side.rise.episode or episode
        if new and (side.rise is None or new[-1] > side.rise.level):
            side.rise = _Rise(now_ns, new[-1], sign, episode)

    def note_unseen(self, device: str, now_ns: int) -> None:
        """Note that the candidate did not get data of `device`."""
        self._unseen[device] = now_ns

    def due(self, now_ns: int) -> list[Difference]:
        """Return the differences that are certain at `now_ns`. Call it about every second."""
        differences = list[Difference]()
        for which, sides in self._sides.items():
            others = self._sides["candidate" if which == "inForce" else "inForce"]
            for key, side in list(sides.items()):
                rise = side.rise
                if rise and now_ns - rise.at_ns > _tolerance_ns(key):
                    if self._is_unseen(key, rise):
                        # In force, everything was seen: what the candidate still raises is compared later.
                        rise.at_ns = now_ns
                        side.rise = rise if which == "candidate" and side.level >= rise.level else None
                        continue
                    side.rise = None
                    if not _is_matched(key, rise, others.get(key)):
                        differences.append(_difference(which, rise))
                if side.is_idle(now_ns):
                    del sides[key]
        return differences

    def _is_unseen(self, key: Key, rise: _Rise) -> bool:
        """True if the candidate lacks data from around the rise, so that nothing is known."""
        return self._unseen.get(key[0], NEVER_NS) >= rise.at_ns - _tolerance_ns(key)

    def forget(self, device: str) -> None:
        """Forget a device that this shard no longer owns."""
        for sides in self._sides.values():
            for key in [key for key in sides if key[0] == device]:
                del sides[key]
        self._unseen.pop(device, None)


def _is_matched(key: Key, rise: _Rise, other: _Side | None) -> bool:
    """True if the other side reached the level, too."""
    return other is not None and other.has_reached(rise.level, rise.at_ns - _tolerance_ns(key))


def _tolerance_ns(key: Key) -> int:
    return TOLERANCE_NS.get(key[1], LONGEST_NS)


def _difference(which: Side, rise: _Rise) -> Difference:
    sign = rise.sign
    name = uuid.uuid4().hex
    return Difference(
        id=name, device=sign.device, zone=sign.zone, kind=sign.kind, level=rise.level, which=which, at_ns=rise.at_ns,
        terms=measured_terms(sign.why), episode=rise.episode or name,
    )  # fmt: skip
