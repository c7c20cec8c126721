"""The hub's part of an alarm's trace: committed, and published to those who are subscribed."""

from embereye.process.telemetry.tracing import OpenSpan, Tracer
from embereye.process.timing.clock import now_ns
from embereye.v1.evidence_pb2 import EvidenceItem


class EvidenceTraces:
    """Goes on with the traces that reports carry."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[str, tuple[int, OpenSpan]] = {}  # commits under way and since when, by the report's id
        self._published = (0, 0)  # when the latest batch of events was begun to be published, and when it was

    def admit(self, item: EvidenceItem) -> None:
        """`item` begins to wait for its transaction."""
        if item.traceparent and item.id not in self._open:
            now = now_ns()
            self._open[item.id] = now, self._tracer.begin("commit", now, parent=item.traceparent)

    def note_published(self, begin_ns: int, end_ns: int) -> None:
        """The events of the transaction whose reports finish next were published in this time (Unix epoch)."""
        self._published = (begin_ns, end_ns)

    def finish(self, item: EvidenceItem) -> None:
        """`item` is durable, and its events are published."""
        if item.id not in self._open:
            return
        since_ns, span = self._open.pop(item.id)
        begin_ns, end_ns = self._published
        if begin_ns < since_ns:  # it was known already: there was nothing to publish
            span.end(now_ns())
            return
        self._tracer.record("publish", begin_ns, end_ns, parent=span.end(begin_ns))
