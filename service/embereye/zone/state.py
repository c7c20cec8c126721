"""The alarm state machine of one zone: evidence and people's actions in, alarm events out.

normal → pre-alarm → alarm → acknowledged → restored → normal; alarms latch. Fault and test are flags beside the state.
Every method takes the time as nanoseconds on a clock that nobody sets, and returns events whose cursor is still 0.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from embereye.levels import Kind, Level, ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Fault, Silence, Zone
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.false_alarms import marks_like, resemblance
from embereye.zone.fusion import WINDOW_NS, Verdict, judge
from embereye.zone.sentences import duration, sign
from embereye.zone.silences import covering, covers, level_in_force

TEST_NS = 1_800_000_000_000  # a test that nobody ends ends by itself: half an hour
AGAIN_NS = 60_000_000_000  # at least between two times that a sign is told to be back; each time twice as long, …
AGAIN_MOST_NS = 3_600_000_000_000  # … up to this
FORMAT = 3  # of what `dump` writes
FORMATS = (1, 2, FORMAT)  # that `load` reads
REMEMBERED = 1_000  # episodes of one alarm, and of alarms that were reset


Key = tuple[str, str, Kind]  # fleet, device, kind


def key_of(item: EvidenceItem) -> Key:
    """Which sign `item` reports."""
    return item.fleet, item.device, Kind(item.kind)


class NotAllowedError(Exception):
    """A person asked for a step that the zone's state does not allow; says why."""


@dataclass(slots=True)
class Contribution:
    """The latest sign of one kind at one device."""

    item: EvidenceItem  # without snapshot
    heard_ns: int  # when the hub heard it, on the hub's clock: a device's wrong clock must not end or prolong a sign
    ended: bool = False  # its end was reported
    peak: Level = Level.UNSPECIFIED
    stored: bool = field(default=False, compare=False)  # it is from before the hub's start
    returned: bool = False  # it is another one than was told of, which had ended; nobody was told yet

    def active(self, now_ns: int) -> bool:
        """Whether the sign still counts."""
        return not self.ended and now_ns < self.heard_ns + WINDOW_NS


