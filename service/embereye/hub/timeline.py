"""Shards' times on the hub's timeline: what is compared is the age of what was seen, whatever anybody's clock says."""

from embereye.units import DAY, SECOND
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem

OLDEST_NS = 7 * DAY  # that a report may have waited for the hub


def put_on_timeline(item: EvidenceItem, sent_ns: int, now_ns: int) -> None:
    """Put the times of a report that came at `now_ns` on the hub's timeline, by how old they were when it was sent.

    `sent_ns` is when that was on the clock of the report, 0: unknown. Nothing was seen later than now, and what claims
    to be older than OLDEST_NS, or to be from before it, is by a clock that cannot be believed: it counts as seen now.
    A canary that is older counts as that old: it is late.
    """
    ahead = now_ns - sent_ns if sent_ns else 0
    item.until_ns = _believable(item.until_ns + ahead, now_ns)
    item.since_ns = min(_believable(item.since_ns + ahead, now_ns), item.until_ns)
    if item.HasField("canary"):
        item.canary.lit_ns = min(max(item.canary.lit_ns + ahead, now_ns - OLDEST_NS), now_ns)


def put_statuses_on_timeline(coverage: Coverage, now_ns: int) -> None:
    """Put when devices were heard and analysed on the hub's timeline, where the shard's is another one."""
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
