"""What who takes reports asks of a bus; nothing here needs NATS."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from embereye.v1.evidence_pb2 import EvidenceItem


@dataclass(frozen=True)
class Outgoing:
    """A report, and who is to learn what became of it."""

    item: EvidenceItem
    done: Callable[[str], None]  # the bus has it, by its id
    failed: Callable[[EvidenceItem], None]  # it is not known to have it, for one


class EvidenceBus(Protocol):
    """Keeps reports until the hub that owns the database has consumed them."""

    @property
    def failing(self) -> str:
        """Why it takes no reports; '' where it does."""
        ...

    async def offer(self, report: Outgoing, now_ns: int) -> bool:
        """Publish `report`, whose times are on the timeline on which it is `now_ns`; whether that was begun.

        Where it was, one of the report's callbacks is called later. Waits while too many are under way.
        """
        ...
