"""All children of a fleet.

`build_change` calls `build_children`, which calls the other modules of this folder. The order of the list is the order
of writes. Manifests are complete and depend only on the arguments, so a pass can compare them with the existing
objects. A child that is not in the list any more is deleted by the same pass, or once its shard may go.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from embereye.v1.shard_pb2 import Assignment
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.manifests.autoscalers import TOLERANCE, build_autoscaler, build_scaled_object
from embereye_operator.decide.manifests.config_map import build_placement
from embereye_operator.decide.manifests.deployment import build_deployment
from embereye_operator.decide.manifests.disruption_budget import build_disruption_budget
from embereye_operator.decide.manifests.network_policy import build_network_policy
from embereye_operator.decide.manifests.routes import build_routes
from embereye_operator.decide.manifests.services import (
    build_devices_service,
    build_fleet_service,
    build_push_service,
    build_service,
    is_exposed_by_services,
    push_ports,
)
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.manifests.volumes import access_secrets


def build_children(  # noqa: PLR0913 -- all inputs of the children
    fleet: Fleet,
    settings: Settings,
    *,
    assignments: Mapping[str, Assignment],
    record: Manifest,
    shards: Sequence[str],
    is_offered: Callable[[str], bool] = lambda _: False,
    replaces: Mapping[str, str] | None = None,
    lost: Collection[str] = (),
    hosts: Mapping[str, str] | None = None,
    evictable: bool = False,
    budget_owner: Manifest | None = None,
) -> list[Manifest]:
    """Build all children, the placement ConfigMap first: assignments must exist before the shards that read them.

    `assignments` may contain more than `shards`: leaving shards still need to know where devices are. `record` is for a
    new leader. `is_offered` is true for optional kinds that the cluster has. `replaces` has, by shard, the uid of the
    pod that its current one replaced; the node of a shard in `lost` is lost; `hosts` has the address that a shard
    listens on, so that a new default does not replace it. `evictable`: the operator cannot read nodes, so that
    evictions must be allowed. `budget_owner`: see `build_disruption_budget`.
    """
    named = {device.credentials for a in assignments.values() for device in a.devices if device.credentials}
    secrets = sorted(named | access_secrets(fleet))
    pushing = push_ports(assignments)
    return [
        build_placement(fleet, assignments=assignments, record=record),
        *(build_service(fleet, shard, scraped=settings.scrape_annotations) for shard in shards),
        build_fleet_service(fleet),
        *(build_devices_service(fleet, shard) for shard in shards if is_exposed_by_services(fleet)),
        *(build_push_service(fleet, device, port, record["devices"][device]) for device, port in pushing.items()),
        build_disruption_budget(fleet, evictable=evictable, owner=budget_owner),
        *(
            build_deployment(
                fleet, shard, settings.listening((hosts or {}).get(shard, "")), secrets, replaced, is_lost=shard in lost
            )
            for shard in shards
            for replaced in [(replaces or {}).get(shard, "")]
        ),
        *build_additions(fleet, settings, is_offered, sorted(set(pushing.values()))),
        *build_routes(fleet, shards, is_offered),
    ]


def build_additions(
    fleet: Fleet, settings: Settings, is_offered: Callable[[str], bool], udp: Sequence[int] = ()
) -> list[Manifest]:
    """Build the children of optional kinds; `udp` ports are allowed in."""
    built = []
    metadata = fleet.names.metadata(fleet.names.fleet)
    if is_offered("NetworkPolicy"):
        built.append(build_network_policy(fleet, metadata, fleet.names.selector, udp))
    match fleet.spec.autoscaling:
        case Autoscaling(mode="hpa", observe=False) if is_offered("HorizontalPodAutoscaler"):
            built.append(build_autoscaler(fleet, metadata, tolerance=is_offered(TOLERANCE)))
        case Autoscaling(mode="keda", observe=False) if is_offered("ScaledObject"):
            built.append(build_scaled_object(fleet, metadata, settings.prometheus))
    return built
