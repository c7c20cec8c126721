"""The heartbeat of every shard: the time of its latest canary's alarm, and whether one is overdue."""

from embereye.hub.canaries import Heartbeat
from embereye.hub.hub import Hub
from embereye.units import SECOND


def heartbeats(hub: Hub) -> dict[str, object]:
    """Answer /v1/canaries; times in seconds, and in seconds since the Unix epoch."""
    return {"canaries": [_listed(beat) for beat in hub.canaries.heartbeats(hub.timeline.stepped_ns())]}


def _listed(beat: Heartbeat) -> dict[str, object]:
    namespace, kind, fleet = [*beat.key.fleet.split("/"), "", ""][:3]
    return {
        "namespace": namespace,
        "kind": kind,
        "fleet": fleet,
        "shard": beat.key.shard,
        "interval": beat.interval_ns / SECOND,
        "within": beat.within_ns / SECOND,
        "alarmed": beat.latest.alarmed_ns / SECOND if beat.latest else None,
        "delay": beat.latest.delay_ns / SECOND if beat.latest else None,
        "overdue": beat.overdue,
    }
