"""All zones: their alarm state machines, and the numbers of their events.

A `ZoneMachine` (see `embereye.zone.state`) is stepped inside a transaction's `Draft`: `touch` returns it and notes its
revision, the step returns events, and `add_events` numbers them. `store_changes` then writes each touched machine
whose revision changed. Times are on the hub's timeline; `label` moves them to the wall clock in messages for people.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import version

from google.protobuf.message import DecodeError

from embereye.hub.committer import Draft
from embereye.hub.coverage.book import CoverageBook
from embereye.hub.tables.events import EVENTS
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.zones import ZONES, ZoneKey
from embereye.levels import ZoneState
from embereye.process.timing.clock import Timeline
from embereye.units import DAY
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Silence, Zone
from embereye.zone.profile import Profile
from embereye.zone.silences import covering
from embereye.zone.state import ZoneMachine

logger = logging.getLogger(__name__)
VERSION = version("embereye")
RESET_MEMORY_NS = DAY  # how long after a reset reports from before it are ignored


class Zones:
    """Every zone's state machine, by namespace and name."""

    def __init__(self, book: CoverageBook, *, timeline: Timeline, steady: Callable[[], int]) -> None:
        self._book = book
        self._timeline = timeline
        self._steady = steady
        self._machines: dict[ZoneKey, ZoneMachine] = {}
        self.marks: defaultdict[ZoneKey, dict[str, FalseAlarm]] = defaultdict(dict)  # by zone and alarm
        self.silences: dict[ZoneKey, dict[str, Silence]] = {}  # by zone and id; `Silences` maintains them
        self.profile_of: Callable[[ZoneKey], Profile | None] = lambda _: None  # an add-on may set it
        self.unreadable = 0  # zones that start empty because their stored state cannot be read
        self._cursor = 0  # of the newest event, durable or not
        self.events: Counter[str] = Counter()  # by type, since the start

    def restore(self, stored: StoredState) -> None:
        """Restore the stored zones; a zone that cannot be read starts empty and does not delay the others."""
        for data in stored[ZONES].values():
            try:
                machine = ZoneMachine.load(data, self._timeline.now_ns())
            except (ValueError, KeyError, TypeError, AttributeError, DecodeError) as error:
                self.unreadable += 1
                logger.error("stored zone: %.200r: cannot be read, it starts empty (%s)", data, error)  # noqa: TRY400
                continue
            machine.marks = self.marks[machine.namespace, machine.name]
            self._machines[machine.namespace, machine.name] = machine
        self._cursor = stored.cursor

    # Queries

    def has_zone(self, namespace: str, name: str) -> bool:
        """True if the zone has devices or is in a state other than idle."""
        machine = self._machines.get((namespace, name))
        if machine is not None and not machine.is_idle:
            return True
        return (namespace, name) in self._book.counts(self._steady())

    def messages(self) -> list[Zone]:
        """Every zone as a message for clients, the most urgent first."""
        now_ns, counts = self._timeline.now_ns(), self._book.counts(self._steady())
        stepped_ns = self._timeline.stepped_ns()
        messages = []
        for key in self._machines.keys() | counts.keys():
            machine = self._machines.get(key) or ZoneMachine(*key)
            if machine.is_idle and key not in counts:
                continue
            message = machine.message(now_ns)
            if silences := self.silences.get(key):
                message.silences.extend(silences.values())
                message.silenced = machine.is_silenced(silences.values(), now_ns)
            label(message, stepped_ns)
            message.declared, message.covered = counts.get(key, (0, 0))
            messages.append(message)
        messages.sort(key=lambda zone: (-ZoneState(zone.state).severity, not zone.faults, zone.namespace, zone.name))
        return messages

    def states(self) -> dict[ZoneKey, ZoneState]:
        """The state of every zone that has a state machine."""
        return {key: machine.state for key, machine in self._machines.items()}

    def worst_state(self) -> ZoneState:
        """The most urgent state of any zone."""
        states = [machine.state for machine in self._machines.values()]
        return max(states, key=lambda state: state.severity, default=ZoneState.NORMAL)

    def faults(self) -> list[tuple[ZoneKey, str, str]]:
        """Every open fault: zone, fleet, device."""
        return [(key, *fault) for key, machine in self._machines.items() for fault in machine.faults]

    def fault_reasons(self) -> dict[tuple[str, str], str]:
        """The reasons of all open faults, by fleet and device."""
        return {key: fault.reason for machine in self._machines.values() for key, fault in machine.faults.items()}

    # Steps

    def touch(self, draft: Draft, key: ZoneKey) -> ZoneMachine:
        """Return the zone's machine to be stepped within `draft`; creates it if there is none."""
        machine = self._machines.get(key)
        if machine is None:
            machine = self._machines[key] = ZoneMachine(*key, marks=self.marks[key])
        machine.profile = self.profile_of(key)
        draft.touched.setdefault(key, machine.revision)
        return machine

    def add_events(self, draft: Draft, events: Iterable[AlarmEvent]) -> None:
        """Number `events` and add them to `draft`."""
        for event in events:
            self._cursor += 1
            event.cursor = self._cursor
            silences = self.silences.get((event.namespace, event.zone), {})
            if silence := covering(silences.values(), event):
                event.silence.CopyFrom(silence)
            label(event, draft.stepped_ns)
            if event.type == AlarmEvent.TYPE_STATE:
                event.version = VERSION
            draft.transaction[EVENTS].append(event)
            self.events[AlarmEvent.Type.Name(event.type).removeprefix("TYPE_").lower()] += 1

    def open_fault(self, draft: Draft, key: ZoneKey, fleet: str, device: str, reason: str) -> None:
        """Open the fault of `device`, which is not watched; an open fault only gets the new reason, not stored."""
        machine = self._machines.get(key)
        if machine is None or (fleet, device) not in machine.faults:
            machine = self.touch(draft, key)
        self.add_events(draft, machine.open_fault(fleet, device, reason, draft.now_ns))

    def clear_fault(self, draft: Draft, key: ZoneKey, fleet: str, device: str, why: str) -> None:
        """Clear the fault of `device`: it is watched again, or need not be watched; `why` says which."""
        machine = self.touch(draft, key)
        self.add_events(draft, machine.clear_fault(fleet, device, why, draft.now_ns))

    def note_unheard(self, unheard_ns: int) -> None:
        """Extend every sign by `unheard_ns`, in which the hub could not hear any shard."""
        for machine in self._machines.values():
            machine.note_unheard(unheard_ns)

    def note_suspended(self, suspended_ns: int) -> None:
        """Shorten running tests by `suspended_ns`, in which this computer was suspended: people count that time."""
        for machine in self._machines.values():
            machine.note_suspended(suspended_ns)

    def pass_time(self, draft: Draft) -> None:
        """End signs that are not renewed, and tests that are due."""
        for key, machine in list(self._machines.items()):
            if machine.is_time_dependent:
                revision = machine.revision
                machine.profile = self.profile_of(key)
                events = machine.tick(draft.now_ns)
                if machine.revision != revision:
                    draft.touched.setdefault(key, revision)
                self.add_events(draft, events)

    def drop_idle(self, draft: Draft) -> None:
        """Mark idle zones as touched, so that `store_changes` drops those that can go without losing state."""
        for key, machine in self._machines.items():
            if machine.is_idle:
                draft.touched.setdefault(key, machine.revision)

    def add_state(self, state: Transaction) -> None:
        """Add every zone to `state`."""
        state[ZONES].update({key: machine.dump(self._timeline.now_ns()) for key, machine in self._machines.items()})

    def store_changes(self, draft: Draft) -> None:
        """Add the changed zones to the transaction, and remove those that have been idle for long enough."""
        for key, revision in draft.touched.items():
            machine = self._machines.get(key)
            if machine is None:
                continue
            if machine.is_idle and draft.now_ns - machine.reset_ns > RESET_MEMORY_NS:
                del self._machines[key]
                if not self.marks[key]:
                    del self.marks[key]
                draft.transaction[ZONES][key] = None
            elif machine.revision != revision:
                draft.transaction[ZONES][key] = machine.dump(draft.now_ns)


def label(message: Zone | AlarmEvent, stepped_ns: int) -> None:
    """Move the times in `message` from the hub's timeline to the wall clock, which is `stepped_ns` ahead of it."""
    if not stepped_ns:
        return
    if isinstance(message, Zone):
        message.since_ns += stepped_ns if message.since_ns else 0
        faults, silences = list(message.faults), list(message.silences)
    else:
        message.time_ns += stepped_ns
        faults = [message.fault] if message.HasField("fault") else []
        silences = [message.silence] if message.HasField("silence") else []
    for fault in faults:
        fault.since_ns += stepped_ns
    for silence in silences:
        silence.since_ns += stepped_ns
        silence.until_ns += stepped_ns
    for item in message.contributions:
        item.since_ns += stepped_ns
        item.until_ns += stepped_ns
