"""The database table of the owners' ledgers of all devices.

`LedgerBook` (coverage/ledgers.py) owns them in memory. All are loaded at the start, and the changed ones are written
every ten seconds and when a shard closes a ledger. A ledger stays serialised and is parsed when it is read.
"""

import sys
from dataclasses import dataclass
from typing import NamedTuple

from embereye.hub.tables.table import StateTable
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


# After lost commits the current owners' ledgers are written soon anyway; only those that were closed then are lost.
LEDGERS = StateTable[LedgerKey, OwnerLedger](
    """
CREATE TABLE IF NOT EXISTS ledgers (fleet TEXT NOT NULL, device TEXT NOT NULL, shard TEXT NOT NULL,
    since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, final INTEGER NOT NULL, ledger BLOB NOT NULL,
    PRIMARY KEY (fleet, device, shard, since_ns)) WITHOUT ROWID;
""",
    dump=lambda entry: (entry.until_ns, int(entry.final), entry.data),
    read=lambda row: _by_key(
        OwnerLedger.create(LedgerKey(*row[:4]), int(row[4]), bool(row[5]), Ledger.FromString(bytes(row[6])))
    ),
    newest_time="SELECT MAX(until_ns) FROM ledgers",
    is_rewritten=False,
)


def _by_key(entry: OwnerLedger) -> tuple[LedgerKey, OwnerLedger]:
    return entry.key, entry
