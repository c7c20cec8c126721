"""The coverage book: compares rosters (the declared devices) with shards' coverage reports.

Each `Watched` device collects a `Sighting` from every shard that reports it. A device's coverage is:

| coverage | condition |
| --- | --- |
| covered | a shard of the current epoch reported it as covered within the last `FRESH` |
| not covered | otherwise; `reason` says why |
| dark | not covered since its deadline and `MARGIN`, and past `grace_until`; its zone gets a fault |

The book also watches the hub itself. If it was suspended or starved (`check_listening`), reports that arrived
meanwhile are still unread, so no device is judged until `RESTART_GRACE` has passed. The time in which nobody could be
heard adds up in `unheard`; callers subtract it from their clock.

A fleet without a roster is derived: its devices are those that its shards list.

Times named `now` are nanoseconds of a steady clock, so that a step of the wall clock cannot make a device dark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from re import Pattern

from embereye.hub.coverage.measured import Measured
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, Judged, ThermalPicture
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

MARGIN = 2 * SECOND  # added to a device's deadline: two coverage reports
RESTART_GRACE = 3 * SECOND  # added to the deadline after the hub starts: shards redial with back-off
STALL = 1 * SECOND  # gap between two checks that means the hub itself was not listening
FRESH = 3 * SECOND  # how long a sighting counts; a shard reports every second
FORGET = 60 * SECOND  # how long the reports of a vanished shard are retained
MAX_UNDECLARED = 256  # undeclared devices listed for each fleet
DERIVED_DEADLINE = 5 * SECOND  # deadline of a fleet without a roster: shards do not report theirs
NOBODY = "no shard reports it"


@dataclass(slots=True)
class Sighting:
    """One shard's latest report of one device."""

    status: DeviceStatus  # without pictures
    epoch: int
    heard: int  # time of the report


@dataclass(slots=True)
class Watched:
    """One device and all that shards report of it."""

    device: Device
    grace_until: int  # no fault before this time
    awaited: bool = False  # True once a shard reported, in time, that it waits for the device's first message
    covered_at: int = 0  # latest time at which it was covered; 0: never
    heard_ns: int = 0  # when any shard last heard it, on the hub's timeline; 0: never
    analysed_ns: int = 0  # when any shard last analysed its data, on the hub's timeline; 0: never
    sightings: dict[str, Sighting] = field(default_factory=dict)  # by shard
    picture: bytes = b""  # JPEG
    picture_ns: int = 0  # time of arrival on the hub's timeline
    judged: Sequence[Judged] = ()  # by a camera's detectors, in the picture
    thermal: ThermalPicture | None = None
    thermal_ns: int = 0  # time of arrival on the hub's timeline
    measured: Measured = field(default_factory=Measured)


@dataclass(slots=True)
class Fleet:
    """One fleet: its roster and its devices."""

    name: str  # "namespace/kind/name"
    epoch: int = 0
    deadline: int = DERIVED_DEADLINE  # nanoseconds
    open: bool = False  # any client is allowed to send data for its devices
    derived: bool = False  # there is no roster: the devices are those that shards list
    devices: dict[str, Watched] = field(default_factory=dict)
    # Devices that send data but are not declared: people see them, but they cannot become dark.
    undeclared: dict[str, Watched] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The namespace of the fleet and its zones."""
        return namespace_of(self.name)

    def roster(self) -> FleetRoster:
        """The fleet's roster, to be stored."""
        devices = [watched.device for watched in self.devices.values()]
        return FleetRoster(
            fleet=self.name, epoch=self.epoch, deadline_ns=self.deadline, devices=devices, open=self.open
        )


@dataclass(slots=True)
class _Shard:
    heard: int  # time of the report
    time_ns: int
    epoch: int
    devices: frozenset[str]
    parts: frozenset[str] = frozenset()  # devices in the parts so far of an incomplete report


def _is_outdated(coverage: Coverage, last: _Shard) -> bool:
    """True if a report is from the shard's previous stream, or from its previous process, whose lost node is back."""
    return (coverage.epoch, coverage.time_ns) < (last.epoch, last.time_ns)


def namespace_of(fleet: str) -> str:
    """The namespace in "namespace/kind/name"."""
    namespace, slash, _ = fleet.partition("/")
    return namespace if slash and namespace else "default"


