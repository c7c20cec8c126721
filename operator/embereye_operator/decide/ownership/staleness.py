"""The staleness of a fleet's status: it is current only if the operator that wrote it lives."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from embereye.units import SECOND
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import from_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.status import OBSERVED_SECONDS, nanoseconds


@dataclass(frozen=True)
class RefusedStatus:
    """The latest Event about a status that could not be written."""

    why: str
    time: str  # RFC 3339, by the operator's clock


def why_stale(
    fleet: Fleet, absent: Mapping[str, str], now_ns: int, refused: Mapping[str, RefusedStatus] = MappingProxyType({})
) -> str:
    """Return why the status of `fleet` may be outdated; empty if it is current.

    `absent` has the reason for each operator that does not live. `now_ns` is the time since the Unix epoch. `refused`
    are refused statuses by the fleet's uid.
    """
    status: FleetStatus = from_manifest(FleetStatus, fleet.status)
    observed = status.last_observed
    since = f"nobody has observed the fleet since {observed}" if observed else "nobody observes the fleet"
    name = status.operator.name if status.operator else ""
    if why := absent.get(name):
        return f"{since}: {why}"
    if (event := refused.get(fleet.uid)) and nanoseconds(event.time) > nanoseconds(observed or ""):
        return f"{since}: {event.why}"
    if observed and (now_ns - nanoseconds(observed)) / SECOND > 2 * OBSERVED_SECONDS:
        return f"{since}: operator {name or 'without a Lease'} does not write its status"
    return ""
