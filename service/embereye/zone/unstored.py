"""Sentences for people about a hub that cannot write its database, made from its feed."""

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent


class Unstored:
    """Reads a feed whose subscription includes signs of life and events that are not stored yet."""

    def __init__(self) -> None:
        self._failing = False

    def news(self, event: AlarmEvent) -> str:
        """The sentence to print for `event` if it is a sign of life or not stored yet; else empty."""
        if event.type == AlarmEvent.TYPE_ALIVE:
            before, self._failing = self._failing, bool(event.why)
            if event.why and not before:
                return f"{event.why}; events are published now, and again when they are stored"
            if before and not event.why:
                return "the hub can write its database again and publishes what happened meanwhile"
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