class CoverageBook:
    """All fleets' rosters and their shards' reports. For one thread."""

    def __init__(self, now: int) -> None:
        self._started = now
        self._checked = now
        self._excused_until = now - RESTART_GRACE  # no device is judged before this time
        self.unheard = 0  # nanoseconds in which the hub could hear nobody; callers subtract it from `now`
        self.fleets: dict[str, Fleet] = {}
        self.forgotten: set[str] = set()  # removed fleets whose shards may still report
        self._shards: dict[tuple[str, str], _Shard] = {}
        self._zones_of: dict[Pattern[str], frozenset[tuple[str, str]]] = {}  # since the last change of a roster

    # Rosters

    def restore(self, roster: FleetRoster, *, derived: bool) -> None:
        """Restore a stored roster; shards get RESTART_GRACE to come back."""
        fleet = self._replace_roster(roster, self._started + RESTART_GRACE)
        fleet.derived = derived

    def set_roster(self, roster: FleetRoster, now: int) -> None:
        """Replace one fleet's roster; the caller has refused older epochs."""
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
        self._zones_of.clear()
        return fleet

    def forget(self, name: str) -> None:
        """Remove a fleet; further reports of its shards are ignored."""
        if self.fleets.pop(name, None) is not None:
            self.forgotten.add(name)
            self._zones_of.clear()

    def zones_of(self, fleets: Pattern[str]) -> frozenset[tuple[str, str]]:
        """The zones (namespace, name) that the fleets called so have declared devices in."""
        if (known := self._zones_of.get(fleets)) is None:
            known = self._zones_of[fleets] = frozenset(
                (fleet.namespace, watched.device.zone)
                for fleet in self.fleets.values()
                if fleets.fullmatch(fleet.name)
                for watched in fleet.devices.values()
            )
        return known

    # Shards' reports

    def report(self, coverage: Coverage, now: int, time_ns: int = 0) -> Fleet | None:
        """Apply a shard's report; returns the fleet if its derived roster changed and has to be stored.

        `time_ns` is the time of arrival on the hub's timeline, which labels pictures.
        """
        if not coverage.fleet or coverage.fleet in self.forgotten:
            return None
        key = coverage.fleet, coverage.shard
        last = self._shards.get(key)
        if last and _is_outdated(coverage, last) and now - last.heard < FRESH:
            return None
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
        if changed := fleet.derived and self._derive(fleet, coverage, now):
            self._zones_of.clear()
        for gone in frozenset() if coverage.more else listed - names:
            if gone in fleet.devices:
                fleet.devices[gone].sightings.pop(coverage.shard, None)
            if gone in fleet.undeclared:
                del fleet.undeclared[gone]
        for status in coverage.devices:
            watched = fleet.devices.get(status.id) or self._add_undeclared(fleet, status)
            if watched is not None:
                self._note_sighting(fleet, watched, coverage, status, now, time_ns or coverage.time_ns)
        return fleet if changed else None

    @staticmethod
    def _add_undeclared(fleet: Fleet, status: DeviceStatus) -> Watched | None:
        if status.zone or (status.id not in fleet.undeclared and len(fleet.undeclared) >= MAX_UNDECLARED):
            return None
        return fleet.undeclared.setdefault(status.id, Watched(Device(id=status.id), 0))

    def _derive(self, fleet: Fleet, coverage: Coverage, now: int) -> bool:
        """Add the devices that a shard lists to its fleet's derived roster; True if it changed.

        A device that no shard lists any more stays in the roster, and becomes dark.
        """
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
    def _note_sighting(
        fleet: Fleet, watched: Watched, coverage: Coverage, status: DeviceStatus, now: int, time_ns: int
    ) -> None:
        if status.picture:
            watched.picture, watched.picture_ns = status.picture, time_ns
            # A copy: a part of a message would keep all of it, with its pictures, in memory.
            watched.judged = DeviceStatus(judged=status.judged).judged
        if status.HasField("thermal"):
            watched.thermal = ThermalPicture()
            watched.thermal.CopyFrom(status.thermal)
            watched.thermal_ns = time_ns
        status.ClearField("picture")
        status.ClearField("judged")
        status.ClearField("thermal")
        watched.sightings[coverage.shard] = Sighting(status, coverage.epoch, now)
        watched.measured.note(status.latest, now)
        watched.heard_ns = max(watched.heard_ns, status.heard_ns)
        watched.analysed_ns = max(watched.analysed_ns, status.analysed_ns)
        if coverage.epoch < fleet.epoch:
            return
        if status.covered:
            watched.covered_at = now
        elif not (watched.covered_at or watched.awaited or status.heard_ns) and now <= watched.grace_until:
            # Its shard has just started and could not hear the device before. Extend the grace once.
            watched.awaited = True
            watched.grace_until = max(watched.grace_until, now + fleet.deadline + MARGIN)

    def silences(self, now: int) -> dict[tuple[str, str], int]:
        """The nanoseconds since the latest report of each shard, by fleet and name."""
        return {key: now - shard.heard for key, shard in self._shards.items()}

    def listening(self, now: int) -> int:
        """The nanoseconds since the hub began to hear shards."""
        return now - self._started

    def store_picture(self, fleet: str, device: str, jpeg: bytes, time_ns: int) -> None:
        """Store the picture of a declared device if it is newer than the stored one."""
        if (declared := self.find(fleet, device)) and time_ns > declared[1].picture_ns:
            declared[1].picture, declared[1].picture_ns, declared[1].judged = jpeg, time_ns, ()

    # Coverage

    def is_covered(self, fleet: Fleet, watched: Watched, now: int) -> bool:
        """True if any shard of the current epoch has a fresh report that the device is covered."""
        return any(
            sighting.status.covered and sighting.epoch >= fleet.epoch and now - sighting.heard < FRESH
            for sighting in watched.sightings.values()
        )

    def reason(self, fleet: Fleet, watched: Watched, now: int) -> str:
        """The reason why the device is not covered, as one clause; '' if it is covered."""
        if self.is_covered(fleet, watched, now):
            return ""
        fresh = [(shard, s) for shard, s in watched.sightings.items() if now - s.heard < FRESH]
        current = [s.status.reason for _, s in fresh if s.epoch >= fleet.epoch and not s.status.covered]
        if current:
            return current[0] or "its shard gives no reason"
        for shard, sighting in fresh:
            return f"{shard} still works under assignment {sighting.epoch}, but {fleet.epoch} is in force"
        return NOBODY

    def check_listening(self, now: int, worked: int = 0) -> bool:
        """Note that the hub runs; call it often. False for RESTART_GRACE after the hub was suspended or starved.

        Reports that arrived during such a gap are still unread and must not count as silence. `worked` is the CPU time
        in nanoseconds that this thread used since the last call: being busy is no excuse, or overloading the hub would
        prevent every device from becoming dark. After an excuse, another gap is no excuse for RESTART_GRACE; otherwise
        no device would be judged on a machine that stops often.
        """
        gap = now - self._checked
        if gap - worked > STALL and now - self._excused_until >= RESTART_GRACE:
            self._excused_until = now + RESTART_GRACE
        self.unheard += max(0, gap - STALL)
        self._checked = now
        return now >= self._excused_until

    def is_dark(self, fleet: Fleet, watched: Watched, now: int) -> bool:
        """True if the device has not been covered for longer than its deadline plus MARGIN.

        If a fresh report shows that a shard has heard the device, that shard has waited for the deadline already, so
        only MARGIN counts. A shard that never heard it may have taken over a moment ago, and a silent shard may be
        restarting: they get the whole deadline.
        """
        due = watched.grace_until
        if watched.covered_at:
            deadline_passed = any(
                sighting.status.heard_ns and sighting.epoch >= fleet.epoch and now - sighting.heard < FRESH
                for sighting in watched.sightings.values()
            )
            due = max(due, watched.covered_at + MARGIN + (0 if deadline_passed else fleet.deadline))
        return now > due and not self.is_covered(fleet, watched, now)

    def devices(self) -> Iterator[tuple[Fleet, Watched]]:
        """Yield every declared device with its fleet."""
        for fleet in self.fleets.values():
            for watched in fleet.devices.values():
                yield fleet, watched

    def find(self, fleet: str, device: str) -> tuple[Fleet, Watched] | None:
        """The declared device `device` with its fleet; None if it is not declared."""
        known = self.fleets.get(fleet)
        watched = known.devices.get(device) if known else None
        return (known, watched) if known and watched else None

    def undeclared_devices(self) -> Iterator[tuple[Fleet, Watched]]:
        """Yield every device that sends data but is not declared, with its fleet."""
        for fleet in self.fleets.values():
            for watched in fleet.undeclared.values():
                yield fleet, watched

    def undeclared_device(self, fleet: str, device: str) -> Watched | None:
        """The undeclared device `device`; None if there is none."""
        known = self.fleets.get(fleet)
        return known.undeclared.get(device) if known else None

    def counts(self, now: int) -> dict[tuple[str, str], tuple[int, int]]:
        """The numbers of declared and of covered devices, by zone (namespace, name)."""
        counts: dict[tuple[str, str], tuple[int, int]] = {}
        for fleet, watched in self.devices():
            key = fleet.namespace, watched.device.zone
            declared, covered = counts.get(key, (0, 0))
            counts[key] = declared + 1, covered + self.is_covered(fleet, watched, now)
        return counts

    def tidy(self, now: int) -> None:
        """Drop reports of shards that vanished long ago."""
        for key in [key for key, shard in self._shards.items() if now - shard.heard > FORGET]:
            del self._shards[key]
        for fleet in self.fleets.values():
            for watched in (*fleet.devices.values(), *fleet.undeclared.values()):
                for shard in [name for name, seen in watched.sightings.items() if now - seen.heard > FORGET]:
                    del watched.sightings[shard]
            fleet.undeclared = {name: watched for name, watched in fleet.undeclared.items() if watched.sightings}
