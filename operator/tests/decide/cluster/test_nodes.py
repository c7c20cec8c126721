"""Which nodes shards have to leave, and what becomes of the shards."""

from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.decide.cluster.nodes import STALE, Displaced, Heartbeats, displaced, newest, read_node
from embereye_operator.decide.fleet_memory import LOST, FleetMemory
from embereye_operator.decide.intent import DRAIN_LIMIT
from embereye_operator.decide.manifests.deployment import ABSENCES, build_deployment
from embereye_operator.decide.manifests.disruption_budget import build_disruption_budget

from ...fakes import SETTINGS, World
from ...test_reconcile import condition, fleet_of
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


def pod(*tolerations: dict[str, Any], uid: str = "uid-1", made: str = "", going: bool = False) -> Any:
    metadata = {"name": "p", "namespace": "site", "uid": uid, "creationTimestamp": made}
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
def test_a_pod_leaves_a_node_whose_taints_it_does_not_bear(manifest: Any, tolerations: Any, expected: Any) -> None:
    assert displaced(read_node(manifest), pod(*tolerations)) == expected


def test_a_node_is_lost_when_its_kubelet_has_not_renewed_its_lease_for_a_while() -> None:
    heartbeats = Heartbeats()
    assert not heartbeats.is_stale("a", "10:00:00", 0.0)
    assert not heartbeats.is_stale("a", "10:00:00", STALE - 1)
    assert not heartbeats.is_stale("b", "10:00:00", STALE), "each node by itself"
    assert heartbeats.is_stale("a", "10:00:00", STALE)
    assert not heartbeats.is_stale("a", "10:00:10", STALE + 1)


def test_what_nobody_looked_at_is_not_taken_for_silence() -> None:
    heartbeats = Heartbeats()
    heartbeats.is_stale("a", "10:00:00", 0.0)
    assert not heartbeats.is_stale("a", "10:00:00", 10 * STALE)


def test_the_newest_of_a_shards_pods_counts_and_none_that_ends() -> None:
    pods = [pod(uid="b", made="2"), pod(uid="a", made="1"), pod(uid="c", made="3", going=True)]
    assert [each["metadata"]["uid"] for each in newest(pods)] == ["a", "b"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_as_one_that_was_evicted_is_no_shards_any_more(phase: str) -> None:
    ended = {**pod(uid="a", made="1"), "status": {"phase": phase}}
    runs = {**pod(uid="b", made="2"), "status": {"phase": "Running"}}
    assert newest([ended, runs]) == [runs]


def test_the_only_shard_counts_as_lost_when_its_node_is() -> None:
    memory = FleetMemory()
    memory.note_statuses({"x-0": None}, 0)
    assert memory.lost_shards(["x-0"], 2 * LOST) == set(), "it may be the operator that is cut off"
    assert memory.lost_shards(["x-0"], 2 * LOST, dead={"x-0"}) == {"x-0"}
    memory.note_statuses({"x-0": None, "x-1": None, "x-2": None}, 0)
    shards = ["x-0", "x-1", "x-2"]
    assert memory.lost_shards(shards, 2 * LOST, dead={"x-0"}) == {"x-0"}, "the others may still be out of reach only"


def test_an_operator_that_stood_still_does_not_take_its_own_absence_for_a_shards_silence() -> None:
    memory, shards = FleetMemory(), ["x-0", "x-1", "x-2"]
    unheard = {"x-0": ShardStatus(), "x-1": ShardStatus(), "x-2": None}
    memory.note_statuses(unheard, SECOND)  # its answer was cut off
    memory.note_statuses(unheard, 61 * SECOND)  # it has much to do, as it stood still as well
    assert memory.lost_shards(shards, 61 * SECOND) == set()
    memory.note_statuses(unheard, 63 * SECOND)
    assert memory.lost_shards(shards, 63 * SECOND) == {"x-2"}


def test_an_operator_whose_passes_all_take_long_still_loses_a_shard() -> None:
    memory, shards = FleetMemory(), ["x-0", "x-1", "x-2"]
    for second in (1, 11, 21):
        memory.note_statuses({"x-0": ShardStatus(), "x-1": ShardStatus(), "x-2": None}, second * SECOND)
    assert memory.lost_shards(shards, 21 * SECOND) == {"x-2"}


def test_time_in_which_an_operator_stood_still_is_none_that_devices_are_waited_for_or_loads_differ() -> None:
    memory = FleetMemory()
    memory.note_statuses({}, SECOND)
    memory.waiting_since(["s-01"], SECOND)
    assert not memory.is_uneven_for_long(uneven=True, now=SECOND)
    memory.note_statuses({}, 91 * SECOND)
    assert memory.waiting_since(["s-01"], 91 * SECOND)["s-01"] >= 85 * SECOND
    assert not memory.is_uneven_for_long(uneven=True, now=91 * SECOND)
    for now in range(93, 151, 2):
        memory.note_statuses({}, now * SECOND)
    assert memory.waiting_since(["s-01"], 150 * SECOND)["s-01"] <= 91 * SECOND
    assert memory.is_uneven_for_long(uneven=True, now=150 * SECOND)


async def test_the_only_shard_of_a_fleet_is_started_elsewhere_when_its_node_is_lost() -> None:
    world = World(fleet_of(4))
    await world.settle()
    world.runtime.shards["hall-sensors-0"].reachable = False
    world.runtime.on_emptied_nodes = {"hall-sensors-0": IS_LOST}
    await world.step()
    outcome = await world.step()
    assert annotations(world, "hall-sensors-0") == {"embereye.dev/replaces": "uid-1"}
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "NodeLost")
    assert "hall-sensors-0 was on node-1" in message


