"""Turn signs into evidence: one episode per uninterrupted sign, reported when it starts, grows, continues and ends.

Shards pass the sign of each analysis, also the clear ones, and send the report that `observe` returns, if any. An open
episode is found by device and kind. Its level never falls. It ends if the sign was clear for a few seconds; after
a longer silence of the device, the next sign starts a new one. Reports of an episode are numbered, so every report has
its own id. All state is in memory.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import EvidenceItem, Region
from embereye.v1.types_pb2 import Term
from embereye.zone.fusion import WINDOW_NS

REPEAT_NS = 1_000_000_000  # between two reports of a continuing sign
HOLD_NS = 3_000_000_000  # gaps shorter than this do not end an episode: signs flicker


@dataclass(frozen=True)
class Sign:
    """A detector's result for one kind at one device at one moment; Level.CLEAR means no sign."""

    device: str
    zone: str
    kind: Kind
    sense: Sense
    level: Level
    score: float  # 0..1
    why: Sequence[Term] = ()
    relative: bool = False
    note: str = ""
    snapshot: bytes = b""  # JPEG
    region: Region | None = None  # region of a camera's picture


@dataclass(slots=True)
class _Episode:
    id: str
    since_ns: int
    until_ns: int
    reported_ns: int
    level: Level
    zone: str
    reports: int


class Episodes:
    """Decides which signs become evidence reports. Pass it every sign, also the clear ones."""

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet
        self._silence_ns = WINDOW_NS
        self._open: dict[tuple[str, Kind], _Episode] = {}

    def configure(self, deadline_ns: int) -> None:
        """Continue a sign's episode after a silence of up to `deadline_ns`, or WINDOW_NS if that is longer."""
        self._silence_ns = max(WINDOW_NS, deadline_ns)

    def observe(self, sign: Sign, now_ns: int) -> EvidenceItem | None:
        """The report to send for `sign` at `now_ns`; None if it is no news for the hub."""
        key = (sign.device, sign.kind)
        episode = self._open.get(key)
        if sign.level <= Level.CLEAR:
            if episode is None or now_ns - episode.until_ns < HOLD_NS:
                return None
            del self._open[key]
            return self._report(sign, episode, Level.CLEAR)
        if episode is None or now_ns - episode.until_ns > self._silence_ns:
            episode = _Episode(uuid.uuid4().hex, now_ns, now_ns, 0, Level.UNSPECIFIED, sign.zone, 0)
            self._open[key] = episode
        episode.until_ns = now_ns
        if sign.level <= episode.level and now_ns - episode.reported_ns < REPEAT_NS:
            return None
        episode.reported_ns = now_ns
        # The level never falls within an episode: a fire that flickers has not become smaller.
        episode.level = max(episode.level, sign.level)
        return self._report(sign, episode, episode.level)

    def is_active(self, device: str) -> bool:
        """True if any sign is open at `device`, so that its baselines must not learn."""
        return any(key[0] == device for key in self._open)

    def forget(self, devices: set[str]) -> None:
        """Drop the episodes of `devices`, which another shard owns now. No end is reported: the new owner continues."""
        for key in [key for key in self._open if key[0] in devices]:
            del self._open[key]

    def _report(self, sign: Sign, episode: _Episode, level: Level) -> EvidenceItem:
        episode.reports += 1
        return EvidenceItem(
            id=f"{episode.id}-{episode.reports}",
            episode=episode.id,
            fleet=self.fleet,
            device=sign.device,
            zone=sign.zone or episode.zone,
            kind=sign.kind.wire,
            sense=sign.sense.wire,
            level=level.wire,
            score=sign.score,
            since_ns=episode.since_ns,
            until_ns=episode.until_ns,
            why=sign.why,
            snapshot=sign.snapshot,
            relative=sign.relative,
            note=sign.note,
            region=sign.region,
        )
