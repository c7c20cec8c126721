"""The coverage of a device: covered means heard and analysed within its deadline, and not blind."""

from dataclasses import dataclass

from embereye.units import HOUR, MINUTE, SECOND

SILENT = "silent for"  # the beginning of the reason of a silent device
# The beginnings of the reasons of a device, or of one that sleeps, that this process has not heard yet.
NEVER_HEARD = "never heard"
NO_CHECK_IN = "no check-in yet"


def duration(span_ns: int) -> str:
    """Round nanoseconds for people: "41 min", "25 h"."""
    if span_ns < 2 * MINUTE:
        return f"{span_ns / SECOND:.0f} s"
    return f"{span_ns / MINUTE:.0f} min" if span_ns < 5 * HOUR else f"{span_ns / HOUR:.0f} h"


def recalled(reason: str, silent_ns: int) -> str:
    """Correct the `reason` of a shard that has not heard a device yet: another process heard it `silent_ns` ago."""
    silent = duration(max(0, silent_ns))
    for beginning, known in ((NEVER_HEARD, f"{SILENT} {silent}"), (NO_CHECK_IN, f"last check-in {silent} ago")):
        if reason.startswith(beginning):
            return known + reason.removeprefix(beginning)
    return reason


@dataclass(slots=True)
class Watch:
    """The times at which a device was last heard and analysed, nanoseconds since the Unix epoch; 0: never."""

    heard_ns: int = 0
    analysed_ns: int = 0
    blind: str = ""  # why the device's data is useless although it arrives; empty: it is not

    def reason(self, now_ns: int, deadline_ns: int, *, sleeps: bool = False) -> str:
        """The reason why the device is not covered at `now_ns`; '' if it is.

        A device that `sleeps` only checks in now and then.
        """
        if not self.heard_ns:
            return f"{NO_CHECK_IN}, one is expected every {duration(deadline_ns)}" if sleeps else NEVER_HEARD
        silent = now_ns - self.heard_ns
        if silent > deadline_ns and sleeps:
            return f"last check-in {duration(silent)} ago, allowed {duration(deadline_ns)}"
        if silent > deadline_ns:
            return f"{SILENT} {silent / SECOND:.1f} s, deadline {deadline_ns / SECOND:g} s"
        if not self.analysed_ns:
            return "heard, but not analysed yet"
        unseen = now_ns - self.analysed_ns
        if unseen > deadline_ns:
            return f"heard, but last analysed {unseen / SECOND:.1f} s ago, deadline {deadline_ns / SECOND:g} s"
        return self.blind
