"""What admission, or a CustomResourceDefinition, makes of objects: it is written once, not at each pass."""

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
    """A fleet some of whose objects become something else as they are written."""
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
async def test_what_becomes_of_an_object_as_it_is_written_is_written_once(
    kind: str, change: Callable[[Any], None], mode: str
) -> None:
    world = changing(kind, change, autoscaling={"mode": mode, "maxShards": 4})
    await world.settle()
    assert world.memory.applied, "a fleet at rest"
    for key, child in world.runtime.objects.items():
        if key[0] == kind:  # a status that changes is no reason to write
            child.setdefault("status", {})["theirs"] = 1
    await world.step()
    assert not (await world.step()).actions
    world.memory = FleetMemory()
    await world.settle()


async def test_what_people_change_beside_it_is_put_right() -> None:
    world = changing("Deployment", keeping_more)
    await world.settle()
    spec = world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]
    for field, value in (("minReadySeconds", 99), ("revisionHistoryLimit", 5)):
        spec[field] = value
        assert (await world.step()).actions == ("apply Deployment hall-sensors-0",)
        spec = world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]
        assert spec[field] != value
        await world.settle()


async def test_what_waits_for_a_finalizer_of_somebody_else_is_deleted_once() -> None:
    world = World(fleet_of(shards=2))
    await world.settle()
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
