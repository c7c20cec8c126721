"""The ledger of a device's messages: every offered message is counted by its outcome."""

from collections import Counter
from dataclasses import dataclass, field

from embereye.process.timing.clock import now_ns
from embereye.v1 import evidence_pb2


@dataclass(slots=True)
class Ledger:
    """The counts of one device: offered = analysed + shed(reason) + duplicate + rejected(reason) + waiting."""

    offered: int = 0
    analysed: int = 0
    duplicate: int = 0
    shed: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    shared: int = 0  # part of offered: relayed by the previous owner, which counts it, too
    takeovers: int = 0  # times that another connection began to speak for the device while one was open
    since_ns: int = field(default_factory=now_ns)  # its start, which distinguishes it from earlier ledgers

    @property
    def waiting(self) -> int:
        """The number of offered messages without an outcome yet."""
        return self.offered - self.analysed - self.duplicate - self.shed.total() - self.rejected.total()

    def add(self, ledger: "Ledger") -> None:
        """Add the counts of `ledger`."""
        self.offered += ledger.offered
        self.analysed += ledger.analysed
        self.duplicate += ledger.duplicate
        self.shed.update(ledger.shed)
        self.rejected.update(ledger.rejected)
        self.shared += ledger.shared
        self.takeovers += ledger.takeovers

    def message(self) -> evidence_pb2.Ledger:
        """The ledger as a message."""
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
