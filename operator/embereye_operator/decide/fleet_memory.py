"""The operator's memory of a fleet between passes: losing it delays decisions, but never makes them wrong.

The controller has one `FleetMemory` for each fleet and passes it to every pass. It has two kinds of content: times
since when something lasts (a silent shard, a waiting device, uneven loads), and results that are reused as long as
their inputs are the same. Anything that must survive a restart is stored instead, in the placement record or the
status. If the operator itself was stalled, start times move forward, so that the gap does not count as silence of
shards.
"""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.claims import Claim
from embereye_operator.decide.cluster.witnesses import Statements
from embereye_operator.decide.device_lists import Lists
from embereye_operator.decide.exposure import Exposure
from embereye_operator.decide.manifests.compare import Deviation
from embereye_operator.decide.placement.record import PlacementRecord
from embereye_operator.decide.rollout.rollout import RolloutMemory
from embereye_operator.decide.scaling.followers import Judgement
from embereye_operator.decide.scaling.law import DEFAULT_LEAD, Scaler
from embereye_operator.decide.scaling.writers import Write

LOST = 4 * SECOND  # silence of a shard, as only the operator sees it, until its devices move to other shards
VOUCHED_LOST = 30 * SECOND  # the same of a shard that the hub hears, and which therefore watches
ABSENCE = 6 * SECOND  # gap between two passes from which on the operator itself, or the whole machine, was stalled
REFUSED = 15 * SECOND  # longest interval between attempts that a quota or policy refuses, for the same fleet
UNEVEN = 60 * SECOND  # how long loads must differ before devices move
SAMPLE = 10 * SECOND  # interval between samples of a device's rate
SAMPLES = 3  # samples before a device's weight is used
IDLE_WEIGHT = 0.0005  # cores; cost of a silent device
SMOOTHING = 0.3  # weight of a new sample in the moving average


@dataclass(slots=True)
class _Rate:
    when: int  # nanoseconds since the Unix epoch
    offered: int
    shard: str
    weight: float = 0.0  # cores
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """An object that the API server refused, and the fleet's generation that it was built from."""

    reason: str
    generation: int
    first: int  # nanoseconds since the Unix epoch, of the first refusal in a row
    latest: int  # nanoseconds since the Unix epoch


@dataclass(frozen=True, slots=True)
class PassInputs:
    """The state of a fleet's objects in a pass, and the resource versions that it was read from."""

    versions: Mapping[tuple[str, str], str]
    record: PlacementRecord  # without assignments
    existing: Sequence[str]  # shards, by index
    refused: Mapping[str, str]  # shard → why its pod is refused


