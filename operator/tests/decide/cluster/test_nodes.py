"""The nodes that shards must leave, and the consequences for the shards."""

from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.decide.cluster.nodes import STALE, Displaced, Heartbeats, displaced, newest, read_node
from embereye_operator.decide.fleet_memory import LOST, UNEVEN, FleetMemory
from embereye_operator.decide.intent import DRAIN_LIMIT
from embereye_operator.decide.manifests.deployment import (
    ABSENCES,
    LOST_READY_SECONDS,
    READY_SECONDS,
    build_deployment,
)
from embereye_operator.decide.manifests.disruption_budget import build_disruption_budget

from ...fakes import SETTINGS, World
from ...test_reconcile import condition, fleet_of, record
from ..manifests.test_children import fleet
from ..placement.test_handoff import annotations


def node(*taints: str, cordoned: bool = False, ready: str = "True") -> Any:
    """A node with taints such as `key=value:Effect`."""
    entries = []
    for text in taints:
        key, _, effect = text.rpartition(":")
        name, _, value = key.partition("=")
        entries.append({"key": name, "effect": effect} | ({"value": value} if value else {}))
    return {
        "metadata": {"name": "node-1"},
        "spec": {"taints": entries} | ({"unschedulable": True} if cordoned else {}),
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(*tolerations: dict[str, Any], uid: str = "uid-1", created: str = "", going: bool = False) -> Any:
    metadata = {"name": "p", "namespace": "site", "uid": uid, "creationTimestamp": created}
    if going:
        metadata["deletionTimestamp"] = "now"
    return {"metadata": metadata, "spec": {"tolerations": [*ABSENCES, *tolerations]}}


EVERYTHING = {"operator": "Exists"}
LEAVES = Displaced("node-1", "uid-1")
COMES_BACK = Displaced("node-1", "uid-1", comes_back=True)
IS_LOST = Displaced("node-1", "uid-1", lost=True)


@pytest.mark.parametrize(
    ("manifest", "tolerations", "expected"),
    [
        (node(), [], None),
        (node(cordoned=True), [], LEAVES),
        (node("ToBeDeletedByClusterAutoscaler=1700000000:NoSchedule"), [], LEAVES),
        (node("DeletionCandidateOfClusterAutoscaler=1700000000:PreferNoSchedule"), [], None),
        (node("karpenter.sh/disrupted:NoSchedule"), [], LEAVES),
        (node("karpenter.sh/disruption=disrupting:NoSchedule"), [], LEAVES),
        (node("dedicated=others:NoSchedule"), [], LEAVES),
        (node("dedicated=others:NoSchedule"), [{"key": "dedicated", "operator": "Exists"}], None),
        (node("dedicated=others:NoSchedule"), [{"key": "dedicated", "operator": "Equal", "value": "others"}], None),
        (node("dedicated=others:NoSchedule"), [{"key": "dedicated", "value": "ours"}], LEAVES),
        (node("dedicated=others:NoExecute"), [{"key": "dedicated", "value": "others", "effect": "NoSchedule"}], LEAVES),
        (node("dedicated:NoExecute"), [{"key": "dedicated", "operator": "Exists", "tolerationSeconds": 60}], LEAVES),
        (node("node.kubernetes.io/memory-pressure:NoSchedule"), [], None),
        (node("node.kubernetes.io/not-ready:NoExecute", ready="False"), [], None),
        (node("dedicated=others:NoSchedule"), [EVERYTHING], None),
        (node(cordoned=True), [EVERYTHING], COMES_BACK),
        (node("ToBeDeletedByClusterAutoscaler=1:NoSchedule"), [EVERYTHING], COMES_BACK),
        (node("node.kubernetes.io/unreachable:NoExecute", ready="Unknown"), [], IS_LOST),
        (node("node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"), [], IS_LOST),
    ],
)  # fmt: skip
def test_a_pod_leaves_a_node_with_an_untolerated_taint(manifest: Any, tolerations: Any, expected: Any) -> None:
    assert displaced(read_node(manifest), pod(*tolerations)) == expected


def test_a_node_is_lost_after_a_while_without_a_heartbeat() -> None:
    heartbeats = Heartbeats()
    assert not heartbeats.is_stale("a", "10:00:00", 0.0)
    assert not heartbeats.is_stale("a", "10:00:00", STALE - 1)
    assert not heartbeats.is_stale("b", "10:00:00", STALE), "each node separately"
    assert heartbeats.is_stale("a", "10:00:00", STALE)
    assert not heartbeats.is_stale("a", "10:00:10", STALE + 1)


def test_unobserved_time_is_not_silence() -> None:
    heartbeats = Heartbeats()
    heartbeats.is_stale("a", "10:00:00", 0.0)
    assert not heartbeats.is_stale("a", "10:00:00", 10 * STALE)


def test_the_newest_live_pod_of_a_shard_counts() -> None:
    pods = [pod(uid="b", created="2"), pod(uid="a", created="1"), pod(uid="c", created="3", going=True)]
    assert [pod["metadata"]["uid"] for pod in newest(pods)] == ["a", "b"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_pod_is_ignored(phase: str) -> None:
    ended = {**pod(uid="a", created="1"), "status": {"phase": phase}}
    runs = {**pod(uid="b", created="2"), "status": {"phase": "Running"}}
    assert newest([ended, runs]) == [runs]


def test_the_only_shard_is_lost_with_its_node() -> None:
    memory = FleetMemory()
    memory.note_statuses({"x-0": None}, 0)
    assert memory.lost_shards(["x-0"], 2 * LOST) == set(), "the operator may be cut off"
    assert memory.lost_shards(["x-0"], 2 * LOST, dead={"x-0"}) == {"x-0"}
    memory.note_statuses({"x-0": None, "x-1": None, "x-2": None}, 0)
    shards = ["x-0", "x-1", "x-2"]
    assert memory.lost_shards(shards, 2 * LOST, dead={"x-0"}) == {"x-0"}, "the others may only be unreachable"


def test_an_operators_own_absence_is_not_a_shards_silence() -> None:
    memory, shards = FleetMemory(), ["x-0", "x-1", "x-2"]
    unheard = {"x-0": ShardStatus(), "x-1": ShardStatus(), "x-2": None}
    memory.note_statuses(unheard, SECOND)  # its answer was cut off
    memory.note_statuses(unheard, 61 * SECOND)  # it is busy after a stall
    assert memory.lost_shards(shards, 61 * SECOND) == set()
    memory.note_statuses(unheard, 63 * SECOND)
    assert memory.lost_shards(shards, 63 * SECOND) == {"x-2"}


def test_an_operator_with_slow_passes_still_loses_a_shard() -> None:
    memory, shards = FleetMemory(), ["x-0", "x-1", "x-2"]
    for second in (1, 11, 21):
        memory.note_statuses({"x-0": ShardStatus(), "x-1": ShardStatus(), "x-2": None}, second * SECOND)
    assert memory.lost_shards(shards, 21 * SECOND) == {"x-2"}


def test_an_operators_own_stall_does_not_count_as_waiting() -> None:
    memory = FleetMemory()
    memory.note_statuses({}, SECOND)
    memory.note_intent(SECOND, {"s-01": SECOND})
    memory.note_statuses({}, 91 * SECOND)
    assert memory.waiting["s-01"] >= 85 * SECOND
    assert 91 * SECOND - memory.uneven < UNEVEN
    for now in range(93, 151, 2):
        memory.note_statuses({}, now * SECOND)
    assert memory.waiting["s-01"] <= 91 * SECOND
    assert 150 * SECOND - memory.uneven >= UNEVEN


async def test_the_only_shard_starts_elsewhere_when_its_node_is_lost() -> None:
    world = World(fleet_of(4))
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].reachable = False
    world.runtime.on_emptied_nodes = {"hall-sensors-0": IS_LOST}
    await world.step()
    outcome = await world.step()
    assert annotations(world, "hall-sensors-0") == {"embereye.dev/replaces": "uid-1"}
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "NodeLost")
    assert "hall-sensors-0 was on node-1" in message


