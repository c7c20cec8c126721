"""The counts of a device's ledger since they were last read, for its margins."""

from collections import Counter

from embereye.margins import Margin
from embereye.shard.ledger import Ledger

NONE = Counter[str]()  # never changed


class CountedSpan:
    """One device's counts as they were read last."""

    __slots__ = ("_analysed", "_read_ns", "_rejected", "_shed")

    def __init__(self) -> None:
        self._read_ns = self._analysed = 0
        self._shed = self._rejected = NONE  # shared, because most devices never have any

    def begin_margin(self, device: str, ledger: Ledger, now_ns: int) -> Margin | None:
        """Return a margin with what `ledger` counted since the last call; None for the first call."""
        from_ns, analysed = self._read_ns, ledger.analysed - self._analysed
        self._read_ns, self._analysed = now_ns, ledger.analysed
        shed = rejected = NONE
        if ledger.shed != self._shed:  # rarely, and the difference of counters takes long
            shed, self._shed = ledger.shed - self._shed, Counter(ledger.shed)
        if ledger.rejected != self._rejected:
            rejected, self._rejected = ledger.rejected - self._rejected, Counter(ledger.rejected)
        if not from_ns or now_ns <= from_ns:
            return None
        margin: Margin = {"device": device, "fromNs": from_ns, "untilNs": now_ns}
        if analysed > 0:
            margin["analysed"] = analysed
        if shed:
            margin["shed"] = dict(shed)
        if rejected:
            margin["rejected"] = dict(rejected)
        return margin
