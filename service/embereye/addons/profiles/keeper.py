"""The present profiles of zones: begins, confirms and ends them, and ends them when their time is over.

A permit is one zone's profile, begun by a person with a reason and an end. A schedule is a profile with hours, or one
that a message at the broker may begin; it applies once a person has confirmed it. Both need a person's confirmation at
intervals. Without it the zone is back to normal, which is an event of the zone, an audit entry, and an alert until
somebody has seen to it.

Times are on the hub's timeline. All changes are durable, with event and audit entry, before a caller's call returns.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime

from embereye.addons.profiles.options import ProfileOptions, ProfilesOptions
from embereye.addons.profiles.tables import PROFILES, RowKey
from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Draft, Step
from embereye.hub.hub import Hub
from embereye.hub.refusals import InvalidError, UnknownNameError
from embereye.hub.roles import HUB, Principal
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.zones import ZoneKey
from embereye.process.timing.clock import lease_ns
from embereye.units import MINUTE, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, Silence
from embereye.zone.profile import Profile
from embereye.zone.sentences import duration

logger = logging.getLogger(__name__)
TICK_SECONDS = 1.0


@dataclass
class Permit:
    """The profile of a zone that a person has begun."""

    id: str
    profile: str
    who: str
    reason: str
    watchman: str
    since_ns: int
    until_ns: int
    confirmed_ns: int


@dataclass
class Confirmation:
    """The latest confirmation of a schedule."""

    who: str
    time_ns: int


class Profiles:
    """All of it. Call `restore` once, then let `run` run."""

    def __init__(self, options: ProfilesOptions, hub: Hub, *, leases: Callable[[], int] = lease_ns) -> None:
        """`leases` is a steady clock in nanoseconds that also advances while the machine is suspended."""
        self.options = options
        self.permits: dict[ZoneKey, Permit] = {}
        self.schedules: dict[str, Confirmation] = {}
        self.lapsed: dict[ZoneKey, str] = {}  # zones whose permit ended because nobody confirmed it: the sentence
        self._hub = hub
        self._leases = leases
        self._ahead_ns = leases() - hub.timeline.now_ns()
        self._minute: datetime | None = None
        self._scheduled: dict[ZoneKey, Profile | None] = {}  # in the present minute
        hub.zones.profile_of = self.profile_of

    # A part of the hub

    def restore(self, stored: StoredState) -> None:
        """Restore what was stored; permits of removed profiles end at the next tick."""
        for (kind, name), text in stored[PROFILES].items():
            document = json.loads(text)
            key = _key_of(name)
            if kind == "permit":
                self.permits[key] = Permit(**document)
            elif kind == "schedule":
                self.schedules[name] = Confirmation(**document)
            else:
                self.lapsed[key] = document["why"]

    def add_state(self, state: Transaction) -> None:
        """Add its whole state to `state`."""
        for key, permit in self.permits.items():
            state[PROFILES]["permit", _name_of(key)] = json.dumps(asdict(permit))
        for name, confirmation in self.schedules.items():
            state[PROFILES]["schedule", name] = json.dumps(asdict(confirmation))
        for key, why in self.lapsed.items():
            state[PROFILES]["lapsed", _name_of(key)] = json.dumps({"why": why})

    # Queries

    def profile_of(self, key: ZoneKey) -> Profile | None:
        """The present profile of a zone; None: the normal one."""
        if permit := self.permits.get(key):
            options = self.options.profiles.get(permit.profile)
            return options.profile if options else None
        if not any(options.hours for options in self.options.profiles.values()):
            return None
        at = self.options.local(self._now_ns() + self.stepped_ns()).replace(second=0, microsecond=0)
        if at != self._minute:
            self._minute = at
            self._scheduled.clear()
        if key not in self._scheduled:
            self._scheduled[key] = next(
                (each.profile for each in self.options.scheduled(*key, at) if self.is_confirmed(each)), None
            )
        return self._scheduled[key]

    def zones(self) -> list[ZoneKey]:
        """The zones that have, or may have, a profile."""
        return [key for key in sorted(self._hub.zones.states()) if key in self.permits or self.choices(key)]

    def choices(self, key: ZoneKey) -> list[str]:
        """The names of the profiles that the zone may have."""
        return [name for name, options in self.options.profiles.items() if options.has_zone(*key)]

    def is_confirmed(self, options: ProfileOptions) -> bool:
        """True if a person has confirmed the schedule of `options` recently enough."""
        confirmation = self.schedules.get(options.name)
        return bool(confirmation) and self._now_ns() < self.due_ns(options)

    def due_ns(self, options: ProfileOptions) -> int:
        """The time until which the schedule of `options` is confirmed; 0: nobody ever confirmed it."""
        confirmation = self.schedules.get(options.name)
        return confirmation.time_ns + options.confirm * MINUTE if confirmation else 0

    def confirm_by_ns(self, permit: Permit) -> int:
        """The time until which somebody has to confirm `permit`, which may be its end."""
        options = self.options.profiles.get(permit.profile)
        return min(permit.until_ns, permit.confirmed_ns + options.confirm * MINUTE) if options else 0

    def unconfirmed(self) -> list[str]:
        """A sentence for each zone and each schedule that is normal because nobody has confirmed its profile."""
        schedules = [
            f"the {'hours' if options.hours else 'switch'} of the profile {name} {'do' if options.hours else 'does'} "
            f"not apply: nobody has confirmed {'them' if options.hours else 'it'}"
            for name, options in self.options.profiles.items()
            if options.is_automatic and not self.is_confirmed(options)
        ]
        return [*self.lapsed.values(), *schedules]

    def stepped_ns(self) -> int:
        """The time in nanoseconds by which the wall clock is ahead of the hub's timeline."""
        return self._hub.timeline.stepped_ns()

    def _now_ns(self) -> int:
        return self._hub.timeline.now_ns()

    # Changes by people

    async def begin(
        self,
        by: Principal,
        key: ZoneKey,
        profile: str,
        *,
        reason: str,
        minutes: int,
        watchman: str = "",
        who: str = "",
        confirmed_ns: int = 0,
    ) -> AlarmEvent:
        """Give the zone `key` a profile for `minutes`; replaces its present permit. Returns the event.

        `confirmed_ns` is the time of the confirmation that allows a program to do this; 0: a person does it.
        Raises UnknownNameError, StoreFailingError, and InvalidError if the permit is incomplete.
        """
        options = self._find(profile)
        name, watchman, reason = by.acting_as(who), watchman.strip(), reason.strip()
        if not reason:
            raise InvalidError("reason: is empty. Say why the zone needs the profile.")
        if not 1 <= minutes <= options.longest:
            raise InvalidError(f"minutes: {minutes} is not from 1 to {options.longest}, the longest for {profile}")
        if options.watchman and not watchman:
            raise InvalidError(f"watchman: is empty. The profile {profile} needs the name of a watchman.")
        if not self._hub.zones.has_zone(*key):
            raise UnknownNameError(f"there is no zone {_name_of(key)}")
        if not options.has_zone(*key):
            raise InvalidError(f"the profile {profile} is not declared for the zone {_name_of(key)}")
        events = list[AlarmEvent]()

        def step(draft: Draft) -> None:
            now_ns = draft.now_ns
            permit = Permit(
                f"profile-{secrets.token_hex(8)}",
                profile,
                name,
                reason,
                watchman,
                now_ns,
                now_ns + minutes * MINUTE,
                confirmed_ns or now_ns,
            )
            self.permits[key] = permit
            self.lapsed.pop(key, None)
            draft.transaction[PROFILES]["lapsed", _name_of(key)] = None
            self._store(draft, key, permit)
            with_watchman = f", watchman {watchman}" if watchman else ""
            why = f"profile {profile} for {duration(minutes * MINUTE)} by {name}{with_watchman}: {reason}"
            events.append(self._announce(draft, key, permit, name, why))
            add_entry(draft, by, "begin profile", _name_of(key), why)

        await self._hub.committer.commit(step)
        return events[0]

    async def confirm(self, by: Principal, key: ZoneKey, who: str = "") -> None:
        """Note that a person has confirmed the zone's permit; UnknownNameError, StoreFailingError."""
        name = by.acting_as(who)

        def step(draft: Draft) -> None:
            permit = self._permit(key)
            permit.confirmed_ns = draft.now_ns
            self._store(draft, key, permit)
            add_entry(draft, by, "confirm profile", _name_of(key), f"{permit.profile}, by {name}")

        await self._hub.committer.commit(step)

    async def end(self, by: Principal, key: ZoneKey, who: str = "") -> AlarmEvent | None:
        """End the zone's permit, or dismiss that it ended unconfirmed. Returns the event, if there is one.

        Raises UnknownNameError, StoreFailingError.
        """
        name, events = by.acting_as(who), list[AlarmEvent]()

        def step(draft: Draft) -> None:
            if key not in self.permits and key in self.lapsed:
                del self.lapsed[key]
                draft.transaction[PROFILES]["lapsed", _name_of(key)] = None
                add_entry(draft, by, "dismiss profile", _name_of(key), f"by {name}")
                return
            permit = self._permit(key)
            why = f"profile {permit.profile} ended by {name}: the zone is normal again"
            events.append(self._end(draft, key, name, why))
            add_entry(draft, by, "end profile", _name_of(key), why)

        await self._hub.committer.commit(step)
        return events[0] if events else None

    async def confirm_schedule(self, by: Principal, profile: str, who: str = "") -> None:
        """Note that a person has confirmed a profile's hours and its switch.

        Raises UnknownNameError, StoreFailingError, and InvalidError if it has none.
        """
        options = self._find(profile)
        subject = "its hours" if options.hours else "its switch"
        if not options.is_automatic:
            raise InvalidError(f"the profile {profile} has no hours and no switch. Confirm it for a zone.")
        name = by.acting_as(who)

        def step(draft: Draft) -> None:
            confirmation = self.schedules[profile] = Confirmation(name, draft.now_ns)
            self._scheduled.clear()
            draft.transaction[PROFILES]["schedule", profile] = json.dumps(asdict(confirmation))
            add_entry(
                draft,
                by,
                "confirm profile",
                profile,
                f"{subject}, by {name}",
            )

        await self._hub.committer.commit(step)

    def _find(self, profile: str) -> ProfileOptions:
        if profile not in self.options.profiles:
            declared = ", ".join(self.options.profiles)
            raise UnknownNameError(f'no profile "{profile[:80]}" is declared. There are {declared}.')
        return self.options.profiles[profile]

    def _permit(self, key: ZoneKey) -> Permit:
        if key not in self.permits:
            raise UnknownNameError(f"the zone {_name_of(key)} has no permit for a profile")
        return self.permits[key]

    # Time

    async def run(self) -> None:
        """End permits as time passes, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.permits:
                self._hub.committer.enqueue(Step(self.pass_time))

    def pass_time(self, draft: Draft) -> None:
        """End the permits that are over, not confirmed in time, or of profiles that are not declared any more."""
        self._note_suspended(draft.now_ns)
        for key, permit in list(self.permits.items()):
            options = self.options.profiles.get(permit.profile)
            if options is None or not options.has_zone(*key):
                why = f"profile {permit.profile} is not declared for the zone any more: it is normal again"
            elif draft.now_ns >= permit.until_ns:
                why = f"profile {permit.profile} by {permit.who} ({permit.reason}) is over: the zone is normal again"
            elif draft.now_ns >= self.confirm_by_ns(permit):
                why = (
                    f"nobody confirmed the profile {permit.profile} by {permit.who} ({permit.reason}) within "
                    f"{duration(options.confirm * MINUTE)}: the zone is normal again"
                )
                self.lapsed[key] = f"zone {_name_of(key)}: {why}"
                draft.transaction[PROFILES]["lapsed", _name_of(key)] = json.dumps({"why": self.lapsed[key]})
                logger.warning("zone %s: %s", _name_of(key), why)
            else:
                continue
            self._end(draft, key, "", why)
            add_entry(draft, HUB, "end profile", _name_of(key), why)

    def _note_suspended(self, now_ns: int) -> None:
        """Count a suspension of the machine, which the hub's timeline leaves out, towards every permit."""
        suspended_ns = self._leases() - now_ns - self._ahead_ns
        if suspended_ns < SECOND:
            return
        self._ahead_ns += suspended_ns
        for permit in self.permits.values():
            permit.since_ns -= suspended_ns
            permit.until_ns -= suspended_ns
            permit.confirmed_ns -= suspended_ns

    def _end(self, draft: Draft, key: ZoneKey, who: str, why: str) -> AlarmEvent:
        permit = self.permits.pop(key)
        self._store(draft, key, None)
        return self._announce(draft, key, permit, who, why)

    def _store(self, draft: Draft, key: ZoneKey, permit: Permit | None) -> None:
        row: RowKey = "permit", _name_of(key)
        draft.transaction[PROFILES][row] = json.dumps(asdict(permit)) if permit else None

    def _announce(self, draft: Draft, key: ZoneKey, permit: Permit, who: str, why: str) -> AlarmEvent:
        """Add the event of a permit's beginning or end, as a silence's with an id that says so."""
        silence = Silence(
            id=permit.id, namespace=key[0], zone=key[1], who=permit.who, reason=permit.reason,
            since_ns=permit.since_ns, until_ns=permit.until_ns,
        )  # fmt: skip
        event = self._hub.zones.touch(draft, key).silence_event(silence, who, why, draft.now_ns)
        self._hub.zones.add_events(draft, [event])
        return event


def _name_of(key: ZoneKey) -> str:
    return f"{key[0]}/{key[1]}"


def _key_of(name: str) -> ZoneKey:
    namespace, _, zone = name.partition("/")
    return namespace, zone
