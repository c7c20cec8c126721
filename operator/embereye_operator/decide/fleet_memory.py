"""What the operator remembers of a fleet between passes: losing it makes decisions later, never worse."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.exposure import Exposure
from embereye_operator.decide.manifests.compare import Deviation
from embereye_operator.decide.placement.record import PlacementRecord
from embereye_operator.decide.rollout.rollout import RolloutMemory
from embereye_operator.decide.scaling.followers import Judgement
from embereye_operator.decide.scaling.law import DEFAULT_LEAD, Scaler
from embereye_operator.decide.scaling.writers import Write

LOST = 4 * SECOND  # without an answer, until a shard's devices go to others
ABSENCE = 6 * SECOND  # between two passes: the operator itself stood still, and with it maybe all others
REFUSED = 15 * SECOND  # between attempts at what a quota or a policy refuses, as long as nobody changes the fleet
UNEVEN = 60 * SECOND  # that loads must differ before devices move for it
SAMPLE = 10 * SECOND  # between samples of a device's rate
SAMPLES = 3  # until a device's weight is believed
IDLE_WEIGHT = 0.0005  # cores; what a silent device costs by being there
SMOOTHING = 0.3  # share of a new sample in a weight


@dataclass(slots=True)
class _Rate:
    when: int  # nanoseconds since the Unix epoch
    offered: int
    shard: str
    weight: float = 0.0  # cores
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """That an object was not taken, and of which generation of the fleet it was made."""

    reason: str
    generation: int
    first: int  # nanoseconds since the Unix epoch, of those in a row
    latest: int  # likewise


@dataclass
class FleetMemory:
    """Of one fleet. Times are nanoseconds since the Unix epoch.

    Since when something has been waited for is later by most of the time for which nobody looked.
    """

    silent: dict[str, int] = field(default_factory=dict)  # shard → since when it has not answered
    waiting: dict[str, int] = field(default_factory=dict)  # device that is handed over → since when we see it
    leaving: dict[str, int] = field(default_factory=dict)  # shard → since when it is to go
    redeclared: dict[str, int] = field(default_factory=dict)  # device → the epoch that first declares it as it is
    refused: dict[tuple[str, str], Refusal] = field(default_factory=dict)  # kind, name → the latest
    admitted: dict[tuple[str, str], tuple[str, Sequence[Deviation]]] = field(default_factory=dict)  # see `admits`
    scaler: Scaler = field(default_factory=Scaler)
    lead: float = DEFAULT_LEAD  # seconds from a new shard's making until it answers
    _coming: dict[str, int] = field(default_factory=dict)  # shard → since when it exists without answering
    # What the latest pass found, so that the next one need not work it out again while nothing has changed.
    declared: tuple[tuple[Any, ...], Sequence[Device]] = ((), [])  # from what, devices
    applied: Any = None  # under what everything was as it should be
    status: FleetStatus | None = None  # as it was read or written last
    found: tuple[Mapping[tuple[str, str], str], PlacementRecord, Sequence[str], Mapping[str, str]] | None = (
        None  # versions, record, existing shards, those whose pods are refused → why
    )
    roster: tuple[Any, FleetRoster] = field(default_factory=lambda: ((), FleetRoster()))  # from what, as it was told
    exposed: tuple[Any, Exposure | None] = ((), None)  # of which objects as they are, and what it has come to
    left: Any = None  # what a paused fleet's shards were last moved away from
    judged: tuple[Any, Judgement | None] = ((), None)  # of which autoscaler as it is, and whether it works
    rollout: RolloutMemory = field(default_factory=RolloutMemory)
    writes: tuple[Write, ...] = ()  # of spec.shards, the latest last
    uneven: int = 0  # since when loads have differed too much; 0: they do not
    _rates: dict[str, _Rate] = field(default_factory=dict)
    _asked: int = 0  # when shards were asked last
    _doubted: set[str] = field(default_factory=set)  # silent shards that are asked once more, after an absence

    def heard(self, statuses: Mapping[str, ShardStatus | None], now: int) -> None:
        """Take what the shards said, or that they did not."""
        self._leave_out_absence(now)
        for shard, status in statuses.items():
            if status is None:
                self.silent.setdefault(shard, now)
            else:
                self.silent.pop(shard, None)
                self._came(shard, now)
                self._weigh(shard, status, now)
        for shard in [shard for shard in self.silent if shard not in statuses]:
            del self.silent[shard]
            self._coming.pop(shard, None)
        self._doubted &= self.silent.keys()

    def _leave_out_absence(self, now: int) -> None:
        """Have nothing that is waited for be older by time that nobody has seen.

        Some of it counts: passes may all take long. Fleets at rest are looked at seldom, also where their loads differ.
        """
        passed, self._asked = now - self._asked, now
        if passed <= ABSENCE:
            return
        for shard in self.silent.keys() - self._doubted:
            self.silent[shard] = max(self.silent[shard], now - LOST // 2)
        self._doubted.update(self.silent)
        unseen = passed - ABSENCE
        self.waiting = {device: since + unseen for device, since in self.waiting.items()}
        self.leaving = {shard: since + unseen for shard, since in self.leaving.items()}
        self.uneven += max(0, passed - UNEVEN // 2) if self.uneven else 0

    def made(self, shards: Collection[str], now: int) -> None:
        """Note that `shards` have just been made: what they take to answer is what the next ones will take."""
        self._coming |= dict.fromkeys(shards, now)

    def _came(self, shard: str, now: int) -> None:
        if (since := self._coming.pop(shard, None)) is not None:
            self.lead = max(1.0, (now - since) / SECOND)

    def _weigh(self, shard: str, status: ShardStatus, now: int) -> None:
        for device in status.devices:
            offered = device.ledger.offered
            known = self._rates.get(device.id)
            if known is None or known.shard != shard or offered < known.offered:
                weight, samples = (known.weight, known.samples) if known else (0.0, 0)
                self._rates[device.id] = _Rate(now, offered, shard, weight, samples)
            elif now - known.when >= SAMPLE:
                rate = (offered - known.offered) / ((now - known.when) / SECOND)
                sample = rate * status.load.cost_seconds
                share = SMOOTHING if known.samples else 1.0
                known.weight += share * (sample - known.weight)
                known.when, known.offered, known.samples = now, offered, known.samples + 1

    def weights(self, devices: Collection[str]) -> dict[str, float]:
        """What each device costs in cores; empty until all but a few have been measured for a while."""
        for device in [device for device in self._rates if device not in devices]:
            del self._rates[device]
        known = {
            device: IDLE_WEIGHT + float(f"{rate.weight:.2g}")
            for device, rate in self._rates.items()
            if rate.samples >= SAMPLES
        }
        return known if len(known) >= 0.9 * len(devices) else {}

    def lost(self, shards: Iterable[str], now: int, dead: Collection[str] = ()) -> set[str]:
        """Those of `shards` that have been silent for too long; those that are known to be `dead` in any case.

        None of the others where more than half of them are silent: then it is more likely that the operator is cut off.
        """
        shards = list(shards)
        gone = {shard for shard in shards if shard in self.silent and shard in dead}
        others = [shard for shard in shards if shard not in gone]
        silent = [shard for shard in others if shard in self.silent]
        if 2 * len(silent) > len(others):
            return gone
        return gone | {shard for shard in silent if now - self.silent[shard] >= LOST}

    def waits(self, devices: Iterable[str], now: int) -> dict[str, int]:
        """Since when this operator itself has seen each device wait: another one's clock may have been another's."""
        self.waiting = {device: min(now, self.waiting.get(device, now)) for device in devices}
        return self.waiting

    def leaves(self, shards: Collection[str], now: int) -> None:
        """Note which shards are to go."""
        self.leaving = {shard: self.leaving.get(shard, now) for shard in shards}

    def admits(self, identity: tuple[str, str], asked: str, left: Sequence[Deviation]) -> None:
        """Note what is `left` of the difference once an object was written, as admission or its kind would have it.

        `asked` is a hash of what was to be written.
        """
        if left:
            self.admitted[identity] = asked, copy.deepcopy(left)
        else:
            self.admitted.pop(identity, None)

    def is_known(self, identity: tuple[str, str], asked: str, found: Sequence[Deviation]) -> bool:
        """Whether writing the object would change nothing about what was `found` to deviate."""
        before, left = self.admitted.get(identity, ("", ()))
        return all(before == asked and deviation in left for deviation in found)

    def refuses(self, identity: tuple[str, str], reason: str, generation: int, now: int) -> None:
        """Note that the object of that kind and name was refused, as it was made of `generation`."""
        before = self.refused.get(identity)
        first = before.first if before and before.generation == generation else now
        self.refused[identity] = Refusal(reason, generation, first, now)

    def refusal(self, identity: tuple[str, str], generation: int, now: int) -> str:
        """Why the object was refused, where it is too early for another attempt: waits double up to REFUSED."""
        known = self.refused.get(identity)
        if known is None or known.generation != generation:
            return ""
        wait = min(REFUSED, known.latest - known.first)
        return known.reason if 0 <= now - known.latest < wait else ""

    def redeclares(self, before: Mapping[str, Assignment | None], after: Mapping[str, Assignment], epoch: int) -> None:
        """Note which devices `epoch` declares otherwise: under an older one something else is watched by their name."""
        known, now = (
            {device.id: device for assignment in assignments.values() if assignment for device in assignment.devices}
            for assignments in (before, after)
        )
        changed = {device: epoch for device in now if known and known.get(device) != now[device]}
        self.redeclared = {device: first for device, first in self.redeclared.items() if device in now} | changed

    def uneven_for_long(self, uneven: bool, now: int) -> bool:
        """Whether loads have differed too much for long enough to move devices for it."""
        if not uneven:
            self.uneven = 0
        elif not self.uneven:
            self.uneven = now
        return bool(self.uneven) and now - self.uneven >= UNEVEN
