"""Silences: pause notifications of a zone or device until a given time. `zone/silences.py` decides which ones.

A silence ends when its time is over, or when a person ends it. Begin and end are events of the zone. When a silence
ends, everything that it covered and that still applies is published again, so that people learn of it.
"""

import secrets

from embereye.hub.access.keeper import add_entry
from embereye.hub.actions import check_action
from embereye.hub.committer import Committer, Draft
from embereye.hub.coverage.book import CoverageBook
from embereye.hub.refusals import ConflictError, InvalidError, UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.tables.silences import SILENCES
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.zones import ZoneKey
from embereye.hub.zones import Zones
from embereye.units import MINUTE
from embereye.v1.alarms_pb2 import AlarmEvent, Silence
from embereye.zone.sentences import duration

MAX_SILENCES = 1_000  # at the same time
MAX_MINUTES = 24 * 60  # for longer, a person has to confirm it every day


class Silences:
    """All silences, by id. Their times are on the hub's timeline."""

    def __init__(self, committer: Committer, zones: Zones, book: CoverageBook) -> None:
        self._committer = committer
        self._zones = zones
        self._book = book
        self._silences: dict[str, Silence] = {}  # by id

    def restore(self, stored: StoredState) -> None:
        """Restore the stored silences."""
        for silence in stored[SILENCES].values():
            self._note(silence)

    def add_state(self, state: Transaction) -> None:
        """Add all silences to `state`."""
        state[SILENCES].update(self._silences)

    def __len__(self) -> int:
        return len(self._silences)

    def all(self, stepped_ns: int = 0) -> list[Silence]:
        """All silences, the first to end first; times are on the wall clock, `stepped_ns` ahead."""
        copies = []
        for silence in sorted(self._silences.values(), key=lambda silence: (silence.until_ns, silence.id)):
            copy = Silence()
            copy.CopyFrom(silence)
            copy.since_ns += stepped_ns
            copy.until_ns += stepped_ns
            copies.append(copy)
        return copies

    async def begin(
        self, by: Principal, namespace: str, zone: str, *, reason: str, minutes: int, device: str = "", who: str = ""
    ) -> AlarmEvent:
        """Silence a zone, or `device` in it, for `minutes`; replaces an existing silence of the same.

        Returns the event, once it is durable. Raises UnknownNameError, ConflictError if there is no room for another
        one, StoreFailingError, and InvalidError if there is no reason or `minutes` is not from 1 to MAX_MINUTES.
        """
        check_action(who, reason, "reason")
        if not reason.strip():
            raise InvalidError("reason: is empty. Say why nobody is to be notified.")
        if not 1 <= minutes <= MAX_MINUTES:
            raise InvalidError(f"minutes: {minutes} is not from 1 to {MAX_MINUTES}")
        self._check(namespace, zone, device)
        name, key, events = by.acting_as(who), (namespace, zone), list[AlarmEvent]()

        def step(draft: Draft) -> None:
            existing = next((silence for silence in self._in_zone(key) if silence.device == device), None)
            if existing is None and len(self._silences) >= MAX_SILENCES:
                raise ConflictError(f"there are {MAX_SILENCES} silences already. End some first.")
            if existing is not None:
                self._forget(draft, existing)
            machine = self._zones.touch(draft, key)
            silence = Silence(
                id=secrets.token_hex(8), namespace=namespace, zone=zone, device=device, who=name, reason=reason.strip(),
                since_ns=draft.now_ns, until_ns=draft.now_ns + minutes * MINUTE, alarm=machine.alarm,
                level=machine.level_in_force(draft.now_ns).wire,
            )  # fmt: skip
            self._note(silence)
            draft.transaction[SILENCES][silence.id] = silence
            why = f"{_subject(silence)} is silenced for {duration(minutes * MINUTE)} by {name}: {silence.reason}"
            events.append(machine.silence_event(silence, name, why, draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, "silence", f"{namespace}/{zone}", why)

        await self._committer.commit(step)
        return events[0]

    async def end(self, by: Principal, silence: str, who: str = "") -> AlarmEvent:
        """End a silence early; returns the event, once it is durable.

        Raises InvalidError, UnknownNameError, StoreFailingError.
        """
        check_action(who)
        name, events = by.acting_as(who), list[AlarmEvent]()

        def step(draft: Draft) -> None:
            known = self._silences.get(silence)
            if known is None:
                raise UnknownNameError(f"there is no silence {silence[:40]}")
            why = f"the silence of {_subject(known)} by {known.who} ({known.reason}) was ended by {name}"
            events.extend(self._end(draft, known, name, why))
            add_entry(draft, by, "end silence", f"{known.namespace}/{known.zone}", why)

        await self._committer.commit(step)
        return events[0]

    def note_suspended(self, suspended_ns: int) -> None:
        """Shorten silences by the time that this computer was suspended: the hub's timeline does not count it.

        The stored silences remain unchanged, because a hub that starts uses the wall clock.
        """
        for silence in list(self._silences.values()):
            earlier = Silence()
            earlier.CopyFrom(silence)
            earlier.since_ns -= suspended_ns
            earlier.until_ns -= suspended_ns
            self._note(earlier)

    def pass_time(self, draft: Draft) -> None:
        """End the silences whose time is over."""
        for silence in [silence for silence in self._silences.values() if silence.until_ns <= draft.now_ns]:
            why = f"the silence of {_subject(silence)} by {silence.who} ({silence.reason}) is over"
            self._end(draft, silence, "", why)

    def _check(self, namespace: str, zone: str, device: str) -> None:
        if not self._zones.has_zone(namespace, zone):
            raise UnknownNameError(f"there is no zone {namespace}/{zone}")
        if device and not any(
            watched.device.id == device and watched.device.zone == zone and fleet.namespace == namespace
            for fleet, watched in self._book.devices()
        ):
            raise UnknownNameError(f"no device {device[:80]} is declared in zone {namespace}/{zone}")

    def _in_zone(self, key: ZoneKey) -> list[Silence]:
        return list(self._zones.silences.get(key, {}).values())

    def _end(self, draft: Draft, silence: Silence, who: str, why: str) -> list[AlarmEvent]:
        key = silence.namespace, silence.zone
        self._forget(draft, silence)
        machine = self._zones.touch(draft, key)
        events = [machine.silence_event(silence, who, why, draft.now_ns), *machine.reminders(silence, draft.now_ns)]
        self._zones.add_events(draft, events)
        return events

    def _note(self, silence: Silence) -> None:
        self._silences[silence.id] = silence
        self._zones.silences.setdefault((silence.namespace, silence.zone), {})[silence.id] = silence

    def _forget(self, draft: Draft, silence: Silence) -> None:
        key = silence.namespace, silence.zone
        del self._silences[silence.id]
        self._zones.silences[key].pop(silence.id)
        if not self._zones.silences[key]:
            del self._zones.silences[key]
        draft.transaction[SILENCES][silence.id] = None


def _subject(silence: Silence) -> str:
    return f"{silence.device} in {silence.zone}" if silence.device else f"zone {silence.zone}"