async def test_the_pod_on_a_lost_node_is_fenced_by_one_new_epoch_and_removed_soon() -> None:
    world = World(fleet_of(4))
    await world.run_until_complete()
    epoch, spec = record(world)["epoch"], world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]
    assert spec["minReadySeconds"] == READY_SECONDS
    world.runtime.shards["hall-sensors-0"].reachable = False
    world.runtime.on_emptied_nodes = {"hall-sensors-0": IS_LOST}
    for _ in range(4):
        await world.step()
        assert record(world)["epoch"] == epoch + 1
    assert world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["minReadySeconds"] == LOST_READY_SECONDS
    world.runtime.shards["hall-sensors-0"].reachable = True
    world.runtime.on_emptied_nodes = {}
    await world.run_until_complete()
    assert world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["minReadySeconds"] == READY_SECONDS
    assert world.runtime.shards["hall-sensors-0"].assignment.epoch == record(world)["epoch"] == epoch + 1


async def test_a_paused_fleet_leaves_a_node_by_a_roll_that_changes_only_the_node() -> None:
    world = World(fleet_of(4, shards=2))
    await world.run_until_complete()
    world.manifest = fleet_of(4, shards=2, paused=True, template={"priorityClassName": "high"})
    world.runtime.log.clear()
    await world.step()
    world.runtime.on_emptied_nodes = {"hall-sensors-1": LEAVES}
    for _ in range(3):
        await world.step()
    changes = [line for line in world.runtime.log if line != "status"]
    assert changes == ["roll hall-sensors-1"], "once"
    assert annotations(world, "hall-sensors-1") == {"embereye.dev/replaces": "uid-1"}
    assert "priorityClassName" not in world.runtime.objects["Deployment", "hall-sensors-1"]["spec"]["template"]["spec"]