@dataclass
class FleetMemory:
    """The memory of one fleet. Times are nanoseconds since the Unix epoch.

    After an absence of the operator, start times move forward by most of the time without passes.
    """

    silent: dict[str, int] = field(default_factory=dict)  # shard → first missing answer
    witnessed: Statements = field(default_factory=Statements)  # of the latest pass
    heard: dict[str, int] = field(default_factory=dict)  # device → when a shard last heard it; 0: before this operator
    waiting: dict[str, int] = field(default_factory=dict)  # device in hand-over → first seen by this operator
    leaving: dict[str, int] = field(default_factory=dict)  # shard → since when it should be gone
    redeclared: dict[str, int] = field(default_factory=dict)  # device → first epoch with its current declaration
    refused: dict[tuple[str, str], Refusal] = field(default_factory=dict)  # kind, name → latest refusal
    admitted: dict[tuple[str, str], tuple[str, Sequence[Deviation]]] = field(
        default_factory=dict
    )  # see `note_admitted`
    scaler: Scaler = field(default_factory=Scaler)
    lead: float = DEFAULT_LEAD  # seconds from a shard's creation to its first answer
    _coming: dict[str, int] = field(default_factory=dict)  # shard → creation time, until it answers
    # Results of the latest pass, reused as long as nothing has changed.
    declared: tuple[tuple[Any, ...], Sequence[Device]] = ((), [])  # inputs, devices
    lists: tuple[str, Lists, str] = "", {}, ""  # the fleet's uid, its device lists when last read, and their text
    claims: tuple[Any, frozenset[Claim]] = (), frozenset()  # inputs, what the fleet claims
    applied: Any = None  # the inputs under which every child was up to date
    status: FleetStatus | None = None  # as last read or written
    has_reported: bool = False  # a pass of this operator has compared the stored status
    differing_since: int = 0  # since when the status has differed from the stored one; 0: it does not
    unwritten: FleetStatus | None = None  # the status that the API server refused; None: it accepted the latest
    inputs: PassInputs | None = None
    roster: tuple[Any, FleetRoster] = field(
        default_factory=lambda: ((), FleetRoster())
    )  # inputs, roster as last reported
    exposed: tuple[Any, Exposure | None] = ((), None)  # the objects read, the resulting exposure
    vacated: Any = None  # the displaced pods of a paused fleet that were last rolled
    judged: tuple[Any, Judgement | None] = ((), None)  # the autoscaler read, and if it works
    rollout: RolloutMemory = field(default_factory=RolloutMemory)
    writes: tuple[Write, ...] = ()  # writes of spec.shards, oldest first
    uneven: int = 0  # since when loads have differed too much; 0 while they are even
    _rates: dict[str, _Rate] = field(default_factory=dict)
    _previous_pass: int = 0  # time
    _begun: bool = False  # a pass has seen the previous status
    _doubted: set[str] = field(default_factory=set)  # silent shards that get another chance after an absence

    def note_statuses(
        self, statuses: Mapping[str, ShardStatus | None], now: int, witnessed: Statements | None = None
    ) -> None:
        """Record each shard's answer or silence, and which of them the hub hears."""
        self.witnessed = witnessed or Statements()
        self._leave_out_absence(now)
        for shard, status in statuses.items():
            if status is None:
                self.silent.setdefault(shard, now)
            else:
                self.silent.pop(shard, None)
                self._note_answer(shard, now)
                self._note_heard(status)
                self._weigh(shard, status, now)
        for shard in [shard for shard in self.silent if shard not in statuses]:
            del self.silent[shard]
            self._coming.pop(shard, None)
        self._doubted &= self.silent.keys()

    def _leave_out_absence(self, now: int) -> None:
        """Move start times forward by the time without passes, so that it does not count as waiting.

        Some of it counts, because all passes may be slow. Idle fleets are reconciled rarely, even with uneven loads.
        """
        passed, self._previous_pass = now - self._previous_pass, now
        if passed <= ABSENCE:
            return
        for shard in self.silent.keys() - self._doubted:
            self.silent[shard] = max(self.silent[shard], now - LOST // 2)
        self._doubted.update(self.silent)
        unseen = passed - ABSENCE
        self.waiting = {device: since + unseen for device, since in self.waiting.items()}
        self.leaving = {shard: since + unseen for shard, since in self.leaving.items()}
        self.uneven += max(0, passed - UNEVEN // 2) if self.uneven else 0

    def note_created(self, shards: Collection[str], now: int) -> None:
        """Record when `shards` were created: their start-up time predicts that of the next ones."""
        self._coming |= dict.fromkeys(shards, now)

    def _note_answer(self, shard: str, now: int) -> None:
        if (since := self._coming.pop(shard, None)) is not None:
            self.lead = max(1.0, (now - since) / SECOND)

    def note_predecessor(self, devices: Collection[str], previous: FleetStatus) -> None:
        """Record, in the first pass of this operator, which `devices` were covered according to the previous status."""
        summary = previous.devices
        if not self._begun and summary.declared and summary.covered + len(summary.dark) == summary.declared:
            self.heard |= dict.fromkeys(set(devices).difference(entry.id for entry in summary.dark), 0)
        self._begun = True

    def _note_heard(self, status: ShardStatus) -> None:
        for device in status.devices:
            if device.heard_ns > self.heard.get(device.id, 0):
                self.heard[device.id] = device.heard_ns

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
        """Return each device's cost in cores; empty until 90 % of the devices have enough samples."""
        for device in [device for device in self._rates if device not in devices]:
            del self._rates[device]
        for device in [device for device in self.heard if device not in devices]:
            del self.heard[device]
        known = {
            device: IDLE_WEIGHT + float(f"{rate.weight:.2g}")
            for device, rate in self._rates.items()
            if rate.samples >= SAMPLES
        }
        return known if len(known) >= 0.9 * len(devices) else {}

    def lost_shards(self, shards: Iterable[str], now: int, dead: Collection[str] = ()) -> set[str]:
        """Return those of `shards` that have been silent for too long, and all silent ones on `dead` nodes or unheard.

        If more than half of the others are silent, none of them is lost: the operator is more likely cut off.
        """
        shards, gone = list(shards), {*dead, *self.witnessed.unheard}
        dead_shards = {shard for shard in shards if shard in self.silent and shard in gone}
        remaining = [shard for shard in shards if shard not in dead_shards]
        silent = [shard for shard in remaining if shard in self.silent]
        if 2 * len(silent) > len(remaining):
            return dead_shards
        vouched = self.witnessed.vouched
        limits = {shard: VOUCHED_LOST if shard in vouched else LOST for shard in silent}
        return dead_shards | {shard for shard, limit in limits.items() if now - self.silent[shard] >= limit}

    def note_intent(self, uneven_since: int, waiting: Mapping[str, int]) -> None:
        """Record since when loads differ too much, and since when each device waits for its next owner."""
        self.uneven, self.waiting = uneven_since, dict(waiting)

    def note_leaving(self, shards: Collection[str], now: int) -> None:
        """Record which shards should leave, and since when."""
        self.leaving = {shard: self.leaving.get(shard, now) for shard in shards}

    def note_admitted(self, identity: tuple[str, str], request: str, deviations: Sequence[Deviation]) -> None:
        """Record the `deviations` that remain after a write, because admission or defaulting changed the object.

        `request` is a hash of the manifest that was written.
        """
        if deviations:
            self.admitted[identity] = request, copy.deepcopy(deviations)
        else:
            self.admitted.pop(identity, None)

    def is_known(self, identity: tuple[str, str], request: str, deviations: Sequence[Deviation]) -> bool:
        """True if writing the object again would leave the same `deviations`."""
        previous, known = self.admitted.get(identity, ("", ()))
        return all(previous == request and deviation in known for deviation in deviations)

    def note_refusal(self, identity: tuple[str, str], reason: str, generation: int, now: int) -> None:
        """Record that the object of this kind and name, built from `generation`, was refused."""
        before = self.refused.get(identity)
        first = before.first if before and before.generation == generation else now
        self.refused[identity] = Refusal(reason, generation, first, now)

    def refusal(self, identity: tuple[str, str], generation: int, now: int) -> str:
        """Return the reason of the refusal until the next attempt is due; waits double up to REFUSED."""
        known = self.refused.get(identity)
        if known is None or known.generation != generation:
            return ""
        wait = min(REFUSED, known.latest - known.first)
        return known.reason if 0 <= now - known.latest < wait else ""

    def note_redeclared(
        self, before: Mapping[str, Assignment | None], after: Mapping[str, Assignment], epoch: int
    ) -> None:
        """Record the devices that `epoch` declares differently: reports under older epochs are about another device."""
        known, now = (
            {device.id: device for assignment in assignments.values() if assignment for device in assignment.devices}
            for assignments in (before, after)
        )
        changed = {device: epoch for device in now if known and known.get(device) != now[device]}
        self.redeclared = {device: first for device, first in self.redeclared.items() if device in now} | changed
