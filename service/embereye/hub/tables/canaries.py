"""The database table of each shard's latest canary that became an alarm in time."""

from dataclasses import dataclass
from typing import NamedTuple

from embereye.hub.tables.table import StateTable


class ShardKey(NamedTuple):
    """A shard; `fleet` is "namespace/kind/name"."""

    fleet: str
    shard: str


@dataclass(frozen=True)
class Success:
    """A canary that became an alarm within its time limit."""

    alarmed_ns: int  # when the alarm was durable, on the hub's timeline
    delay_ns: int  # from its first sign to the alarm


CANARIES = StateTable[ShardKey, Success](
    """
CREATE TABLE IF NOT EXISTS canaries (fleet TEXT NOT NULL, shard TEXT NOT NULL, alarmed_ns INTEGER NOT NULL,
    delay_ns INTEGER NOT NULL, PRIMARY KEY (fleet, shard)) WITHOUT ROWID;
""",
    dump=lambda success: (success.alarmed_ns, success.delay_ns),
    read=lambda row: (ShardKey(str(row[0]), str(row[1])), Success(int(row[2]), int(row[3]))),
)
