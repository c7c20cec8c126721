"""Correlate Kubernetes Events: repetitions raise a count, and a rate limit protects readers from floods.

Passes record occurrences, and `EventWriter` takes due entries, writes them, and confirms each with `note_written`. An
entry is unique by subject, type, reason and message; it waits until its whole count is written, and is then remembered
to count repetitions. New entries of a subject need an allowance, which refills slowly. Repetitions only update the
count, at most every REPEAT seconds. Both queues are bounded, and only losses of unwritten entries are counted.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

REPEAT = 30.0  # seconds; shortest interval between updates of one entry's count
BURST = 10  # new entries of one subject that are written at once
REFILL = 30.0  # seconds until a subject may have one more new entry
RETAINED = 500  # written entries that are remembered to count repetitions; older ones start again at 1
WAITING = 5000  # entries waiting to be written; beyond it the oldest are lost


@dataclass(slots=True)
class Entry:
    """An occurrence about one subject, with the number of its repetitions."""

    subject: Hashable
    type_: str  # "Normal" or "Warning"
    reason: str
    message: str
    first: int  # nanoseconds since the Unix epoch
    last: int  # nanoseconds since the Unix epoch
    count: int = 1
    written: int = 0  # the part of `count` that was written
    written_at: float = 0.0  # monotonic seconds
    name: str = ""  # of the Event object; "" until it is written

    @property
    def key(self) -> tuple[Hashable, str, str, str]:
        """Return the fields that make two occurrences the same."""
        return self.subject, self.type_, self.reason, self.message


@dataclass(slots=True)
class _Allowance:
    left: float
    since: float  # monotonic seconds


@dataclass
class EventCorrelator:
    """Entries by content. `record` adds an occurrence, `due` lists entries to write, `note_written` confirms one."""

    lost: int = 0  # entries that were never written
    _waiting: OrderedDict[tuple[Hashable, str, str, str], Entry] = field(default_factory=OrderedDict)
    _written: OrderedDict[tuple[Hashable, str, str, str], Entry] = field(default_factory=OrderedDict)
    _allowances: dict[Hashable, _Allowance] = field(default_factory=dict)

    def record(self, subject: Hashable, type_: str, reason: str, message: str, now_ns: int) -> None:
        """Record an occurrence at `now_ns`, nanoseconds since the Unix epoch."""
        key = subject, type_, reason, message
        if key in self._written:
            self._waiting[key] = self._written.pop(key)
        if (entry := self._waiting.get(key)) is not None:
            entry.count += 1
            entry.last = now_ns
            return
        self._waiting[key] = Entry(subject, type_, reason, message, now_ns, now_ns)
        if len(self._waiting) > WAITING:
            self._waiting.popitem(last=False)
            self.lost += 1

    def due(self, now: float) -> list[Entry]:
        """List the entries to write at `now`, in monotonic seconds, oldest first."""
        self._forget_allowances(now)
        spent: dict[Hashable, int] = {}
        due = []
        for entry in self._waiting.values():
            if entry.written:
                if now - entry.written_at >= REPEAT:
                    due.append(entry)
            elif spent.get(entry.subject, 0) + 1 <= self._left(entry.subject, now):
                spent[entry.subject] = spent.get(entry.subject, 0) + 1
                due.append(entry)
        return due

    def note_written(self, entry: Entry, count: int, now: float) -> None:
        """Record that the server has `count` occurrences; later ones still wait."""
        if not entry.written:
            allowance = self._allowances.setdefault(entry.subject, _Allowance(BURST, now))
            allowance.left, allowance.since = self._left(entry.subject, now) - 1, now
        entry.written, entry.written_at = count, now
        if entry.count == count and entry.key in self._waiting:
            del self._waiting[entry.key]
            self._written[entry.key] = entry
            if len(self._written) > RETAINED:
                self._written.popitem(last=False)

    def discard(self, entry: Entry) -> None:
        """Drop `entry`, which cannot be written."""
        if entry.key in self._waiting:
            del self._waiting[entry.key]
            self.lost += 1

    def _left(self, subject: Hashable, now: float) -> float:
        allowance = self._allowances.get(subject)
        return min(BURST, allowance.left + (now - allowance.since) / REFILL) if allowance else BURST

    def _forget_allowances(self, now: float) -> None:
        for subject in [subject for subject in self._allowances if self._left(subject, now) >= BURST]:
            del self._allowances[subject]
