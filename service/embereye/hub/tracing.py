"""The hub's spans of an alarm's trace: commit, and publish to subscribers."""

from embereye.process.telemetry.tracing import OpenSpan, Tracer
from embereye.process.timing.clock import now_ns
from embereye.v1.evidence_pb2 import EvidenceItem


class EvidenceTraces:
    """Continues the traces that reports carry: one commit span and one publish span for each report."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[str, tuple[int, OpenSpan]] = {}  # start and span of each running commit, by the report's key
        self._published = (0, 0)  # start and end of publishing the latest batch of events

    def admit(self, item: EvidenceItem, key: str) -> None:
        """Open the commit span of `item` with `key`, which now waits for its transaction."""
        if item.traceparent and key not in self._open:
            now = now_ns()
            self._open[key] = now, self._tracer.begin("commit", now, parent=item.traceparent)

    def note_published(self, begin_ns: int, end_ns: int) -> None:
        """Note when the events of a transaction were published (Unix epoch); its reports finish next."""
        self._published = (begin_ns, end_ns)

    def finish(self, key: str) -> None:
        """Close the spans of the report with `key`, which is durable and whose events are published."""
        if key not in self._open:
            return
        since_ns, span = self._open.pop(key)
        begin_ns, end_ns = self._published
        if begin_ns < since_ns:  # a duplicate: it published nothing
            span.end(now_ns())
            return
        self._tracer.record("publish", begin_ns, end_ns, parent=span.end(begin_ns))