async def test_a_paused_fleet_leaves_a_node_by_a_roll_that_changes_nothing_else() -> None:
    world = World(fleet_of(4, shards=2))
    await world.settle()
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


async def test_of_a_paused_fleet_a_drain_that_is_stuck_is_told() -> None:
    world = World(fleet_of(4, paused=False))
    await world.settle()
    world.manifest = fleet_of(4, paused=True)
    world.runtime.on_emptied_nodes = {"hall-sensors-0": LEAVES}
    for _ in range(DRAIN_LIMIT // (2 * SECOND) + 2):
        outcome = await world.step()
    assert condition(outcome.status, "Degraded")[1] == "DrainStuck"


@pytest.mark.parametrize("paused", [False, True])
async def test_a_shard_that_would_come_back_to_the_same_node_is_evicted_not_rolled(*, paused: bool) -> None:
    world = World(fleet_of(4))
    await world.settle()
    world.manifest = fleet_of(4, paused=paused)
    budget = "PodDisruptionBudget", "hall-sensors"
    world.runtime.on_emptied_nodes = {"hall-sensors-0": COMES_BACK}
    await world.step()
    assert world.runtime.objects[budget]["spec"]["maxUnavailable"] == 1
    assert annotations(world, "hall-sensors-0") is None
    world.runtime.on_emptied_nodes = {}
    await world.step()
    assert world.runtime.objects[budget]["spec"]["maxUnavailable"] == 0


async def test_the_budget_goes_with_the_operator_where_there_is_something_to_go_with() -> None:
    world = World(fleet_of(4))
    world.runtime.budgets_go_with = {"apiVersion": "batch/v1", "kind": "Job", "name": "budgets", "uid": "7"}
    await world.settle()
    objects = world.runtime.objects
    owners = {kind: manifest["metadata"]["ownerReferences"] for (kind, _), manifest in objects.items()}
    assert owners.pop("PodDisruptionBudget") == [world.runtime.budgets_go_with]
    assert {owner["kind"] for references in owners.values() for owner in references} == {"SensorFleet"}


def test_without_anything_to_go_with_the_budget_is_its_fleets() -> None:
    (owner,) = build_disruption_budget(fleet(), evictable=False)["metadata"]["ownerReferences"]
    assert owner["kind"] == "SensorFleet"


def test_how_long_a_user_bears_a_nodes_absence_is_the_users() -> None:
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 600}
    template = {"tolerations": [own]}
    built = build_deployment(fleet(template=template), "hall-sensors-0", SETTINGS)["spec"]["template"]["spec"]
    assert built["tolerations"] == [own, ABSENCES[0]]
    built = build_deployment(fleet(template={"tolerations": [EVERYTHING]}), "x", SETTINGS)["spec"]["template"]["spec"]
    assert built["tolerations"] == [EVERYTHING]


@pytest.mark.parametrize("key", [{}, {"key": "node.kubernetes.io/unreachable"}])
def test_who_bears_that_nothing_is_scheduled_says_nothing_of_lost_nodes(key: dict[str, str]) -> None:
    own = {**key, "operator": "Exists", "effect": "NoSchedule"}
    built = build_deployment(fleet(template={"tolerations": [own]}), "x", SETTINGS)["spec"]["template"]["spec"]
    assert built["tolerations"] == [own, *ABSENCES]
