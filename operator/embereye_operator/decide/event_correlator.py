"""What people are to be told of fleets, and when: what happens again raises a count, and nobody is flooded."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

REPEAT = 30.0  # seconds between two updates of one entry's count
BURST = 10  # entries of one subject that are told at once
REFILL = 30.0  # seconds until a subject may have another one told
KEPT = 500  # entries that have been told and are kept to count on; older ones begin anew
WAITING = 5000  # entries that wait to be told; of more the oldest are lost


@dataclass(slots=True)
class Entry:
    """One thing that happened to one subject, however often."""

    subject: Hashable
    type_: str  # "Normal" or "Warning"
    reason: str
    message: str
    first: int  # nanoseconds since the Unix epoch
    last: int  # likewise
    count: int = 1
    told: int = 0  # of `count`
    told_at: float = 0.0  # monotonic seconds
    name: str = ""  # of the object it was written to

    @property
    def key(self) -> tuple[Hashable, str, str, str]:
        """What makes two occurrences the same."""
        return self.subject, self.type_, self.reason, self.message


@dataclass(slots=True)
class _Allowance:
    left: float
    since: float  # monotonic seconds


@dataclass
class EventCorrelator:
    """Entries by what they say. `record` takes an occurrence, `due` gives what to write, `wrote` says that it is."""

    lost: int = 0  # entries that were never told
    _waiting: OrderedDict[tuple[Hashable, str, str, str], Entry] = field(default_factory=OrderedDict)
    _told: OrderedDict[tuple[Hashable, str, str, str], Entry] = field(default_factory=OrderedDict)
    _allowances: dict[Hashable, _Allowance] = field(default_factory=dict)

    def record(self, subject: Hashable, type_: str, reason: str, message: str, now_ns: int) -> None:
        """Take an occurrence at `now_ns`, nanoseconds since the Unix epoch."""
        key = subject, type_, reason, message
        if key in self._told:
            self._waiting[key] = self._told.pop(key)
        if (entry := self._waiting.get(key)) is not None:
            entry.count += 1
            entry.last = now_ns
            return
        self._waiting[key] = Entry(subject, type_, reason, message, now_ns, now_ns)
        if len(self._waiting) > WAITING:
            self._waiting.popitem(last=False)
            self.lost += 1

    def due(self, now: float) -> list[Entry]:
        """What may be written at `now`, in monotonic seconds, oldest first; ask again after `wrote` or `gave_up`."""
        self._forget_allowances(now)
        spent: dict[Hashable, int] = {}
        found = []
        for entry in self._waiting.values():
            if entry.told:
                if now - entry.told_at >= REPEAT:
                    found.append(entry)
            elif spent.get(entry.subject, 0) + 1 <= self._left(entry.subject, now):
                spent[entry.subject] = spent.get(entry.subject, 0) + 1
                found.append(entry)
        return found

    def wrote(self, entry: Entry, count: int, now: float) -> None:
        """Note that the server knows of `count` occurrences; those that were noted meanwhile still wait."""
        if not entry.told:
            allowance = self._allowances.setdefault(entry.subject, _Allowance(BURST, now))
            allowance.left, allowance.since = self._left(entry.subject, now) - 1, now
        entry.told, entry.told_at = count, now
        if entry.count == count and entry.key in self._waiting:
            del self._waiting[entry.key]
            self._told[entry.key] = entry
            if len(self._told) > KEPT:
                self._told.popitem(last=False)

    def gave_up(self, entry: Entry) -> None:
        """Forget `entry`: it cannot be told."""
        if entry.key in self._waiting:
            del self._waiting[entry.key]
            self.lost += 1

    def _left(self, subject: Hashable, now: float) -> float:
        allowance = self._allowances.get(subject)
        return min(BURST, allowance.left + (now - allowance.since) / REFILL) if allowance else BURST

    def _forget_allowances(self, now: float) -> None:
        for subject in [subject for subject in self._allowances if self._left(subject, now) >= BURST]:
            del self._allowances[subject]
