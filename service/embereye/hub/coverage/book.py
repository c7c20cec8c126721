"""Whether everything that ought to be watched is watched: rosters held against what shards report.

Times named `now` are nanoseconds of a steady clock, which no time server sets: a step of the wall clock must not
darken anything.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, ThermalPicture
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

MARGIN = 2 * SECOND  # past a device's deadline: two coverage reports
RESTART_GRACE = 3 * SECOND  # past the deadline after the hub started: shards redial with back-off
STALL = 1 * SECOND  # between two looks, after which it was the hub that did not listen
FRESH = 3 * SECOND  # a shard reports every second; what it said longer ago may no longer be so
FORGET = 60 * SECOND  # what a vanished shard said
MAX_UNDECLARED = 256  # devices kept per fleet that nobody declared
DERIVED_DEADLINE = 5 * SECOND  # of a fleet for which nobody sent a roster: its shards do not tell theirs
NOBODY = "no shard reports it"


@dataclass(slots=True)
class Sighting:
    """What one shard last said of one device."""

    status: DeviceStatus  # without pictures
    epoch: int
    heard: int


@dataclass(slots=True)
class Watched:
    """One device that ought to be watched."""

    device: Device
    patience: int  # no fault before this time, whatever is reported
    awaited: bool = False  # a shard has said, in time, that it waits for a first word
    covered: int = 0  # when it last was; 0: never
    sightings: dict[str, Sighting] = field(default_factory=dict)  # by shard
    picture: bytes = b""  # JPEG
    picture_ns: int = 0  # when it came, on the hub's timeline
    thermal: ThermalPicture | None = None
    thermal_ns: int = 0


@dataclass(slots=True)
class Fleet:
    """What ought to be watched of one fleet."""

    name: str  # "namespace/kind/name"
    epoch: int = 0
    deadline: int = DERIVED_DEADLINE  # nanoseconds
    open: bool = False  # anybody may speak for its devices
    derived: bool = False  # nobody sent a roster: the devices are those that shards report
    devices: dict[str, Watched] = field(default_factory=dict)
    # Devices that talk although nobody declared them: people see them, but nothing is expected of them.
    undeclared: dict[str, Watched] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The fleet's namespace, which is also its zones'."""
        return namespace_of(self.name)

    def roster(self) -> FleetRoster:
        """The fleet as it is stored."""
        devices = [watched.device for watched in self.devices.values()]
        return FleetRoster(
            fleet=self.name, epoch=self.epoch, deadline_ns=self.deadline, devices=devices, open=self.open
        )


@dataclass(slots=True)
class _Shard:
    heard: int
    time_ns: int
    epoch: int
    devices: frozenset[str]
    parts: frozenset[str] = frozenset()  # those of a report that is not complete


def namespace_of(fleet: str) -> str:
    """The namespace in "namespace/kind/name"."""
    namespace, slash, _ = fleet.partition("/")
    return namespace if slash and namespace else "default"


