"""The coverage of a device: covered means heard and analysed within its deadline, and not blind."""

from dataclasses import dataclass

from embereye.units import SECOND

SILENT = "silent for"  # the beginning of the reason of a silent device


@dataclass(slots=True)
class Watch:
    """The times at which a device was last heard and analysed, nanoseconds since the Unix epoch; 0: never."""

    heard_ns: int = 0
    analysed_ns: int = 0
    blind: str = ""  # why the device's data is useless although it arrives; empty: it is not

    def reason(self, now_ns: int, deadline_ns: int) -> str:
        """The reason why the device is not covered at `now_ns`; '' if it is."""
        if not self.heard_ns:
            return "never heard"
        silent = now_ns - self.heard_ns
        if silent > deadline_ns:
            return f"{SILENT} {silent / SECOND:.1f} s, deadline {deadline_ns / SECOND:g} s"
        if not self.analysed_ns:
            return "heard, but not analysed yet"
        unseen = now_ns - self.analysed_ns
        if unseen > deadline_ns:
            return f"heard, but last analysed {unseen / SECOND:.1f} s ago, deadline {deadline_ns / SECOND:g} s"
        return self.blind