async def test_a_stuck_drain_of_a_paused_fleet_is_reported() -> None:
    world = World(fleet_of(4, paused=False))
    await world.run_until_complete()
    world.manifest = fleet_of(4, paused=True)
    world.runtime.on_emptied_nodes = {"hall-sensors-0": LEAVES}
    for _ in range(DRAIN_LIMIT // (2 * SECOND) + 2):
        outcome = await world.step()
    assert condition(outcome.status, "Degraded")[1] == "DrainStuck"


@pytest.mark.parametrize("paused", [False, True])
async def test_a_shard_that_tolerates_the_taint_is_evicted_instead_of_rolled(*, paused: bool) -> None:
    world = World(fleet_of(4))
    await world.run_until_complete()
    world.manifest = fleet_of(4, paused=paused)
    budget = "PodDisruptionBudget", "hall-sensors"
    world.runtime.on_emptied_nodes = {"hall-sensors-0": COMES_BACK}
    await world.step()
    assert world.runtime.objects[budget]["spec"]["maxUnavailable"] == 1
    assert annotations(world, "hall-sensors-0") is None
    world.runtime.on_emptied_nodes = {}
    await world.step()
    assert world.runtime.objects[budget]["spec"]["maxUnavailable"] == 0


async def test_the_budget_belongs_to_the_operators_job_if_it_exists() -> None:
    world = World(fleet_of(4))
    world.runtime.budgets_go_with = {"apiVersion": "batch/v1", "kind": "Job", "name": "budgets", "uid": "7"}
    await world.run_until_complete()
    objects = world.runtime.objects
    owners = {kind: manifest["metadata"]["ownerReferences"] for (kind, _), manifest in objects.items()}
    assert owners.pop("PodDisruptionBudget") == [world.runtime.budgets_go_with]
    assert {owner["kind"] for references in owners.values() for owner in references} == {"SensorFleet"}


def test_without_the_operators_job_the_budget_belongs_to_its_fleet() -> None:
    (owner,) = build_disruption_budget(fleet(), evictable=False)["metadata"]["ownerReferences"]
    assert owner["kind"] == "SensorFleet"


def test_a_users_toleration_of_an_absent_node_is_respected() -> None:
    toleration = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 600}
    template = {"tolerations": [toleration]}
    built = build_deployment(fleet(template=template), "hall-sensors-0", SETTINGS)["spec"]["template"]["spec"]
    assert built["tolerations"] == [toleration, ABSENCES[0]]
    built = build_deployment(fleet(template={"tolerations": [EVERYTHING]}), "x", SETTINGS)["spec"]["template"]["spec"]
    assert built["tolerations"] == [EVERYTHING]


@pytest.mark.parametrize("key", [{}, {"key": "node.kubernetes.io/unreachable"}])
def test_tolerating_unschedulable_nodes_says_nothing_about_lost_ones(key: dict[str, str]) -> None:
    toleration = {**key, "operator": "Exists", "effect": "NoSchedule"}
    built = build_deployment(fleet(template={"tolerations": [toleration]}), "x", SETTINGS)["spec"]["template"]["spec"]
    assert built["tolerations"] == [toleration, *ABSENCES]
