"""The alarm state machine of one zone: evidence and people's actions in, alarm events out.

A shard's reports become signs (`contributions`), at most one per device and kind. `fusion.judge` weighs the active
signs: clear, pre-alarm or alarm. This verdict, or a person's action, moves the zone along `TRANSITIONS`:

    state          clear      pre-alarm      alarm     acknowledge    reset
    normal         ·          pre-alarm      alarm     ·              ·
    pre-alarm      normal     ·              alarm     ·              ·
    alarm          ·          ·              ·         acknowledged   ·
    acknowledged   restored   ·              ·         ·              normal
    restored       ·          acknowledged   alarm     ·              normal

Alarms latch: only people leave `alarm`. A dot is no change for a verdict, and an error for a person's action. Two
conditions are not in the table: only a report leaves `normal`, and `acknowledged` stays while a sign's device is dark.
Faults and tests are flags beside the state.

Every method takes the time as nanoseconds on a clock that is never set, and returns events whose cursor is still 0.
`dump` and `load` carry a zone over a restart; their keys are a stored format and differ from the fields' names.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from embereye.levels import Kind, Level, ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Fault, Silence, Zone
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.false_alarms import marks_like, resemblance
from embereye.zone.fusion import WINDOW_NS, Verdict, judge
from embereye.zone.profile import Profile
from embereye.zone.sentences import duration, sign
from embereye.zone.silences import covering, is_covered, level_in_force

TEST_NS = 1_800_000_000_000  # longest test: it ends automatically after half an hour
REANNOUNCE_MIN_NS = 60_000_000_000  # shortest interval between announcements that a sign returned; doubles each time, …
REANNOUNCE_MAX_NS = 3_600_000_000_000  # … up to this
FORMAT = 3  # the format that `dump` writes
FORMATS = (1, 2, FORMAT)  # the formats that `load` reads
STORED = (  # the fields that `dump` writes under their own names
    "namespace", "name", "state", "alarm", "since_ns", "cause", "acknowledged_by", "reset_ns", "tester",
    "test_until_ns",
)  # fmt: skip
MAX_EPISODES = 1_000  # episodes remembered of the open alarm, and as many of alarms that were reset


Key = tuple[str, str, Kind]  # fleet, device, kind


class Action(StrEnum):
    """A person's action that changes a zone's state."""

    ACKNOWLEDGE = "acknowledge"
    RESET = "reset"


# The next state for a verdict's level or a person's action; a missing input leaves the state as it is.
TRANSITIONS: dict[ZoneState, dict[Level | Action, ZoneState]] = {
    ZoneState.NORMAL: {Level.PRE_ALARM: ZoneState.PRE_ALARM, Level.ALARM: ZoneState.ALARM},
    ZoneState.PRE_ALARM: {Level.CLEAR: ZoneState.NORMAL, Level.ALARM: ZoneState.ALARM},
    ZoneState.ALARM: {Action.ACKNOWLEDGE: ZoneState.ACKNOWLEDGED},
    ZoneState.ACKNOWLEDGED: {Level.CLEAR: ZoneState.RESTORED, Action.RESET: ZoneState.NORMAL},
    ZoneState.RESTORED: {
        Level.PRE_ALARM: ZoneState.ACKNOWLEDGED,
        Level.ALARM: ZoneState.ALARM,
        Action.RESET: ZoneState.NORMAL,
    },
}


def key_of(item: EvidenceItem) -> Key:
    """The key of the sign that `item` reports."""
    return item.fleet, item.device, Kind(item.kind)


class NotAllowedError(Exception):
    """The zone's state does not allow a person's action; the message says why."""


@dataclass(slots=True)
class Contribution:
    """The latest report of one kind of sign at one device."""

    item: EvidenceItem  # without snapshot
    heard_ns: int  # arrival on the hub's clock: a device's wrong clock must not end or prolong a sign
    ended: bool = False  # the shard reported its end
    peak: Level = Level.UNSPECIFIED
    stored: bool = field(default=False, compare=False)  # loaded from the database, not heard since the hub started
    returned: bool = False  # a new episode began after the announced one ended; not announced yet

    def is_active(self, now_ns: int) -> bool:
        """True if the sign counts: its end was not reported, and its last report is recent."""
        return not self.ended and now_ns < self.heard_ns + WINDOW_NS


@dataclass(slots=True)
class ZoneMachine:
    """One zone: its state, its signs, its faults, and the events that it has already announced."""

    namespace: str
    name: str
    state: ZoneState = ZoneState.NORMAL
    alarm: str = ""  # id, from pre-alarm to reset
    since_ns: int = 0  # when the zone entered its state
    cause: str = ""  # the reason for the open alarm
    acknowledged_by: str = ""
    reset_ns: int = 0  # when an alarm was last reset
    closed_episodes: dict[str, None] = field(default_factory=dict)  # episodes of alarms that were reset, newest last
    open_episodes: dict[str, None] = field(default_factory=dict)  # episodes of the open alarm
    tester: str = ""
    test_until_ns: int = 0
    contributions: dict[Key, Contribution] = field(default_factory=dict)
    announced_levels: dict[Key, int] = field(default_factory=dict)  # highest level announced within the open alarm
    reannouncements: dict[Key, tuple[int, int]] = field(
        default_factory=dict
    )  # how many there were, and the last one's time
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)  # by fleet and device
    marks: dict[str, FalseAlarm] = field(
        default_factory=dict, compare=False
    )  # false alarms by alarm; stored by the owner
    profile: Profile | None = field(default=None, compare=False)  # the present one; set by the owner
    revision: int = 0  # grows with every change that the owner has to store

    @property
    def is_under_test(self) -> bool:
        """True while people test the zone."""
        return bool(self.test_until_ns)

    @property
    def is_idle(self) -> bool:
        """True if the zone can be dropped without losing state."""
        quiet = self.state == ZoneState.NORMAL and not self.is_under_test
        return quiet and not self.contributions and not self.faults

    @property
    def is_time_dependent(self) -> bool:
        """True if time alone can change the zone's state."""
        return bool(self.contributions) or self.is_under_test

    # Reports of devices

    def add_evidence(self, item: EvidenceItem, now_ns: int) -> list[AlarmEvent]:
        """Apply a shard's report. The caller has to drop resends by their id: no report may be applied twice."""
        # Earlier versions stored bare episodes.
        is_closed = _episode_of(item) in self.closed_episodes or item.episode in self.closed_episodes
        if is_closed and item.until_ns <= self.reset_ns:
            return []  # a late report of an alarm that was reset; a sign that continues is reported with a later time
        key = key_of(item)
        old = self.contributions.get(key)
        same = old is not None and old.item.episode == item.episode
        if item.level <= Level.CLEAR:
            # No report follows an episode's end, so the end counts even if its time is before the last report's.
            if old is None or old.ended or (not same and item.until_ns < old.item.until_ns):
                return []
            old.ended = True
        else:
            if old is not None and item.until_ns <= old.item.until_ns and item.level <= old.peak:
                return []  # a later report of the same strength arrived first
            stored = _without_snapshot(item)
            self._note_resemblance(stored)
            level = Level(item.level)
            peak = max(level, old.peak) if old is not None and same else level
            returned = old is not None and (old.returned or (not same and _has_ended(old, now_ns)))
            self.contributions[key] = Contribution(stored, now_ns, peak=peak, returned=returned)
            _remember(self.open_episodes, _episode_of(item))
        self.revision += 1
        return self._advance(now_ns, item)

    def tick(self, now_ns: int) -> list[AlarmEvent]:
        """End signs without a recent report, and a test that ran too long."""
        events = []
        if self.is_under_test and now_ns >= self.test_until_ns:
            tester, self.tester, self.test_until_ns = self.tester, "", 0
            self.revision += 1
            why = f"test started by {tester} ended automatically after {duration(TEST_NS)}"
            events.append(self._event(AlarmEvent.TYPE_TEST, now_ns, why))
        events += self._advance(now_ns, None)
        if not self.alarm:
            outdated = [key for key, c in self.contributions.items() if now_ns >= c.heard_ns + WINDOW_NS]
            for key in outdated:
                self.open_episodes.pop(_episode_of(self.contributions.pop(key).item), None)
                self.revision += 1
        return events

    def note_unheard(self, unheard_ns: int) -> None:
        """Extend every sign by the `unheard_ns` in which the hub could not hear any shard."""
        for contribution in self.contributions.values():
            contribution.heard_ns += unheard_ns

    def note_suspended(self, suspended_ns: int) -> None:
        """Shorten a test by the `suspended_ns` in which the machine, and this zone's clock, were suspended."""
        if self.is_under_test:
            self.test_until_ns -= suspended_ns

    def open_fault(self, fleet: str, device: str, reason: str, now_ns: int) -> list[AlarmEvent]:
        """Note that `device` is not watched. A fault that is already open only gets the new reason."""
        known = self.faults.get((fleet, device))
        if known is not None:
            if known.reason != reason:  # a new message, because a protobuf message never frees its fields' old values
                self.faults[fleet, device] = Fault(device=device, reason=reason, since_ns=known.since_ns)
            return []
        fault = self.faults[fleet, device] = Fault(device=device, reason=reason, since_ns=now_ns)
        self.revision += 1
        return [self._event(AlarmEvent.TYPE_FAULT, now_ns, f"{device} is dark: {reason}", fault=fault)]

    def clear_fault(self, fleet: str, device: str, reason: str, now_ns: int) -> list[AlarmEvent]:
        """Note that `device` is watched again or was removed; `reason` says which."""
        fault = self.faults.pop((fleet, device), None)
        if fault is None:
            return []
        self.revision += 1
        return [
            self._event(AlarmEvent.TYPE_FAULT_CLEARED, now_ns, f"{device} {reason}", fault=fault),
            *self._advance(now_ns, None),
        ]

    def extend_test(self, now_ns: int) -> None:
        """Extend a current test to its longest time, once half of that has passed."""
        if self.is_under_test and self.test_until_ns - now_ns < TEST_NS // 2:
            self.test_until_ns = now_ns + TEST_NS
            self.revision += 1

    # Actions of people

    def acknowledge(self, who: str, note: str, now_ns: int) -> list[AlarmEvent]:
        """Note that the person `who` knows of the alarm; NotAllowedError without an unacknowledged alarm."""
        target = self._target(Action.ACKNOWLEDGE)
        if target is None and self.state == ZoneState.ACKNOWLEDGED:
            raise NotAllowedError(f"zone {self.title}: {self.acknowledged_by} has already acknowledged the alarm")
        if target is None:
            raise NotAllowedError(f"zone {self.title} is in state {self._word}: there is no alarm to acknowledge")
        self.acknowledged_by = who
        why = _with_note(f"acknowledged by {who}", note)
        return [self._enter(target, now_ns, why, who), *self._advance(now_ns, None)]

    def escalate(self, who: str, note: str, now_ns: int) -> AlarmEvent:
        """Announce the open alarm once more because the person `who` asks for help; NotAllowedError without one."""
        if not self.alarm:
            raise NotAllowedError(f"zone {self.title} is in state {self._word}: there is no alarm to escalate")
        why = f"{_with_note(f'escalated by {who}', note)}; {self._word}: {self.cause}"
        return self._event(AlarmEvent.TYPE_EVIDENCE, now_ns, why, who=who)

    def reset(self, who: str, note: str, now_ns: int) -> list[AlarmEvent]:
        """End the alarm; NotAllowedError unless it is acknowledged. Signs that continue raise a new alarm."""
        target = self._target(Action.RESET)
        if target is None and self.state == ZoneState.ALARM:
            raise NotAllowedError(f"zone {self.title} is in alarm: acknowledge it before you reset it")
        if target is None:
            raise NotAllowedError(f"zone {self.title} is in state {self._word}: there is no alarm to reset")
        event = self._enter(target, now_ns, _with_note(f"reset by {who}", note), who)
        for episode in self.open_episodes:
            _remember(self.closed_episodes, episode)
        self._close()
        self.contributions.clear()
        self.reset_ns = now_ns
        return [event]

    def toggle_test(self, who: str, note: str, now_ns: int) -> list[AlarmEvent]:
        """Start a test of the zone, or end the current one. Alarms during a test are raised, and mention it."""
        self.revision += 1
        if self.is_under_test:
            self.tester, self.test_until_ns = "", 0
            words = f"test ended by {who}"
        else:
            self.tester, self.test_until_ns = who, now_ns + TEST_NS
            words = f"test started by {who}"
        return [self._event(AlarmEvent.TYPE_TEST, now_ns, _with_note(words, note), who=who)]

    def false_alarm_event(self, alarm: str, who: str, why: str, now_ns: int) -> AlarmEvent:
        """The event of a person who marked an open or past alarm of this zone as false, or removed the mark."""
        event = self._event(AlarmEvent.TYPE_FALSE_ALARM, now_ns, why, who=who)
        event.alarm = alarm
        return event

    def silence_event(self, silence: Silence, who: str, why: str, now_ns: int) -> AlarmEvent:
        """The event of the start or end of `silence`, which is for this zone or for a device in it."""
        event = self._event(AlarmEvent.TYPE_SILENCE, now_ns, why, who=who)
        event.silence.CopyFrom(silence)
        return event

    def reminders(self, silence: Silence, now_ns: int) -> list[AlarmEvent]:
        """The open faults and alarms that `silence`, which just ended, hid from people."""
        return [event for event in self._reminders(now_ns) if is_covered(silence, event)]

    def is_silenced(self, silences: Iterable[Silence], now_ns: int) -> bool:
        """True if one of `silences` hides the zone's present state from people."""
        events = (event for event in self._reminders(now_ns) if event.type != AlarmEvent.TYPE_FAULT)
        return any(covering(silences, event) for event in events)

    def level_in_force(self, now_ns: int) -> Level:
        """The zone's present level: CLEAR, PRE_ALARM, ALARM or CRITICAL."""
        return level_in_force(self._event(AlarmEvent.TYPE_STATE, now_ns, ""))

    def _reminders(self, now_ns: int) -> list[AlarmEvent]:
        """Repeat every open fault, and the open alarm unless a person knows of it."""
        events = [
            self._event(AlarmEvent.TYPE_FAULT, now_ns, f"{fault.device} is still dark: {fault.reason}", fault=fault)
            for fault in self.faults.values()
        ]
        if self.state in {ZoneState.PRE_ALARM, ZoneState.ALARM}:
            events.append(self._event(AlarmEvent.TYPE_EVIDENCE, now_ns, f"still in {self._word}: {self.cause}"))
        return events

    # Present state

    @property
    def title(self) -> str:
        """The zone's name for people: "namespace/name"."""
        return f"{self.namespace}/{self.name}"

    def message(self, now_ns: int) -> Zone:
        """The zone as clients receive it, without `declared` and `covered`, which the caller adds.

        While an alarm is open, signs that ended are listed at level CLEAR.
        """
        zone = Zone(
            namespace=self.namespace,
            name=self.name,
            state=self.state.wire,
            alarm=self.alarm,
            since_ns=self.since_ns,
            faults=sorted(self.faults.values(), key=lambda fault: fault.device),
            testing=self.is_under_test,
            why=self.why,
            false_alarm=self.marks.get(self.alarm),
        )
        for contribution in self.contributions.values():
            if contribution.is_active(now_ns):
                zone.contributions.append(contribution.item)
            elif self.alarm:
                zone.contributions.add().CopyFrom(contribution.item)
                zone.contributions[-1].level = Level.CLEAR.wire
        return zone

    @property
    def why(self) -> str:
        """The cause of the open alarm and the person who acknowledged it; empty without an alarm."""
        return f"{self.cause}; acknowledged by {self.acknowledged_by}" if self.acknowledged_by else self.cause

    # Transitions

    def _note_resemblance(self, item: EvidenceItem) -> None:
        """Add a note to `item` if it resembles a sign of a marked false alarm."""
        if self.marks and (like := marks_like(item, self.marks.values())):
            item.note = "; ".join(filter(None, (item.note, resemblance(like[0]))))

    @property
    def _word(self) -> str:
        return self.state.word

    def _active(self, now_ns: int) -> list[EvidenceItem]:
        return [c.item for c in self.contributions.values() if c.is_active(now_ns)]

    def _advance(self, now_ns: int, trigger: EvidenceItem | None) -> list[AlarmEvent]:
        """Move to the state that the active signs require; `trigger` is the report that just arrived."""
        if self.state == ZoneState.NORMAL and trigger is None:
            return []  # only a report opens an alarm
        if self._is_latched(now_ns):
            return self._announce_sign(now_ns, trigger)
        verdict = judge(self._active(now_ns), self.marks.values(), self.profile)
        event = self._follow(verdict, now_ns, trigger)
        if event is None:
            return self._announce_sign(now_ns, trigger)
        self._mark_announced(now_ns)
        if self.state == ZoneState.NORMAL:
            self._close()
        return [event]

    def _target(self, trigger: Level | Action) -> ZoneState | None:
        """The next state for a verdict's level or a person's action; None for no transition."""
        return TRANSITIONS.get(self.state, {}).get(trigger)

    def _is_latched(self, now_ns: int) -> bool:
        """True if no verdict can change the state, so that hundreds of signs need not be judged."""
        if self.state == ZoneState.ACKNOWLEDGED:
            return any(c.is_active(now_ns) and c.item.level >= Level.PRE_ALARM for c in self.contributions.values())
        return self.state == ZoneState.ALARM  # only a person ends it

    def _follow(self, verdict: Verdict, now_ns: int, trigger: EvidenceItem | None) -> AlarmEvent | None:
        """Make the transition that `verdict` requires, if any, and return its event."""
        target = self._target(verdict.level)
        why = verdict.why + self._lateness(now_ns, verdict)
        match target:
            case ZoneState.ALARM if self.state == ZoneState.RESTORED:
                return self._raise(target, f"the fire is back: {why}", now_ns, trigger)
            case ZoneState.ALARM:
                return self._raise(target, why, now_ns, trigger)
            case ZoneState.PRE_ALARM:
                return self._raise(target, f"{why}; {verdict.confirmation}", now_ns, trigger)
            case ZoneState.NORMAL:
                return self._enter(target, now_ns, "the signs have ended unconfirmed")
            case ZoneState.RESTORED if not self._has_dark_sign():
                return self._enter(target, now_ns, "all signs have ended; ready to be reset")
            case ZoneState.ACKNOWLEDGED:
                return self._enter(target, now_ns, f"a sign is back: {why}")
        return None

    def _has_dark_sign(self) -> bool:
        """True if a device went dark before its sign was reported to end: it may have burnt."""
        return any(not c.ended and key[:2] in self.faults for key, c in self.contributions.items())

    def _raise(self, state: ZoneState, why: str, now_ns: int, trigger: EvidenceItem | None) -> AlarmEvent:
        if not self.alarm and trigger is not None:
            # Derived from the report, not random: a resend after a crash opens the alarm with the same id.
            seed = "\0".join((self.namespace, self.name, trigger.id))
            self.alarm = hashlib.sha256(seed.encode()).hexdigest()[:16]
        self.cause = why
        self.acknowledged_by = ""
        return self._enter(state, now_ns, why)

    def _enter(self, state: ZoneState, now_ns: int, why: str, who: str = "") -> AlarmEvent:
        previous, self.state, self.since_ns = self.state, state, now_ns
        self.revision += 1
        return self._event(AlarmEvent.TYPE_STATE, now_ns, why, previous=previous, who=who)

    def _announce_sign(self, now_ns: int, trigger: EvidenceItem | None) -> list[AlarmEvent]:
        """Announce a sign that joins the open alarm, grows or returns; no event for a sign that merely continues."""
        if trigger is None or not self.alarm or trigger.level <= Level.CLEAR:
            return []
        key = key_of(trigger)
        before = self.announced_levels.get(key, 0)
        if trigger.level > before:
            words = "also" if before == 0 else "stronger:"
        elif self._reannounce(key, now_ns):
            words = "again:"
        else:
            return []
        self._mark_announced(now_ns)
        return [self._event(AlarmEvent.TYPE_EVIDENCE, now_ns, f"{words} {sign(trigger)}")]

    def _reannounce(self, key: Key, now_ns: int) -> bool:
        """Return True, and count it, if the return of a known sign is to be announced now. The intervals double."""
        if not self.contributions[key].returned:
            return False
        times, last_ns = self.reannouncements.get(key, (0, 0))
        if times and now_ns < last_ns + min(REANNOUNCE_MIN_NS << min(times - 1, 10), REANNOUNCE_MAX_NS):
            return False
        self.reannouncements[key] = times + 1, now_ns
        return True

    def _mark_announced(self, now_ns: int) -> None:
        """Remember the level of every active sign: the event that is being made announces them all."""
        for key, contribution in self.contributions.items():
            if contribution.is_active(now_ns):
                self.announced_levels[key] = max(self.announced_levels.get(key, 0), contribution.item.level)
                contribution.returned = False

    def _lateness(self, now_ns: int, verdict: Verdict) -> str:
        latest = max((item.until_ns for item in verdict.grounds), default=now_ns)
        late = now_ns - latest
        return f" (seen {duration(late)} ago, reported late)" if late > WINDOW_NS else ""

    def _close(self) -> None:
        self.alarm = self.cause = self.acknowledged_by = ""
        self.announced_levels.clear()
        self.reannouncements.clear()
        self.open_episodes.clear()
        self.revision += 1

    def _event(
        self,
        kind: AlarmEvent.Type.ValueType,
        now_ns: int,
        why: str,
        *,
        previous: ZoneState | None = None,
        who: str = "",
        fault: Fault | None = None,
    ) -> AlarmEvent:
        under_test = self.is_under_test and kind in {AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE}
        return AlarmEvent(
            time_ns=now_ns,
            namespace=self.namespace,
            zone=self.name,
            alarm=self.alarm,
            type=kind,
            state=self.state.wire,
            previous=(self.state if previous is None else previous).wire,
            contributions=self._active(now_ns),
            fault=fault,
            who=who,
            why=f"{why} (zone under test by {self.tester})" if under_test else why,
        )

    # Storage

    def dump(self, now_ns: int) -> bytes:
        """The complete zone at `now_ns`, as JSON for `load`."""
        document = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in STORED},
            "over": list(self.closed_episodes),
            "joined": list(self.open_episodes),
            "now_ns": now_ns,
            "contributions": [
                {
                    "item": _text(c.item),
                    "heard_ns": c.heard_ns,
                    "ended": c.ended,
                    "peak": c.peak,
                    "returned": c.returned,
                }
                for c in self.contributions.values()
            ],
            "told": [[*key, level] for key, level in self.announced_levels.items()],
            "again": [[*key, times, last_ns] for key, (times, last_ns) in self.reannouncements.items()],
            "faults": [[fleet, _text(fault)] for (fleet, _), fault in self.faults.items()],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes, now_ns: int) -> "ZoneMachine":
        """Read a zone that `dump` wrote; ValueError if its format is unknown.

        Signs are as old at `now_ns` as they were in `dump`: the hub was down, and its clock may have been set.
        """
        document: dict[str, Any] = json.loads(data)
        if (version := document.pop("format", None)) not in FORMATS:
            raise ValueError(f"format {version} is not one of {FORMATS}")
        contributions, announced, faults = (document.pop(name) for name in ("contributions", "told", "faults"))
        away_ns = now_ns - document.pop("now_ns", now_ns)
        closed_episodes, open_episodes = (dict.fromkeys(document.pop(name, ())) for name in ("over", "joined"))
        reannouncements = document.pop("again", ())
        state = ZoneState(document.pop("state"))
        zone = cls(state=state, closed_episodes=closed_episodes, open_episodes=open_episodes, **document)
        for entry in contributions:
            item = EvidenceItem.FromString(base64.b64decode(entry["item"]))
            heard_ns = min(entry["heard_ns"] + away_ns, now_ns)
            zone.contributions[key_of(item)] = Contribution(
                item, heard_ns, entry["ended"], Level(entry["peak"]), stored=True, returned=entry.get("returned", False)
            )
            _remember(zone.open_episodes, _episode_of(item))
        zone.announced_levels = {(fleet, device, Kind(kind)): level for fleet, device, kind, level in announced}
        zone.reannouncements = {
            (fleet, device, Kind(kind)): (times, last_ns) for fleet, device, kind, times, last_ns in reannouncements
        }
        for fleet, text in faults:
            fault = Fault.FromString(base64.b64decode(text))
            zone.faults[fleet, fault.device] = fault
        return zone


