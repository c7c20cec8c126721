"""What the operator tells of fleets' load and scaling: the latest, for people to see. Nothing of it is stored."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from embereye.hub.coverage.book import CoverageBook
from embereye.v1.roster_pb2 import FleetScaling


@dataclass(frozen=True)
class ReportedScaling:
    """What was told last of one fleet."""

    scaling: FleetScaling
    time_ns: int  # when it came, by the hub's wall clock: the operator's may be another


class Scaling:
    """The latest word on each fleet that ought to be watched."""

    def __init__(self, book: CoverageBook, clock: Callable[[], int] = time.time_ns) -> None:
        self._book = book
        self._clock = clock
        self._told: dict[str, ReportedScaling] = {}

    def update(self, scaling: FleetScaling) -> None:
        """Take the operator's word; what is told of a fleet that the hub does not know is passed over."""
        self._told = {name: told for name, told in self._told.items() if name in self._book.fleets}
        if scaling.fleet in self._book.fleets:
            self._told[scaling.fleet] = ReportedScaling(scaling, self._clock())

    def find(self, fleet: str) -> ReportedScaling | None:
        """What was told of `fleet` ("namespace/kind/name"); None: nothing yet."""
        return self._told.get(fleet)
