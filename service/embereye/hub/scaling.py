"""The operator's latest report of each fleet's load and scaling, for people to see. It is not stored."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from embereye.hub.coverage.book import CoverageBook
from embereye.v1.roster_pb2 import FleetScaling


@dataclass(frozen=True)
class ReportedScaling:
    """The operator's latest report of one fleet."""

    scaling: FleetScaling
    time_ns: int  # when it arrived, on the hub's wall clock: the operator's may differ


class Scaling:
    """The latest report of each fleet that has a roster."""

    def __init__(self, book: CoverageBook, clock: Callable[[], int] = time.time_ns) -> None:
        self._book = book
        self._clock = clock
        self._reports: dict[str, ReportedScaling] = {}  # by fleet

    def update(self, scaling: FleetScaling) -> None:
        """Replace the report of a fleet; a fleet without a roster is ignored."""
        self._reports = {name: report for name, report in self._reports.items() if name in self._book.fleets}
        if scaling.fleet in self._book.fleets:
            self._reports[scaling.fleet] = ReportedScaling(scaling, self._clock())

    def find(self, fleet: str) -> ReportedScaling | None:
        """The latest report of `fleet` ("namespace/kind/name"); None if there is none."""
        return self._reports.get(fleet)
