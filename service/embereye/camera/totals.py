"""Totals over all cameras of a shard, including handed-over ones, so that counters never fall."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from embereye.camera.device.camera import CameraDevice
from embereye.shard.ledger import Ledger
from embereye.v1 import evidence_pb2


@dataclass
class Totals:
    """The sums over the cameras of a shard."""

    ledger: Ledger = field(default_factory=Ledger)
    cpu_seconds: float = 0.0  # of decoding and detection
    failures: int = 0  # of the analysis
    unread: float = 0.0  # frames left with their senders, estimated
    model_runs: int | None = None  # pictures analysed by the fleet's own model; None: there was no model
    model_seconds: float = 0.0  # CPU time of the model

    def add(self, camera: CameraDevice) -> None:
        """Add the counts of `camera`."""
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
        """Add a `camera` that is handed over. Returns its final ledger.

        A frame in work is finished but no longer counted, so it counts as shed.
        """
        self.add(camera)
        ledger = camera.arrivals.mailbox.ledger
        self.ledger.shed["handed over"] += max(0, ledger.waiting)
        final = ledger.message()
        final.shed["handed over"] += final.waiting
        final.waiting = 0
        return final

    def plus(self, cameras: Iterable[CameraDevice]) -> "Totals":
        """Return a copy of these totals with those of `cameras` added."""
        total = replace(self, ledger=Ledger())
        total.ledger.add(self.ledger)
        for camera in cameras:
            total.add(camera)
        return total
