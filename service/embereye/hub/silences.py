"""Silences: who keeps notifications of a zone or device back, why, and until when. `zone/silences.py` says of what."""

import secrets
from collections.abc import Iterable

from embereye.hub.access.keeper import add_entry
from embereye.hub.access.roles import Principal
from embereye.hub.coverage.book import CoverageBook
from embereye.hub.storage.committer import Committer, Draft, ZoneKey
from embereye.hub.zones import Zones
from embereye.units import MINUTE
from embereye.v1.alarms_pb2 import AlarmEvent, Silence
from embereye.zone.sentences import duration

MOST = 1_000  # at a time
MAX_MINUTES = 24 * 60  # beyond a day somebody has to say again that it is meant


class UnknownSilenceError(Exception):
    """There is no such silence, or no such zone or device to silence."""


class TooManySilencesError(Exception):
    """There is no room for another silence."""


class Silences:
    """Begins silences and ends them, by a person's word or when their time is over; each is an event of its zone.

    When one ends, what it covered and is still so is told anew: what nobody was notified of must not stay unknown.
    """

    def __init__(self, committer: Committer, zones: Zones, book: CoverageBook) -> None:
        self._committer = committer
        self._zones = zones
        self._book = book
        self._silences: dict[str, Silence] = {}  # by id; their times are on the hub's timeline

    def restore(self, silences: Iterable[Silence]) -> None:
        """Go on from what was stored."""
        for silence in silences:
            self._note(silence)

    def __len__(self) -> int:
        return len(self._silences)

    def all(self, stepped_ns: int = 0) -> list[Silence]:
        """Every silence, the one that ends first before the others; times on a wall clock that is so far ahead."""
        found = []
        for silence in sorted(self._silences.values(), key=lambda one: (one.until_ns, one.id)):
            told = Silence()
            told.CopyFrom(silence)
            told.since_ns += stepped_ns
            told.until_ns += stepped_ns
            found.append(told)
        return found

    async def begin(
        self, by: Principal, namespace: str, zone: str, *, reason: str, minutes: int, device: str = "", who: str = ""
    ) -> AlarmEvent:
        """Silence a zone, or `device` in it, for so many minutes, in place of a silence of the same that there is.

        Returns the event, once it is durable. Raises UnknownSilenceError, TooManySilencesError, StoreFailingError and,
        where there is no reason or `minutes` is not from 1 to MOST_MINUTES, ValueError.
        """
        if not reason.strip():
            raise ValueError("reason is empty: say why nobody is to be notified")
        if not 1 <= minutes <= MAX_MINUTES:
            raise ValueError(f"minutes: {minutes} is not from 1 to {MAX_MINUTES}")
        self._check(namespace, zone, device)
        name, key, events = by.acting_as(who), (namespace, zone), list[AlarmEvent]()

        def step(draft: Draft) -> None:
            before = next((one for one in self._of(key) if one.device == device), None)
            if before is None and len(self._silences) >= MOST:
                raise TooManySilencesError(f"there are {MOST} silences already: end some first")
            if before is not None:
                self._forget(draft, before)
            machine = self._zones.touch(draft, key)
            silence = Silence(
                id=secrets.token_hex(8), namespace=namespace, zone=zone, device=device, who=name, reason=reason.strip(),
                since_ns=draft.now_ns, until_ns=draft.now_ns + minutes * MINUTE, alarm=machine.alarm,
                level=machine.level_in_force(draft.now_ns).wire,
            )  # fmt: skip
            self._note(silence)
            draft.transaction.silences[silence.id] = silence
            why = f"{_subject(silence)} is silenced for {duration(minutes * MINUTE)} by {name}: {silence.reason}"
            events.append(machine.silence_event(silence, name, why, draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, "silence", f"{namespace}/{zone}", why)

        await self._committer.commit(step)
        return events[0]

    async def end(self, by: Principal, silence: str, who: str = "") -> AlarmEvent:
        """End a silence early; returns the event, once it is durable. UnknownSilenceError, StoreFailingError."""
        name, events = by.acting_as(who), list[AlarmEvent]()

        def step(draft: Draft) -> None:
            known = self._silences.get(silence)
            if known is None:
                raise UnknownSilenceError(f"there is no silence {silence[:40]}")
            why = f"the silence of {_subject(known)} by {known.who} ({known.reason}) was ended by {name}"
            events.extend(self._end(draft, known, name, why))
            add_entry(draft, by, "end silence", f"{known.namespace}/{known.zone}", why)

        await self._committer.commit(step)
        return events[0]

    def note_suspended(self, slept_ns: int) -> None:
        """The machine was suspended for so long, which the hub's timeline does not count, but people do.

        What is stored stays as it is: a hub that starts goes by the wall clock.
        """
        for silence in list(self._silences.values()):
            earlier = Silence()
            earlier.CopyFrom(silence)
            earlier.since_ns -= slept_ns
            earlier.until_ns -= slept_ns
            self._note(earlier)

    def pass_time(self, draft: Draft) -> None:
        """End what is over."""
        for silence in [one for one in self._silences.values() if one.until_ns <= draft.now_ns]:
            why = f"the silence of {_subject(silence)} by {silence.who} ({silence.reason}) is over"
            self._end(draft, silence, "", why)

    def _check(self, namespace: str, zone: str, device: str) -> None:
        if not self._zones.has_zone(namespace, zone):
            raise UnknownSilenceError(f"there is no zone {namespace}/{zone}")
        if device and not any(
            watched.device.id == device and watched.device.zone == zone and fleet.namespace == namespace
            for fleet, watched in self._book.devices()
        ):
            raise UnknownSilenceError(f"no device {device[:80]} is declared in zone {namespace}/{zone}")

    def _of(self, key: ZoneKey) -> list[Silence]:
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
        draft.transaction.silences[silence.id] = None


def _subject(silence: Silence) -> str:
    return f"{silence.device} in {silence.zone}" if silence.device else f"zone {silence.zone}"
