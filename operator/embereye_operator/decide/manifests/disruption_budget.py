"""The PodDisruptionBudget of a fleet."""

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, manifest


def build_disruption_budget(fleet: Fleet, *, evictable: bool, owner: Manifest | None = None) -> Manifest:
    """Build a budget that refuses evictions: the operator rolls shards away from drained nodes, without a gap.

    A pod that is not ready may be evicted. `evictable`: the operator cannot read nodes, so one shard at a time may be.
    `owner` deletes the budget when no operator runs any more; without one the budget stays as long as its fleet.
    """
    metadata = fleet.names.metadata(fleet.names.fleet)
    if owner:
        metadata["ownerReferences"] = [owner]
    spec = {
        "maxUnavailable": int(evictable),
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": fleet.names.selector},
    }
    return manifest("policy/v1", "PodDisruptionBudget", metadata, spec)
