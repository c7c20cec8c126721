"""The conservation ledger: what became of everything a device offered."""

from collections import Counter
from dataclasses import dataclass, field

from embereye.process.timing.clock import now_ns
from embereye.v1 import evidence_pb2


@dataclass(slots=True)
class Ledger:
    """Per device: offered = analysed + shed(reason) + duplicate + rejected(reason) + waiting."""

    offered: int = 0
    analysed: int = 0
    duplicate: int = 0
    shed: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    shared: int = 0  # of offered: passed on by the owner before, which counts it, too
    takeovers: int = 0  # times that another connection began to speak for it while one was open
    since_ns: int = field(default_factory=now_ns)  # when it was begun, which tells it from an earlier one

    @property
    def waiting(self) -> int:
        """What was offered and is neither done with nor given up."""
        return self.offered - self.analysed - self.duplicate - self.shed.total() - self.rejected.total()

    def add(self, other: "Ledger") -> None:
        """Count what `other` has counted, too."""
        self.offered += other.offered
        self.analysed += other.analysed
        self.duplicate += other.duplicate
        self.shed.update(other.shed)
        self.rejected.update(other.rejected)
        self.shared += other.shared
        self.takeovers += other.takeovers

    def message(self) -> evidence_pb2.Ledger:
        """The ledger as it travels."""
        return evidence_pb2.Ledger(
            offered=self.offered,
            analysed=self.analysed,
            duplicate=self.duplicate,
            shed=self.shed,
            rejected=self.rejected,
            waiting=max(0, self.waiting),
            since_ns=self.since_ns,
            shared=self.shared,
            takeovers=self.takeovers,
        )