class CoverageBook:
    """Holds rosters against reports. One owner, one thread."""

    def __init__(self, now: int) -> None:
        self._started = now
        self._looked = now
        self._excused = now - RESTART_GRACE  # until then nothing is judged
        self.unheard = 0  # time in which nobody could be heard; it does not pass for whoever passes `now`
        self.fleets: dict[str, Fleet] = {}
        self.forgotten: set[str] = set()  # fleets that are gone, although a shard of theirs may still speak
        self._shards: dict[tuple[str, str], _Shard] = {}

    # What ought to be watched

    def restore(self, roster: FleetRoster, *, derived: bool) -> None:
        """Go on with a roster from before a restart; shards get time to come back."""
        fleet = self._replace_roster(roster, self._started + RESTART_GRACE)
        fleet.derived = derived

    def set_roster(self, roster: FleetRoster, now: int) -> None:
        """Replace what ought to be watched of one fleet; the caller has refused older epochs."""
        self.forgotten.discard(roster.fleet)
        self._replace_roster(roster, now + MARGIN)

    def _replace_roster(self, roster: FleetRoster, since: int) -> Fleet:
        old = self.fleets.get(roster.fleet)
        known = old.devices if old else {}
        fleet = Fleet(roster.fleet, roster.epoch, roster.deadline_ns, roster.open)
        fleet.undeclared = dict(old.undeclared) if old else {}
        for device in roster.devices:
            watched = known.get(device.id) or Watched(device, since + fleet.deadline)
            watched.device = device
            fleet.devices[device.id] = watched
            fleet.undeclared.pop(device.id, None)
        self.fleets[roster.fleet] = fleet
        return fleet

    def forget(self, name: str) -> None:
        """The fleet is gone; what its shards still say founds no new one."""
        if self.fleets.pop(name, None) is not None:
            self.forgotten.add(name)

    # What shards report

    def report(self, coverage: Coverage, now: int, time_ns: int = 0) -> Fleet | None:
        """Take a shard's report; returns the fleet where its derived roster changed by it, and has to be stored.

        `time_ns` is when it came, on the hub's timeline, which pictures are labelled with.
        """
        if not coverage.fleet or coverage.fleet in self.forgotten:
            return None
        key = coverage.fleet, coverage.shard
        last = self._shards.get(key)
        if last and coverage.time_ns < last.time_ns and coverage.epoch <= last.epoch and now - last.heard < FRESH:
            return None  # from an older stream of the same shard
        names = frozenset(status.id for status in coverage.devices)
        if last and last.parts and coverage.time_ns == last.time_ns:
            names |= last.parts
        listed = last.devices if last else frozenset()
        self._shards[key] = _Shard(
            now, coverage.time_ns, coverage.epoch,
            listed | names if coverage.more else names, names if coverage.more else frozenset(),
        )  # fmt: skip
        fleet = self.fleets.get(coverage.fleet)
        if fleet is None:
            fleet = self.fleets[coverage.fleet] = Fleet(coverage.fleet, derived=True)
        changed = fleet.derived and self._derive(fleet, coverage, now)
        for gone in frozenset() if coverage.more else listed - names:
            if gone in fleet.devices:
                fleet.devices[gone].sightings.pop(coverage.shard, None)
            if gone in fleet.undeclared:
                del fleet.undeclared[gone]
        for status in coverage.devices:
            watched = fleet.devices.get(status.id) or self._stranger(fleet, status)
            if watched is not None:
                self._sight(fleet, watched, coverage, status, now, time_ns or coverage.time_ns)
        return fleet if changed else None

    @staticmethod
    def _stranger(fleet: Fleet, status: DeviceStatus) -> Watched | None:
        if status.zone or (status.id not in fleet.undeclared and len(fleet.undeclared) >= MAX_UNDECLARED):
            return None
        return fleet.undeclared.setdefault(status.id, Watched(Device(id=status.id), 0))

    def _derive(self, fleet: Fleet, coverage: Coverage, now: int) -> bool:
        """Make the roster of an undeclared fleet what its shards list; a device that none lists stays, and is dark."""
        changed = False
        for status in coverage.devices:
            known = fleet.devices.get(status.id)
            if known is None and not status.zone:
                continue
            if known is None:
                changed = True
                device = Device(id=status.id, zone=status.zone)
                fleet.devices[status.id] = Watched(device, now + fleet.deadline + MARGIN)
            elif status.zone and known.device.zone != status.zone:
                changed, known.device.zone = True, status.zone
        return changed

    @staticmethod
    def _sight(
        fleet: Fleet, watched: Watched, coverage: Coverage, status: DeviceStatus, now: int, time_ns: int
    ) -> None:
        if status.picture:
            watched.picture, watched.picture_ns = status.picture, time_ns
        if status.HasField("thermal"):
            watched.thermal = ThermalPicture()
            watched.thermal.CopyFrom(status.thermal)
            watched.thermal_ns = time_ns
        status.ClearField("picture")
        status.ClearField("thermal")
        watched.sightings[coverage.shard] = Sighting(status, coverage.epoch, now)
        if coverage.epoch < fleet.epoch:
            return
        if status.covered:
            watched.covered = now
        elif not (watched.covered or watched.awaited or status.heard_ns) and now <= watched.patience:
            # Until now its shard was only starting: nobody could have heard it. Once, and never for what is dark.
            watched.awaited = True
            watched.patience = max(watched.patience, now + fleet.deadline + MARGIN)

    def store_picture(self, fleet: str, device: str, jpeg: bytes, time_ns: int) -> None:
        """Keep a newer picture of a device, whoever brought it."""
        found = self.find(fleet, device)
        if found and time_ns > found[1].picture_ns:
            found[1].picture, found[1].picture_ns = jpeg, time_ns

    # What follows

    def is_covered(self, fleet: Fleet, watched: Watched, now: int) -> bool:
        """Whether any shard of the current epoch says, freshly, that the device is watched."""
        return any(
            sighting.status.covered and sighting.epoch >= fleet.epoch and now - sighting.heard < FRESH
            for sighting in watched.sightings.values()
        )

    def reason(self, fleet: Fleet, watched: Watched, now: int) -> str:
        """Why the device is not covered, as one clause; '' where it is."""
        if self.is_covered(fleet, watched, now):
            return ""
        fresh = [(shard, s) for shard, s in watched.sightings.items() if now - s.heard < FRESH]
        current = [s.status.reason for _, s in fresh if s.epoch >= fleet.epoch and not s.status.covered]
        if current:
            return current[0] or "its shard says it is not covered, and not why"
        for shard, sighting in fresh:
            return f"{shard} still works under assignment {sighting.epoch}, and {fleet.epoch} is in force"
        return NOBODY

    def check_listening(self, now: int, worked: int = 0) -> bool:
        """To be asked often: False for a while after the hub itself was suspended or starved.

        Reports that came meanwhile still wait to be read; what they say must not be taken for silence. Of the time
        since it was asked last the hub worked for `worked` nanoseconds: work of its own is no excuse, or whoever gave
        it enough to do would keep every device from being found dark. Nor is the next interruption, for as long again:
        on a machine with many of them nothing would be judged any more.
        """
        gap = now - self._looked
        if gap - worked > STALL and now - self._excused >= RESTART_GRACE:
            self._excused = now + RESTART_GRACE
        self.unheard += max(0, gap - STALL)
        self._looked = now
        return now >= self._excused

    def is_dark(self, fleet: Fleet, watched: Watched, now: int) -> bool:
        """Whether the device has not been covered for longer than its deadline and the margin allow.

        A shard that has heard the device and calls it dark has waited for the deadline already. One that never heard
        it may have got it a moment ago, and a shard that says nothing may be on its way back.
        """
        due = watched.patience
        if watched.covered:
            waited = any(
                sighting.status.heard_ns and sighting.epoch >= fleet.epoch and now - sighting.heard < FRESH
                for sighting in watched.sightings.values()
            )
            due = max(due, watched.covered + MARGIN + (0 if waited else fleet.deadline))
        return now > due and not self.is_covered(fleet, watched, now)

    def devices(self) -> Iterator[tuple[Fleet, Watched]]:
        """Every device that ought to be watched."""
        for fleet in self.fleets.values():
            for watched in fleet.devices.values():
                yield fleet, watched

    def find(self, fleet: str, device: str) -> tuple[Fleet, Watched] | None:
        """The declared device of that name."""
        known = self.fleets.get(fleet)
        watched = known.devices.get(device) if known else None
        return (known, watched) if known and watched else None

    def undeclared_devices(self) -> Iterator[tuple[Fleet, Watched]]:
        """Every device that talks although nobody declared it."""
        for fleet in self.fleets.values():
            for watched in fleet.undeclared.values():
                yield fleet, watched

    def undeclared_device(self, fleet: str, device: str) -> Watched | None:
        """The undeclared device of that name."""
        known = self.fleets.get(fleet)
        return known.undeclared.get(device) if known else None

    def counts(self, now: int) -> dict[tuple[str, str], tuple[int, int]]:
        """Devices declared and covered, by zone (namespace, name)."""
        counts: dict[tuple[str, str], tuple[int, int]] = {}
        for fleet, watched in self.devices():
            key = fleet.namespace, watched.device.zone
            declared, covered = counts.get(key, (0, 0))
            counts[key] = declared + 1, covered + self.is_covered(fleet, watched, now)
        return counts

    def tidy(self, now: int) -> None:
        """Drop what vanished shards said long ago."""
        for key in [key for key, shard in self._shards.items() if now - shard.heard > FORGET]:
            del self._shards[key]
        for fleet in self.fleets.values():
            for watched in (*fleet.devices.values(), *fleet.undeclared.values()):
                for shard in self._stale(watched.sightings.items(), now):
                    del watched.sightings[shard]
            fleet.undeclared = {name: watched for name, watched in fleet.undeclared.items() if watched.sightings}

    @staticmethod
    def _stale(sightings: Iterable[tuple[str, Sighting]], now: int) -> list[str]:
        return [shard for shard, sighting in sightings if now - sighting.heard > FORGET]