@dataclass(slots=True)
class ZoneMachine:
    """One zone. `dump` and `load` carry all of it over a restart."""

    namespace: str
    name: str
    state: ZoneState = ZoneState.NORMAL
    alarm: str = ""  # id, from pre-alarm to reset
    since_ns: int = 0  # of state
    cause: str = ""  # why the open alarm was raised
    acknowledged_by: str = ""
    reset_ns: int = 0  # when an alarm was last reset
    over: dict[str, None] = field(default_factory=dict)  # episodes of alarms that were reset, the newest last
    joined: dict[str, None] = field(default_factory=dict)  # episodes of the open alarm
    tester: str = ""
    test_until_ns: int = 0
    contributions: dict[Key, Contribution] = field(default_factory=dict)
    told: dict[Key, int] = field(default_factory=dict)  # highest level announced within the open alarm
    again: dict[Key, tuple[int, int]] = field(default_factory=dict)  # how often it was told to be back, and when last
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)  # by fleet and device
    marks: dict[str, FalseAlarm] = field(default_factory=dict, compare=False)  # false alarms; the owner keeps them
    revision: int = 0  # grows with every change, so that its owner knows what to store

    @property
    def testing(self) -> bool:
        """Whether people test the zone now."""
        return bool(self.test_until_ns)

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost with this zone."""
        quiet = self.state == ZoneState.NORMAL and not self.testing
        return quiet and not self.contributions and not self.faults

    @property
    def restless(self) -> bool:
        """Whether the passing of time alone may change this zone."""
        return bool(self.contributions) or self.testing

    # What devices tell

    def evidence(self, item: EvidenceItem, now_ns: int) -> list[AlarmEvent]:
        """Take a report that was never taken before; a resend must be kept away by its id."""
        if item.episode in self.over and item.until_ns <= self.reset_ns:
            return []  # the rest of an alarm that is over: a sign that goes on was seen since
        key = key_of(item)
        old = self.contributions.get(key)
        same = old is not None and old.item.episode == item.episode
        if item.level <= Level.CLEAR:
            # Nothing comes after an episode's end; how late each of its reports seems depends on its way here.
            if old is None or old.ended or (not same and item.until_ns < old.item.until_ns):
                return []
            old.ended = True
        else:
            if old is not None and item.until_ns <= old.item.until_ns and item.level <= old.peak:
                return []  # overtaken by a later report that said as much
            kept = _without_snapshot(item)
            self._note_resemblance(kept)
            level = Level(item.level)
            peak = max(level, old.peak) if old is not None and same else level
            returned = old is not None and (old.returned or (not same and _is_over(old, now_ns)))
            self.contributions[key] = Contribution(kept, now_ns, peak=peak, returned=returned)
            _remember(self.joined, item.episode)
        self.revision += 1
        return self._settle(now_ns, item)

    def tick(self, now_ns: int) -> list[AlarmEvent]:
        """Let time pass: signs that are not renewed end, a forgotten test ends."""
        events = []
        if self.testing and now_ns >= self.test_until_ns:
            tester, self.tester, self.test_until_ns = self.tester, "", 0
            self.revision += 1
            why = f"test begun by {tester} ended by itself after {duration(TEST_NS)}"
            events.append(self._event(AlarmEvent.TYPE_TEST, now_ns, why))
        events += self._settle(now_ns, None)
        if not self.alarm:
            over = [key for key, c in self.contributions.items() if now_ns >= c.heard_ns + WINDOW_NS]
            for key in over:
                self.joined.pop(self.contributions.pop(key).item.episode, None)
                self.revision += 1
        return events

    def note_unheard(self, unheard_ns: int) -> None:
        """Nobody could be heard for so long: signs are no older than they were before."""
        for contribution in self.contributions.values():
            contribution.heard_ns += unheard_ns

    def note_suspended(self, slept_ns: int) -> None:
        """The machine was suspended for so long: a test ends that much earlier."""
        if self.testing:
            self.test_until_ns -= slept_ns

    def fault(self, fleet: str, device: str, reason: str, now_ns: int) -> list[AlarmEvent]:
        """`device` is not watched; a fault that is already known only gets its new reason."""
        known = self.faults.get((fleet, device))
        if known is not None:
            if known.reason != reason:  # which says for how long; a message keeps all that its fields ever were
                self.faults[fleet, device] = Fault(device=device, reason=reason, since_ns=known.since_ns)
            return []
        fault = self.faults[fleet, device] = Fault(device=device, reason=reason, since_ns=now_ns)
        self.revision += 1
        return [self._event(AlarmEvent.TYPE_FAULT, now_ns, f"{device} is dark: {reason}", fault=fault)]

    def fault_cleared(self, fleet: str, device: str, reason: str, now_ns: int) -> list[AlarmEvent]:
        """`device` is watched again, or need not be: `reason` says which."""
        fault = self.faults.pop((fleet, device), None)
        if fault is None:
            return []
        self.revision += 1
        return [
            self._event(AlarmEvent.TYPE_FAULT_CLEARED, now_ns, f"{device} {reason}", fault=fault),
            *self._settle(now_ns, None),
        ]

    # What people do

    def acknowledge(self, who: str, note: str, now_ns: int) -> list[AlarmEvent]:
        """A person knows of the alarm."""
        if self.state == ZoneState.ACKNOWLEDGED:
            raise NotAllowedError(f"zone {self.title}: {self.acknowledged_by} has acknowledged the alarm already")
        if self.state != ZoneState.ALARM:
            raise NotAllowedError(f"zone {self.title} is in state {self._word}: there is no alarm to acknowledge")
        self.acknowledged_by = who
        why = _with_note(f"acknowledged by {who}", note)
        return [self._enter(ZoneState.ACKNOWLEDGED, now_ns, why, who), *self._settle(now_ns, None)]

    def reset(self, who: str, note: str, now_ns: int) -> list[AlarmEvent]:
        """A person ends the alarm. Signs that still go on raise a new one."""
        if self.state == ZoneState.ALARM:
            raise NotAllowedError(f"zone {self.title} is in alarm: acknowledge it before it is reset")
        if self.state not in {ZoneState.ACKNOWLEDGED, ZoneState.RESTORED}:
            raise NotAllowedError(f"zone {self.title} is in state {self._word}: there is no alarm to reset")
        event = self._enter(ZoneState.NORMAL, now_ns, _with_note(f"reset by {who}", note), who)
        for episode in self.joined:
            _remember(self.over, episode)
        self._close()
        self.contributions.clear()
        self.reset_ns = now_ns
        return [event]

    def test(self, who: str, note: str, now_ns: int) -> list[AlarmEvent]:
        """Begin a test of the zone, or end the one that is on. Alarms are raised all the same, and say so."""
        self.revision += 1
        if self.testing:
            self.tester, self.test_until_ns = "", 0
            words = f"test ended by {who}"
        else:
            self.tester, self.test_until_ns = who, now_ns + TEST_NS
            words = f"test begun by {who}"
        return [self._event(AlarmEvent.TYPE_TEST, now_ns, _with_note(words, note), who=who)]

    def tell_false_alarm(self, alarm: str, who: str, why: str, now_ns: int) -> AlarmEvent:
        """A person called an alarm of this zone, open or over, a false one, or took that back."""
        event = self._event(AlarmEvent.TYPE_FALSE_ALARM, now_ns, why, who=who)
        event.alarm = alarm
        return event

    def tell_silence(self, silence: Silence, who: str, why: str, now_ns: int) -> AlarmEvent:
        """`silence`, of this zone or of a device in it, began or ended."""
        event = self._event(AlarmEvent.TYPE_SILENCE, now_ns, why, who=who)
        event.silence.CopyFrom(silence)
        return event

    def remind(self, silence: Silence, now_ns: int) -> list[AlarmEvent]:
        """What `silence`, which has ended, covered and is still so: people may not have been notified of it."""
        return [event for event in self._still(now_ns) if covers(silence, event)]

    def is_silenced(self, silences: Iterable[Silence], now_ns: int) -> bool:
        """Whether people are not notified of the state that it is in for one of `silences`."""
        return any(covering(silences, event) for event in self._still(now_ns) if event.type != AlarmEvent.TYPE_FAULT)

    def level_in_force(self, now_ns: int) -> Level:
        """How serious it is."""
        return level_in_force(self._event(AlarmEvent.TYPE_STATE, now_ns, ""))

    def _still(self, now_ns: int) -> list[AlarmEvent]:
        """What is open, told as if it were new."""
        events = [
            self._event(AlarmEvent.TYPE_FAULT, now_ns, f"{fault.device} is dark still: {fault.reason}", fault=fault)
            for fault in self.faults.values()
        ]
        if self.state in {ZoneState.PRE_ALARM, ZoneState.ALARM}:
            events.append(self._event(AlarmEvent.TYPE_EVIDENCE, now_ns, f"still in {self._word}: {self.cause}"))
        return events

    # What others see

    @property
    def title(self) -> str:
        """How people name the zone: "namespace/name"."""
        return f"{self.namespace}/{self.name}"

    def message(self, now_ns: int) -> Zone:
        """The zone as it is told to clients; `declared` and `covered` are not this machine's to know.

        While an alarm is open its ended signs are listed too, at level CLEAR.
        """
        zone = Zone(
            namespace=self.namespace,
            name=self.name,
            state=self.state.wire,
            alarm=self.alarm,
            since_ns=self.since_ns,
            faults=sorted(self.faults.values(), key=lambda fault: fault.device),
            testing=self.testing,
            why=self.why,
            false_alarm=self.marks.get(self.alarm),
        )
        for contribution in self.contributions.values():
            if contribution.active(now_ns):
                zone.contributions.append(contribution.item)
            elif self.alarm:
                zone.contributions.add().CopyFrom(contribution.item)
                zone.contributions[-1].level = Level.CLEAR.wire
        return zone

    @property
    def why(self) -> str:
        """Why an alarm is open and who knows of it; empty where none is."""
        return f"{self.cause}; acknowledged by {self.acknowledged_by}" if self.acknowledged_by else self.cause

    # How it steps

    def _note_resemblance(self, item: EvidenceItem) -> None:
        """Say of `item` that it is like a sign of a marked alarm, where it is."""
        if self.marks and (like := marks_like(item, self.marks.values())):
            item.note = "; ".join(filter(None, (item.note, resemblance(like[0]))))

    @property
    def _word(self) -> str:
        return self.state.word

    def _active(self, now_ns: int) -> list[EvidenceItem]:
        return [c.item for c in self.contributions.values() if c.active(now_ns)]

    def _settle(self, now_ns: int, trigger: EvidenceItem | None) -> list[AlarmEvent]:
        """Step to the state that the active signs ask for; `trigger` is the report that came just now."""
        if self.state == ZoneState.NORMAL and trigger is None:
            return []  # only a report opens an alarm
        if self._stays(now_ns):
            return self._joined(now_ns, trigger)
        verdict = judge(self._active(now_ns), self.marks.values())
        step = self._step(verdict, now_ns, trigger)
        if step is None:
            return self._joined(now_ns, trigger)
        self._mark_announced(now_ns)
        if self.state == ZoneState.NORMAL:
            self._close()
        return [step]

    def _stays(self, now_ns: int) -> bool:
        """Whether no verdict changes the state: each looks at all signs, and hundreds may go on at once."""
        if self.state == ZoneState.ACKNOWLEDGED:
            return any(c.active(now_ns) and c.item.level >= Level.PRE_ALARM for c in self.contributions.values())
        return self.state == ZoneState.ALARM  # which a person ends

    def _step(self, verdict: Verdict, now_ns: int, trigger: EvidenceItem | None) -> AlarmEvent | None:
        """The change of state that `verdict` makes, if any."""
        level, state = verdict.level, self.state
        why = verdict.why + self._late(now_ns, verdict)
        match state:
            case ZoneState.NORMAL | ZoneState.PRE_ALARM if level == Level.ALARM:
                return self._raise(ZoneState.ALARM, why, now_ns, trigger)
            case ZoneState.NORMAL if level == Level.PRE_ALARM:
                why += f"; {verdict.wanting}"
                return self._raise(ZoneState.PRE_ALARM, why, now_ns, trigger)
            case ZoneState.PRE_ALARM if level == Level.CLEAR:
                return self._enter(ZoneState.NORMAL, now_ns, "the signs have ended unconfirmed")
            case ZoneState.ACKNOWLEDGED if level == Level.CLEAR and not self._unknown():
                return self._enter(ZoneState.RESTORED, now_ns, "all signs have ended; ready to be reset")
            case ZoneState.RESTORED if level == Level.ALARM:
                return self._raise(ZoneState.ALARM, f"the fire is back: {why}", now_ns, trigger)
            case ZoneState.RESTORED if level == Level.PRE_ALARM:
                return self._enter(ZoneState.ACKNOWLEDGED, now_ns, f"a sign is back: {why}")
        return None

    def _unknown(self) -> bool:
        """Whether a device went dark before it told the end of its sign: a burnt sensor is silent too."""
        return any(not c.ended and key[:2] in self.faults for key, c in self.contributions.items())

    def _raise(self, state: ZoneState, why: str, now_ns: int, trigger: EvidenceItem | None) -> AlarmEvent:
        if not self.alarm and trigger is not None:
            # Derived, not drawn: a report that comes again after a crash opens the alarm that it opened before.
            seed = "\0".join((self.namespace, self.name, trigger.id))
            self.alarm = hashlib.sha256(seed.encode()).hexdigest()[:16]
        self.cause = why
        self.acknowledged_by = ""
        return self._enter(state, now_ns, why)

    def _enter(self, state: ZoneState, now_ns: int, why: str, who: str = "") -> AlarmEvent:
        previous, self.state, self.since_ns = self.state, state, now_ns
        self.revision += 1
        return self._event(AlarmEvent.TYPE_STATE, now_ns, why, previous=previous, who=who)

    def _joined(self, now_ns: int, trigger: EvidenceItem | None) -> list[AlarmEvent]:
        """The event of a sign that joins the open alarm or grows within it; a sign that only goes on is no news."""
        if trigger is None or not self.alarm or trigger.level <= Level.CLEAR:
            return []
        key = key_of(trigger)
        before = self.told.get(key, 0)
        if trigger.level > before:
            words = "also" if before == 0 else "stronger:"
        elif self._is_back(key, now_ns):
            words = "again:"
        else:
            return []
        self._mark_announced(now_ns)
        return [self._event(AlarmEvent.TYPE_EVIDENCE, now_ns, f"{words} {sign(trigger)}")]

    def _is_back(self, key: Key, now_ns: int) -> bool:
        """Whether people are to be told that a sign they know of has ended and is back: less and less often."""
        if not self.contributions[key].returned:
            return False
        times, last_ns = self.again.get(key, (0, 0))
        if times and now_ns < last_ns + min(AGAIN_NS << min(times - 1, 10), AGAIN_MOST_NS):
            return False
        self.again[key] = times + 1, now_ns
        return True

    def _mark_announced(self, now_ns: int) -> None:
        """Remember what the event under way announces."""
        for key, contribution in self.contributions.items():
            if contribution.active(now_ns):
                self.told[key] = max(self.told.get(key, 0), contribution.item.level)
                contribution.returned = False

    def _late(self, now_ns: int, verdict: Verdict) -> str:
        latest = max((item.until_ns for item in verdict.grounds), default=now_ns)
        late = now_ns - latest
        return f" (seen {duration(late)} ago, reported late)" if late > WINDOW_NS else ""

    def _close(self) -> None:
        self.alarm = self.cause = self.acknowledged_by = ""
        self.told.clear()
        self.again.clear()
        self.joined.clear()
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
        under_test = self.testing and kind in {AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE}
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

    # How it survives

    def dump(self, now_ns: int) -> bytes:
        """All of the zone at `now_ns`, for `load`."""
        document = {
            "format": FORMAT,
            "namespace": self.namespace,
            "name": self.name,
            "state": self.state,
            "alarm": self.alarm,
            "since_ns": self.since_ns,
            "cause": self.cause,
            "acknowledged_by": self.acknowledged_by,
            "reset_ns": self.reset_ns,
            "over": list(self.over),
            "joined": list(self.joined),
            "now_ns": now_ns,
            "tester": self.tester,
            "test_until_ns": self.test_until_ns,
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
            "told": [[*key, level] for key, level in self.told.items()],
            "again": [[*key, *told] for key, told in self.again.items()],
            "faults": [[fleet, _text(fault)] for (fleet, _), fault in self.faults.items()],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes, now_ns: int) -> "ZoneMachine":
        """The zone that `dump` wrote, at `now_ns`; ValueError where it is not one.

        Signs are as old as they were then: nobody listened meanwhile, and the clock may have been set.
        """
        document: dict[str, Any] = json.loads(data)
        if (version := document.pop("format", None)) not in FORMATS:
            raise ValueError(f"format {version} is not one of {FORMATS}")
        contributions, told, faults = (document.pop(name) for name in ("contributions", "told", "faults"))
        away_ns = now_ns - document.pop("now_ns", now_ns)
        over, joined = (dict.fromkeys(document.pop(name, ())) for name in ("over", "joined"))
        again = document.pop("again", ())
        zone = cls(**{**document, "state": ZoneState(document["state"]), "over": over, "joined": joined})
        for entry in contributions:
            item = EvidenceItem.FromString(base64.b64decode(entry["item"]))
            heard_ns = min(entry["heard_ns"] + away_ns, now_ns)
            zone.contributions[key_of(item)] = Contribution(
                item, heard_ns, entry["ended"], Level(entry["peak"]), stored=True, returned=entry.get("returned", False)
            )
            _remember(zone.joined, item.episode)
        zone.told = {(fleet, device, Kind(kind)): level for fleet, device, kind, level in told}
        zone.again = {(fleet, device, Kind(kind)): (times, last) for fleet, device, kind, times, last in again}
        for fleet, text in faults:
            fault = Fault.FromString(base64.b64decode(text))
            zone.faults[fleet, fault.device] = fault
        return zone


def _without_snapshot(item: EvidenceItem) -> EvidenceItem:
    """A copy of `item` without its picture, which a message that ever had it keeps in memory, cleared or not."""
    kept = EvidenceItem()
    kept.CopyFrom(item)
    kept.ClearField("snapshot")
    return EvidenceItem.FromString(kept.SerializeToString()) if item.snapshot else kept


def _text(message: EvidenceItem | Fault) -> str:
    return base64.b64encode(message.SerializeToString()).decode()


def _is_over(old: Contribution, now_ns: int) -> bool:
    """Whether a new episode in place of `old` is a fire that came back, rather than one that flickers.

    A shard that was started again within the window only goes on; so does the hub by itself. Where both were, nobody
    knows what happened meanwhile, and people have to hear that it burns.
    """
    return old.stored or now_ns >= old.heard_ns + WINDOW_NS


def _remember(episodes: dict[str, None], episode: str) -> None:
    if episode:
        episodes[episode] = None
        if len(episodes) > REMEMBERED:
            del episodes[next(iter(episodes))]


def _with_note(words: str, note: str) -> str:
    return f"{words}: {note}" if note else words
