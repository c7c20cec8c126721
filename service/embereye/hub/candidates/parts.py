"""The parts that candidates add to a hub."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.hub.addon import Parts
from embereye.hub.candidates.keeper import Candidates
from embereye.hub.candidates.routes import CandidateRoutes
from embereye.hub.candidates.service import CandidateService
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.process.candidates_call import CALL
from embereye.process.grpc_server import Service
from embereye.process.telemetry.metric import Scraped, gauge

DIFFERENCES = gauge(
    "embereye_hub_candidate_differences",
    "Pre-alarms and alarms that only one of a fleet's candidate and its detection in force raised.",
    ["fleet", "level"],
    only_where="spec.detection.candidate is declared",
)


def candidate_parts(hub: Hub, candidates: Candidates, clips: ClipStore | None) -> Parts:
    """Make the service for shards, the route for people, and the metrics."""

    def metrics() -> Iterator[Metric]:
        yield DIFFERENCES.rows(candidates.counts())

    return Parts(
        services=[Service(CALL.add, CandidateService(candidates), CALL.service)],
        routes=[CandidateRoutes(candidates, clips)],
        collectors=[Scraped(metrics)],
    )
