"""Conversion of shards' times to the hub's timeline, by the age of a sighting: clocks may differ, ages do not."""

from embereye.units import DAY, SECOND
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem

OLDEST_NS = 7 * DAY  # longest time that a report may have waited for the hub


def put_on_timeline(item: EvidenceItem, sent_ns: int, now_ns: int) -> None:
    """Move the times of a report that arrived at `now_ns` to the hub's timeline, by their age when it was sent.

    `sent_ns` is the sending time on the report's own clock, 0: unknown. A time later than now, or earlier than
    OLDEST_NS ago, comes from a wrong clock and counts as now. A canary that is older than OLDEST_NS counts as exactly
    that old, therefore late.
    """
    ahead = now_ns - sent_ns if sent_ns else 0
    item.until_ns = _believable(item.until_ns + ahead, now_ns)
    item.since_ns = min(_believable(item.since_ns + ahead, now_ns), item.until_ns)
    if item.HasField("canary"):
        item.canary.lit_ns = min(max(item.canary.lit_ns + ahead, now_ns - OLDEST_NS), now_ns)


def put_statuses_on_timeline(coverage: Coverage, now_ns: int) -> None:
    """Move the times at which devices were heard and analysed to the hub's timeline, if the shard's differs."""
    ahead = now_ns - coverage.time_ns
    if abs(ahead) < SECOND:
        return
    for status in coverage.devices:
        if status.heard_ns:
            status.heard_ns = _believable(status.heard_ns + ahead, now_ns)
        if status.analysed_ns:
            status.analysed_ns = _believable(status.analysed_ns + ahead, now_ns)


def _believable(time_ns: int, now_ns: int) -> int:
    return time_ns if now_ns - OLDEST_NS <= time_ns <= now_ns else now_ns
