"""The interface of a bus for evidence, as its users see it, independent of NATS."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from embereye.v1.evidence_pb2 import EvidenceItem


@dataclass(frozen=True)
class Outgoing:
    """A report to publish, with the callbacks for its outcome."""

    item: EvidenceItem
    done: Callable[[str], None]  # called with the report's id once the bus has stored it
    failed: Callable[[EvidenceItem], None]  # called if the bus has not stored it, or the outcome is unknown
    shard: str = ""  # that sent it


class EvidenceBus(Protocol):
    """Stores reports until the hub that owns the database has consumed them."""

    @property
    def failing(self) -> str:
        """The reason why the bus accepts no reports; '' if it does."""

    async def offer(self, report: Outgoing, now_ns: int) -> bool:
        """Start publishing `report`; True if that was possible.

        If so, one of the report's callbacks is called later. `now_ns` is the current time on the timeline of the
        report's times. Waits while too many reports are unacknowledged.
        """
