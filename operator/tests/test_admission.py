"""Objects that admission or a CustomResourceDefinition changes are written once, not at each pass."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from embereye_operator.decide.fleet_memory import FleetMemory

from .fakes import World
from .test_reconcile import fleet_of


def limited(service: Any) -> None:
    service["spec"]["sessionAffinity"] = "ClientIP"
    service["spec"]["ports"][0]["appProtocol"] = "grpc"
    service["metadata"]["labels"]["app.kubernetes.io/part-of"] = "theirs"


def keeping_more(deployment: Any) -> None:
    deployment["spec"]["revisionHistoryLimit"] = 10
    deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = "25%"


def pruned(policy: Any) -> None:
    del policy["spec"]["unhealthyPodEvictionPolicy"]


def pruned_deep(scaled_object: Any) -> None:
    scaled_object["spec"]["fallback"] = {"replicas": 2}


def changing(kind: str, change: Callable[[Any], None], **spec: Any) -> World:
    """Build a fleet some of whose objects change when they are written."""
    world = World(fleet_of(shards=2, **spec))
    world.runtime.missing = set()
    write = world.runtime.apply

    async def admitted(manifest: Any, *, new: bool = False) -> Any:
        if manifest["kind"] == kind:
            manifest = copy.deepcopy(manifest)
            change(manifest)
        return await write(manifest, new=new)

    world.runtime.apply = admitted  # type: ignore[method-assign]
    return world


@pytest.mark.parametrize(
    ("kind", "change", "mode"),
    [
        ("Service", limited, "none"),
        ("Deployment", keeping_more, "none"),
        ("PodDisruptionBudget", pruned, "none"),
        ("ScaledObject", pruned_deep, "keda"),
    ],
)
async def test_an_object_changed_by_admission_is_written_once(
    kind: str, change: Callable[[Any], None], mode: str
) -> None:
    world = changing(kind, change, autoscaling={"mode": mode, "maxShards": 4})
    await world.run_until_complete()
    assert world.memory.applied, "a fleet at rest"
    for key, child in world.runtime.objects.items():
        if key[0] == kind:  # a changed status is no reason to write
            child.setdefault("status", {})["theirs"] = 1
    await world.step()
    assert not (await world.step()).actions
    world.memory = FleetMemory()
    await world.run_until_complete()


async def test_other_changes_to_such_an_object_are_reverted() -> None:
    world = changing("Deployment", keeping_more)
    await world.run_until_complete()
    spec = world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]
    for field, value in (("minReadySeconds", 99), ("revisionHistoryLimit", 5)):
        spec[field] = value
        assert (await world.step()).actions == ("apply Deployment hall-sensors-0",)
        spec = world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]
        assert spec[field] != value
        await world.run_until_complete()


async def test_an_object_with_a_foreign_finalizer_is_deleted_once() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    deleted = list[str]()

    async def keep(manifest: Any) -> None:
        deleted.append(manifest["metadata"]["name"])
        key = manifest["kind"], manifest["metadata"]["name"]
        world.runtime.objects[key]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"

    world.runtime.delete = keep  # type: ignore[method-assign]
    world.manifest["spec"]["shards"] = 1
    for _ in range(8):
        outcome = await world.step()
    assert len(deleted) == len(set(deleted)) == 1
    assert not outcome.actions
