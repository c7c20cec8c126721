"""The database table of the owners' ledgers of all devices."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

from embereye.v1.evidence_pb2 import Ledger


class LedgerKey(NamedTuple):
    """The identity of a ledger; a shard that owns a device again starts another one."""

    fleet: str
    device: str
    shard: str
    since_ns: int  # when the shard started it, nanoseconds since the Unix epoch


@dataclass(slots=True)
class OwnerLedger:
    """One owner's ledger of a device, serialised: a protobuf message would take seven times the memory."""

    key: LedgerKey
    until_ns: int  # time of its latest report, on the hub's timeline
    final: bool  # True if the owner has closed it
    data: bytes  # the ledger, serialised
    counted: bytes = b""  # the ledger as included in the fleet's totals, serialised

    @classmethod
    def create(cls, key: LedgerKey, until_ns: int, final: bool, ledger: Ledger) -> "OwnerLedger":
        """Create a ledger that is not included in totals yet."""
        fleet, device, shard = map(sys.intern, key[:3])  # shared with the other ledgers
        return cls(LedgerKey(fleet, device, shard, key.since_ns), until_ns, final, ledger.SerializeToString())

    @property
    def ledger(self) -> Ledger:
        """The ledger, parsed."""
        return Ledger.FromString(self.data)
