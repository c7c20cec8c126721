"""Totals over all cameras of a shard, those that were handed over included: counters never fall."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from embereye.camera.device.camera import CameraDevice
from embereye.shard.ledger import Ledger
from embereye.v1 import evidence_pb2


@dataclass
class Totals:
    """What the cameras of a shard add up to."""

    ledger: Ledger = field(default_factory=Ledger)
    cpu_seconds: float = 0.0  # of decoding and detection
    failures: int = 0  # of the analysis
    unread: float = 0.0  # frames left with their senders, as far as can be told
    model_runs: int | None = None  # pictures that the fleet's own model looked at; None: there has been none
    model_seconds: float = 0.0  # CPU time of it

    def add(self, camera: CameraDevice) -> None:
        """Add what `camera` has counted."""
        ledger, cost = camera.arrivals.mailbox.ledger, camera.analyser.cost
        self.ledger.add(ledger)
        self.cpu_seconds += cost.cpu_seconds
        self.failures += cost.failures
        self.unread += camera.arrivals.backpressure.unread
        if taken := camera.analyser.model_cost:
            runs, seconds = taken
            self.model_runs = (self.model_runs or 0) + runs
            self.model_seconds += seconds

    def retire(self, camera: CameraDevice) -> evidence_pb2.Ledger:
        """Add a `camera` that is handed over; returns its final ledger.

        A frame in work is finished, but nobody counts it any more: it is shed.
        """
        self.add(camera)
        ledger = camera.arrivals.mailbox.ledger
        self.ledger.shed["handed over"] += max(0, ledger.waiting)
        final = ledger.message()
        final.shed["handed over"] += final.waiting
        final.waiting = 0
        return final

    def plus(self, cameras: Iterable[CameraDevice]) -> "Totals":
        """These totals and those of `cameras`, as a copy."""
        together = replace(self, ledger=Ledger())
        together.ledger.add(self.ledger)
        for camera in cameras:
            together.add(camera)
        return together
