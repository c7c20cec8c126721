"""Whether a device is watched: heard, analysed and able to see, within its deadline."""

from dataclasses import dataclass

from embereye.units import SECOND

SILENT = "silent for"  # as the reason of a device begins that says nothing any more


@dataclass(slots=True)
class Watch:
    """When a device was last heard and analysed. Times are nanoseconds since the Unix epoch; 0: never."""

    heard_ns: int = 0
    analysed_ns: int = 0
    blind: str = ""  # why the device cannot see although its data arrives; empty: it can

    def reason(self, now_ns: int, deadline_ns: int) -> str:
        """One sentence why the device is not covered at `now_ns`, or '' where it is."""
        if not self.heard_ns:
            return "never heard"
        silent = now_ns - self.heard_ns
        if silent > deadline_ns:
            return f"{SILENT} {silent / SECOND:.1f} s, deadline {deadline_ns / SECOND:g} s"
        if not self.analysed_ns:
            return "heard, but nothing was analysed yet"
        unseen = now_ns - self.analysed_ns
        if unseen > deadline_ns:
            return f"heard, but last analysed {unseen / SECOND:.1f} s ago, deadline {deadline_ns / SECOND:g} s"
        return self.blind