def _without_snapshot(item: EvidenceItem) -> EvidenceItem:
    """Copy `item` without its picture.

    A protobuf message never frees the memory of a field, cleared or not; so the copy is parsed from bytes.
    """
    copy = EvidenceItem()
    copy.CopyFrom(item)
    copy.ClearField("snapshot")
    return EvidenceItem.FromString(copy.SerializeToString()) if item.snapshot else copy


def _text(message: EvidenceItem | Fault) -> str:
    return base64.b64encode(message.SerializeToString()).decode()


def _has_ended(old: Contribution, now_ns: int) -> bool:
    """True if a new episode after `old` is a fire that returned, not one that flickers or a shard's restart.

    A shard that restarts within the window continues the sign under a new episode. If `old` is from before the hub's
    start, the time between is unknown, so the fire is announced again.
    """
    return old.stored or now_ns >= old.heard_ns + WINDOW_NS


def _episode_of(item: EvidenceItem) -> str:
    """The episode of `item`, which no other fleet can name; '' if it has none."""
    return f"{item.fleet}/{item.episode}" if item.episode else ""


def _remember(episodes: dict[str, None], episode: str) -> None:
    if episode:
        episodes[episode] = None
        if len(episodes) > MAX_EPISODES:
            del episodes[next(iter(episodes))]


def _with_note(words: str, note: str) -> str:
    return f"{words}: {note}" if note else words
