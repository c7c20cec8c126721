"""What is said about shards whose pods do not run."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from embereye_operator.decide.cluster.pods import FLEET, why_pod_waits, why_refused
from embereye_operator.decide.manifests.names import LABEL_FLEET, LABEL_SHARD
from embereye_operator.runtime.kubernetes.nodes import Nodes

from ...fakes import World
from ...test_reconcile import condition, fleet_of

SCC = 'pods "hall-0-" is forbidden: unable to validate against any security context constraint'
REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": SCC}


def pod(shard: str = "hall-sensors-0", made: str = "2026-01-01T00:00:00Z", **status: Any) -> Any:
    labels = {LABEL_FLEET: "SensorFleet.hall", LABEL_SHARD: shard}
    metadata = {"name": f"{shard}-x", "namespace": "site", "uid": made, "creationTimestamp": made, "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def waits(reason: str, last: Any = None, **more: Any) -> Any:
    state = {"image": "embereye:9", "state": {"waiting": {"reason": reason, **more}}, "lastState": last or {}}
    return pod(phase="Pending", containerStatuses=[state])


OUT_OF_MEMORY = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
ENDED = {"terminated": {"reason": "Error", "exitCode": 2}}
UNPLACED = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient memory."}]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pod(phase="Running"), []),
        (pod(phase="Pending"), ["site/hall-sensors-0-x is being created on node node-1"]),
        (pod(phase="Pending", conditions=UNPLACED), ["cannot be placed: 0/3 nodes", "Insufficient memory"]),
        (waits("ImagePullBackOff"), ["embereye:9", "ImagePullBackOff", "spec.image"]),
        (waits("CrashLoopBackOff", OUT_OF_MEMORY), ["crashes repeatedly (OOMKilled, exit code 137)", "--previous"]),
        (waits("CrashLoopBackOff", ENDED), ["again (exit code 2)"]),
        (waits("CrashLoopBackOff"), ["again and again: kubectl"]),
        (waits("CreateContainerConfigError", message='secret "a" not found'), ["cannot be started: secret"]),
    ],
)
def test_why_a_pod_does_not_run_is_said_with_the_remedy(found: Any, said: list[str]) -> None:
    sentence = why_pod_waits(found, FLEET)
    assert bool(sentence) == bool(said)
    for words in said:
        assert words in sentence


def test_a_pod_that_is_not_even_made_is_told_by_its_deployment() -> None:
    assert SCC in why_refused({"status": {"conditions": [REFUSED]}})
    assert not why_refused({"status": {"conditions": [{**REFUSED, "status": "False"}]}})
    assert not why_refused({})


async def test_a_fleet_says_why_a_shard_of_its_does_not_run() -> None:
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
    assert await ready() == "2 of 2 shards are ready", "what was known is of no interest any more"


async def test_a_status_is_written_however_much_is_said_of_shards_that_do_not_run() -> None:
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
        async def found() -> AsyncIterator[Any]:
            for one in self.pods:
                if (labels or {}).get(LABEL_SHARD) == one["metadata"]["labels"][LABEL_SHARD]:
                    yield one

        return found()


async def test_of_silent_shards_the_newest_pods_are_looked_at_until_they_answer() -> None:
    old, new = waits("CrashLoopBackOff"), pod(made="2026-01-02T00:00:00Z", phase="Pending", conditions=UNPLACED)
    nodes = Nodes(Api(new, old))  # type: ignore[arg-type]
    nodes._synced = True
    fleet = ("site", "SensorFleet.hall")
    assert await nodes.find_displaced({("site", "hall-sensors-0")}) == {fleet}
    assert "0/3 nodes" in nodes.waiting[fleet]["hall-sensors-0"]
    assert await nodes.find_displaced({("site", "hall-sensors-0")}) == set(), "that is no news"
    assert await nodes.find_displaced(set()) == {fleet}
    assert not nodes.waiting
