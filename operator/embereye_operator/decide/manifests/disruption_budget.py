"""The PodDisruptionBudget of a fleet."""

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.manifests.names import build_metadata, fleet_name, selector


def build_disruption_budget(fleet: Fleet, *, evictable: bool, owner: Manifest | None = None) -> Manifest:
    """Evictions are refused: from a node that is being emptied shards are moved by a roll, which leaves no gap.

    A pod that is not ready serves nobody and may go. Where nobody can see nodes, one shard at a time may. `owner` is a
    reference to what goes when nobody is there to roll; without one the budget stays as long as its fleet.
    """
    metadata = build_metadata(fleet, fleet_name(fleet))
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {**metadata, "ownerReferences": [owner]} if owner else metadata,
        "spec": {
            "maxUnavailable": int(evictable),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(fleet)},
        },
    }
