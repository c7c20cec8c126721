"""What a feed tells of a hub that cannot write its database, in sentences for people."""

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent


class Unstored:
    """Reads a feed that was asked for signs of life and for what is not stored."""

    def __init__(self) -> None:
        self._failing = False

    def news(self, event: AlarmEvent) -> str:
        """What is to be told of `event` beside what is stored; empty: nothing."""
        if event.type == AlarmEvent.TYPE_ALIVE:
            before, self._failing = self._failing, bool(event.why)
            if event.why and not before:
                return f"{event.why}; what happens is told all the same, and once more when it is stored"
            if before and not event.why:
                return "the hub can write its database again, and tells what happened meanwhile"
            return ""
        if not event.unstored:
            return ""
        name = f"{event.namespace}/{event.zone}"
        match event.type:
            case AlarmEvent.TYPE_STATE:
                name = f"{ZoneState(event.state).word.upper()} {name}"
            case AlarmEvent.TYPE_FAULT:
                name = f"FAULT {name}"
            case AlarmEvent.TYPE_FAULT_CLEARED:
                name = f"fault cleared {name}"
        return f"{name}: {event.why} (not stored yet)"
