"""The candidate of a shard, as its newest assignment declares it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from embereye.shard.candidate.counts import CandidateCounts
from embereye.shard.candidate.reports import CandidateReports
from embereye.v1.shard_pb2 import Assignment, Candidate


class JudgingCandidate(Protocol):
    """A candidate that judges the data of a shard."""

    declared: Candidate
    counts: CandidateCounts


C = TypeVar("C", bound=JudgingCandidate)


def current_candidate(
    assignment: Assignment, present: C | None, make: Callable[[Candidate], C], close: Callable[[C], None],
    reports: CandidateReports | None,
) -> C | None:  # fmt: skip
    """Return the candidate of `assignment`: `present`, or a new one; None if it declares none.

    `close` ends the one that it replaces. `reports` begins with the new one.
    """
    wanted = assignment.candidate if assignment.HasField("candidate") else None
    current = present
    if current is not None and (wanted is None or wanted.id != current.declared.id):
        close(current)
        current = None
    if current is None and wanted is not None:
        declared = Candidate()
        declared.CopyFrom(wanted)  # a part of the message would retain the whole assignment
        current = make(declared)
    if current is not present and reports:
        reports.begin(*((current.declared, current.counts) if current is not None else ()))
    return current
