"""A station's queue: which messages its events become, their sequences, and what is stored of them (pure but for rows).

`Queue.add` turns an event into messages and gives each the next sequence. Messages and the position behind the event
are one change of the rows, so a killed hub sends the same messages with the same sequences again, and none is skipped.
It folds: a zone's faults are one trouble until the last device is back, and an alarm is restored with the code with
which it was reported. At MAX_WAITING messages the oldest of the least urgent are dropped and counted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from embereye.addons.dc09.codes import ALARM, CODES, Report, reports_of
from embereye.addons.dc09.options import StationOptions
from embereye.v1.alarms_pb2 import AlarmEvent

MAX_WAITING = 1_000
MAX_SEQUENCE = 9_999
URGENT = frozenset(CODES) - {"pre-alarm", "fault", "test"}  # alarms


@dataclass(frozen=True)
class Message:
    """One message on its way to the station."""

    number: int  # grows with each message, over restarts
    sequence: int  # 1..9999
    subject: str  # a key of CODES
    restored: bool
    zone: int  # the station's number
    text: str
    occurred_ns: int  # wall clock

    @property
    def rank(self) -> tuple[bool, int]:
        """The order of sending: alarms first, then by age."""
        return self.subject not in URGENT, self.number


@dataclass
class _State:
    cursor: int = -1  # of the last event that became messages; -1: none yet
    number: int = 0  # of the last message
    sequence: int = 0  # of the last message
    alarms: dict[str, str] = field(default_factory=dict)  # subject of each open alarm, by zone
    faults: dict[str, list[str]] = field(default_factory=dict)  # dark devices, by zone


class Queue:
    """The messages of one station."""

    def __init__(self, options: StationOptions, rows: Mapping[str, Any]) -> None:
        """Continue with the stored `rows`; those that cannot be read are left out."""
        self._options = options
        self.waiting: dict[int, Message] = {}  # by number
        self.dropped = 0  # messages, since the start
        try:
            self._state = _State(**rows.get("state", {}))
        except TypeError:
            self._state = _State()
        for name, document in rows.items():
            if name.startswith("message/"):
                try:
                    message = Message(**document)
                except TypeError:
                    continue
                self.waiting[message.number] = message

    @property
    def cursor(self) -> int:
        """The cursor of the last event that became messages; -1: none yet."""
        return self._state.cursor

    def next(self) -> Message | None:
        """The most urgent message; None if none waits."""
        return min(self.waiting.values(), key=lambda message: message.rank, default=None)

    def add(self, event: AlarmEvent) -> dict[str, object]:
        """Add the messages of `event`; returns the changed rows by name, None for a removed one."""
        changes: dict[str, object] = {}
        for report in reports_of(event):
            if (subject := self._subject(report, event.fault.device)) is None:
                continue
            state = self._state
            state.number += 1
            state.sequence = state.sequence % MAX_SEQUENCE + 1
            zone = self._options.number(report.namespace, report.zone)
            text = f"{report.zone}: {report.text}"
            message = Message(state.number, state.sequence, subject, report.restored, zone, text, event.time_ns)
            self.waiting[message.number] = message
            changes[_row(message)] = asdict(message)
        while len(self.waiting) > MAX_WAITING:
            least = max(self.waiting.values(), key=lambda message: (message.rank[0], -message.number))
            changes |= self.remove(least)
            self.dropped += 1
        return changes | {"state": asdict(self._state)}

    def advance(self, cursor: int) -> dict[str, object]:
        """Continue after the event of `cursor`; returns the changed rows."""
        self._state.cursor = cursor
        return {"state": asdict(self._state)}

    def remove(self, message: Message) -> dict[str, object]:
        """Remove a message that was acknowledged or is dropped; returns the changed rows."""
        self.waiting.pop(message.number, None)
        return {_row(message): None}

    def _subject(self, report: Report, device: str) -> str | None:
        """The subject under which the station hears of `report`; None: it does not."""
        zone, state, send = f"{report.namespace}/{report.zone}", self._state, self._options.send
        if report.subject == ALARM:
            return state.alarms.pop(zone, None)
        if report.subject == "fault":
            dark = state.faults.setdefault(zone, [])
            known = bool(dark)
            if report.restored:
                dark[:] = [name for name in dark if name != device]
            elif device not in dark:
                dark.append(device)
            now = bool(dark)
            if not now:
                del state.faults[zone]
            return "fault" if known != now and "fault" in send else None
        if report.subject in URGENT:
            if "alarm" not in send:
                return None
            state.alarms[zone] = report.subject
            return report.subject
        return report.subject if report.subject in send else None


def _row(message: Message) -> str:
    return f"message/{message.number}"
