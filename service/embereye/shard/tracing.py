"""A shard's part of an alarm's trace: received, analysed, reported, for every step up of an episode."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from embereye.levels import Kind, Level
from embereye.process.telemetry.tracing import OpenSpan, Tracer
from embereye.process.timing.clock import now_ns
from embereye.v1.evidence_pb2 import EvidenceItem

T = TypeVar("T")
REMEMBERED = 1_024  # episodes, and reports without an acknowledgement; older ones are given up


class EpisodeTraces:
    """One trace for each episode; what repeats a level is not traced."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._episodes: OrderedDict[str, tuple[str, int]] = OrderedDict()  # → traceparent of its first span, level told
        self._open: OrderedDict[str, OpenSpan] = OrderedDict()  # reports that the hub has not acknowledged, by id

    def trace(self, item: EvidenceItem, received_ns: int, analysis_ns: int) -> None:
        """Trace a report that is about to be sent, and have it carry the trace to the hub.

        Its data was `received_ns` and taken up for analysis `analysis_ns` (Unix epoch), which ends now.
        """
        root, told = self._episodes.get(item.episode, ("", Level.CLEAR))
        if item.level <= told:
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
        """The hub has these reports."""
        for name in ids:
            if (span := self._open.pop(name, None)) is not None:
                span.end(now_ns())

    def close(self) -> None:
        """End what is open and send it."""
        self.acknowledged(list(self._open))
        self._tracer.close()


def _remember(kept: "OrderedDict[str, T]", key: str, value: T) -> T | None:
    """Keep `value`; returns the oldest one where there are more than REMEMBERED."""
    kept[key] = value
    kept.move_to_end(key)
    return kept.popitem(last=False)[1] if len(kept) > REMEMBERED else None
