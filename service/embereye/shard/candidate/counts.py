"""The counts of a candidate in a shard, and their metrics."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter
from embereye.shard.candidate.comparison import Difference

WITH_CANDIDATE = "spec.detection.candidate is declared"
DIFFERENCES = counter(
    "embereye_shard_candidate_differences_total",
    "Pre-alarms and alarms that only one of the candidate and the detection in force raised.",
    ["kind", "level", "which"],
    only_where=WITH_CANDIDATE,
)
SEEN = counter(
    "embereye_shard_candidate_seen_total",
    "Readings and frames that the candidate judged, besides quiet lines.",
    only_where=WITH_CANDIDATE,
)
UNSEEN = counter(
    "embereye_shard_candidate_unseen_total",
    "Readings and frames that the candidate did not judge, because the shard was busy.",
    only_where=WITH_CANDIDATE,
)
CPU = counter("embereye_shard_candidate_cpu_seconds_total", "CPU time of the candidate.", only_where=WITH_CANDIDATE)


@dataclass
class CandidateCounts:
    """Counters since the candidate began."""

    seen: int = 0
    unseen: int = 0
    cpu_seconds: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)  # by device: why it is not compared
    differences: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by kind, level and side

    def note(self, difference: Difference) -> None:
        """Count a difference."""
        self.differences[difference.kind.word, difference.level.word, difference.which] += 1

    @property
    def problem(self) -> str:
        """The reason why devices are not compared, or ''."""
        if not self.problems:
            return ""
        device, why = min(self.problems.items())
        others = f" and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
        return f"{device}{others}: {why}"

    def metrics(self) -> Iterator[Metric]:
        """Yield the metric families."""
        yield DIFFERENCES.rows((labels, count) for labels, count in sorted(self.differences.items()))
        yield SEEN.value(self.seen)
        yield UNSEEN.value(self.unseen)
        yield CPU.value(self.cpu_seconds)
