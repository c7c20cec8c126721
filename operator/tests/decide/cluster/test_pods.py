"""The explanation of shards whose pods do not run."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from embereye_operator.api.names import LABEL_FLEET, LABEL_SHARD
from embereye_operator.decide.cluster.pods import FLEET, why_pod_waits, why_refused
from embereye_operator.runtime.kubernetes.nodes import Nodes

from ...fakes import World
from ...test_reconcile import condition, fleet_of

SCC = 'pods "hall-0-" is forbidden: unable to validate against any security context constraint'
REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": SCC}


def pod(shard: str = "hall-sensors-0", created: str = "2026-01-01T00:00:00Z", **status: Any) -> Any:
    labels = {LABEL_FLEET: "SensorFleet.hall", LABEL_SHARD: shard}
    metadata = {
        "name": f"{shard}-x",
        "namespace": "site",
        "uid": created,
        "creationTimestamp": created,
        "labels": labels,
    }
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def waiting(reason: str, last: Any = None, **more: Any) -> Any:
    state = {"image": "embereye:9", "state": {"waiting": {"reason": reason, **more}}, "lastState": last or {}}
    return pod(phase="Pending", containerStatuses=[state])


OUT_OF_MEMORY = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
ENDED = {"terminated": {"reason": "Error", "exitCode": 2}}
UNPLACED = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient memory."}]


@pytest.mark.parametrize(
    ("pod_", "words"),
    [
        (pod(phase="Running"), []),
        (pod(phase="Pending"), ["site/hall-sensors-0-x is being created on node node-1"]),
        (pod(phase="Pending", conditions=UNPLACED), ["cannot be placed: 0/3 nodes", "Insufficient memory"]),
        (waiting("ImagePullBackOff"), ["embereye:9", "ImagePullBackOff", "spec.image"]),
        (waiting("CrashLoopBackOff", OUT_OF_MEMORY), ["crashes repeatedly (OOMKilled, exit code 137)", "--previous"]),
        (waiting("CrashLoopBackOff", ENDED), ["repeatedly (exit code 2)"]),
        (waiting("CrashLoopBackOff"), ["repeatedly: kubectl"]),
        (waiting("CreateContainerConfigError", message='secret "a" not found'), ["cannot be started: secret"]),
    ],
)
def test_the_reason_of_a_waiting_pod_comes_with_a_remedy(pod_: Any, words: list[str]) -> None:
    sentence = why_pod_waits(pod_, FLEET)
    assert bool(sentence) == bool(words)
    for word in words:
        assert word in sentence


def test_a_refused_pod_is_explained_by_its_deployment() -> None:
    assert SCC in why_refused({"status": {"conditions": [REFUSED]}})
    assert not why_refused({"status": {"conditions": [{**REFUSED, "status": "False"}]}})
    assert not why_refused({})


async def test_a_fleet_reports_why_its_shard_does_not_run() -> None:
    world = World(fleet_of(shards=2))
    for _ in range(4):
        await world.step()
    world.runtime.shards["hall-sensors-1"].reachable = False
    unplaced = "its pod site/x cannot be placed: 0/3 nodes are available"

    async def ready() -> str:
        return condition((await world.step()).status, "Ready")[2]

    assert await ready() == "hall-sensors-1 cannot be reached"
    world.runtime.waiting_pods = {"hall-sensors-1": unplaced}
    assert await ready() == f"hall-sensors-1 cannot be reached: {unplaced}"
    world.runtime.objects["Deployment", "hall-sensors-1"]["status"] = {"conditions": [REFUSED]}
    assert await ready() == f"hall-sensors-1 cannot be reached: its pod is refused: {SCC}"
    world.runtime.shards["hall-sensors-1"].reachable = True
    assert await ready() == "2 of 2 shards are ready", "the old reason is dropped"


async def test_long_reasons_of_waiting_shards_fit_into_a_status() -> None:
    world = World(fleet_of(40, shards=6))
    for _ in range(6):
        await world.step()
    denied = 'admission webhook "policy.example" denied the request: ' + "every image has to be signed; " * 100
    for shard in world.runtime.shards.values():
        shard.reachable = False
    world.runtime.waiting_pods = dict.fromkeys(world.runtime.shards, f"its pod is refused: {denied}")
    status = (await world.step()).status
    for type_ in ("Ready", "Progressing", "Covered"):
        assert "hall-sensors-0 cannot be reached: its pod is refused" in condition(status, type_)[2]


class Api:
    """An API server's pods and nodes."""

    def __init__(self, *pods: Any) -> None:
        self.pods = list(pods)

    def list(self, kind: Any, *, labels: Any = None, **_: Any) -> AsyncIterator[Any]:
        async def matching() -> AsyncIterator[Any]:
            for pod_ in self.pods:
                if (labels or {}).get(LABEL_SHARD) == pod_["metadata"]["labels"][LABEL_SHARD]:
                    yield pod_

        return matching()


async def test_the_newest_pods_of_silent_shards_are_checked_until_they_answer() -> None:
    old, new = waiting("CrashLoopBackOff"), pod(created="2026-01-02T00:00:00Z", phase="Pending", conditions=UNPLACED)
    nodes = Nodes(Api(new, old))  # type: ignore[arg-type]
    nodes._synced = True
    fleet = ("site", "SensorFleet.hall")
    assert await nodes.find_displaced({("site", "hall-sensors-0")}) == {fleet}
    assert "0/3 nodes" in nodes.waiting[fleet]["hall-sensors-0"]
    assert await nodes.find_displaced({("site", "hall-sensors-0")}) == set(), "that is no news"
    assert await nodes.find_displaced(set()) == {fleet}
    assert not nodes.waiting
