"""A shard's part of an alarm's trace: received, analysed, reported, for every increase of an episode's level."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from embereye.levels import Kind, Level
from embereye.process.telemetry.tracing import OpenSpan, Tracer
from embereye.process.timing.clock import now_ns
from embereye.v1.evidence_pb2 import EvidenceItem

T = TypeVar("T")
LIMIT = 1_024  # episodes, and reports without an acknowledgement, that are remembered


class EpisodeTraces:
    """Makes one trace for each episode; reports that repeat a level are not traced."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._episodes: OrderedDict[str, tuple[str, int]] = (
            OrderedDict()
        )  # → traceparent of its first span, highest traced level
        self._open: OrderedDict[str, OpenSpan] = OrderedDict()  # spans of unacknowledged reports, by id

    def trace(self, item: EvidenceItem, received_ns: int, analysis_ns: int) -> None:
        """Trace a report that is about to be sent, and add the trace's id to it.

        Its data arrived at `received_ns`; the analysis began at `analysis_ns` (Unix epoch) and ends now.
        """
        root, traced = self._episodes.get(item.episode, ("", Level.CLEAR))
        if item.level <= traced:
            return
        now, tracer = now_ns(), self._tracer
        about = {
            "fleet": item.fleet,
            "device": item.device,
            "zone": item.zone,
            "kind": Kind(item.kind).word,
            "level": Level(item.level).word,
            "episode": item.episode,
        }
        received = tracer.record("receive", received_ns, analysis_ns, parent=root, **about)
        analysed = tracer.record("analyse", analysis_ns, now, parent=received, **about)
        span = tracer.begin("report", now, parent=analysed, evidence=item.id, **about)
        item.traceparent = span.traceparent
        _remember(self._episodes, item.episode, (root or received, item.level))
        if (superseded := _remember(self._open, item.id, span)) is not None:
            superseded.end(now_ns())

    def acknowledged(self, ids: Iterable[str]) -> None:
        """End the spans of reports that the hub has acknowledged."""
        for name in ids:
            if (span := self._open.pop(name, None)) is not None:
                span.end(now_ns())

    def close(self) -> None:
        """End the open spans and send them."""
        self.acknowledged(list(self._open))
        self._tracer.close()


def _remember(entries: "OrderedDict[str, T]", key: str, value: T) -> T | None:
    """Store `value`; remove and return the oldest one if there are more than LIMIT."""
    entries[key] = value
    entries.move_to_end(key)
    return entries.popitem(last=False)[1] if len(entries) > LIMIT else None
