"""Roll-outs: one shard of a fleet at a time, one fleet first, and a bad image stops there."""

import asyncio
import copy
import time
from dataclasses import replace
from typing import Any

import pytest

from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_cli.plugin import rollout_text, undone
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.schema import from_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.manifests.deployment import ABSENCES
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.rollout.rollout import ANNOTATION_ROLLOUT, LIMIT, image_of, target_image
from embereye_operator.decide.rollout.turns import GRACE, Turns
from embereye_operator.reconcile.reconcile import reconcile

from .api.test_schema import manifest
from .fakes import SETTINGS, World
from .runtime.test_kubernetes import Bench, bench
from .test_reconcile import fleet_of

__all__ = ["bench"]

OLD, NEW = SETTINGS.image, "embereye:new"


class Kubelet(World):
    """A fleet whose Deployments roll as in a cluster: a new pod becomes ready when `start` says so."""

    def __init__(self, document: Any, settings: Settings = SETTINGS) -> None:
        super().__init__(document)
        self.settings = settings
        self._seen: dict[str, str] = {}

    async def step(self, seconds: int = 2) -> Any:
        self.now += seconds * SECOND
        outcome = await reconcile(self.fleet, self.runtime.parts, lambda: self.now, self.settings, self.memory)
        for (kind, name), child in self.runtime.objects.items():
            image = image_of(child) if kind == "Deployment" else ""
            if image and self._seen.setdefault(name, image) != image:
                self._seen[name] = image
                child["status"] = {"availableReplicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1}
        return outcome

    def start(self) -> None:
        """Make every new pod ready, and delete the old ones."""
        for (kind, _), child in self.runtime.objects.items():
            if kind == "Deployment":
                child["status"] = {"availableReplicas": 1, "updatedReplicas": 1}

    def images(self) -> list[str]:
        """Return the images by shard."""
        deployments = sorted(
            (name, child) for (kind, name), child in self.runtime.objects.items() if kind == "Deployment"
        )
        return [image_of(child) for _, child in deployments]


async def running(shards: int = 3, name: str = "hall", **spec: Any) -> Kubelet:
    document = fleet_of(shards=shards, **spec)
    document["metadata"] = {**document["metadata"], "name": name}
    world = Kubelet(document)
    for _ in range(6):
        await world.step()
    return world


async def test_a_new_image_goes_to_one_shard_after_another() -> None:
    world = await running()
    world.settings = replace(SETTINGS, image=NEW)
    for updated in (1, 2, 3):
        for _ in range(3):
            outcome = await world.step()
            assert world.images().count(NEW) == updated, "no other shard while its pod is starting"
        world.start()
        if updated == 1:
            first = world.runtime.shards["hall-sensors-0"]
            first.dark = {device.id: "never heard" for device in first.assignment.devices}
            await world.step()
            assert world.images().count(NEW) == 1, "its devices are not watched yet"
            assert "does not watch" in outcome.status.rollout.why or outcome.status.rollout.pending
            first.dark = {}
    outcome = await world.step()
    assert outcome.status.rollout.pending == 0
    assert outcome.status.condition("Progressing").status == "False"
    assert outcome.status.rollout.from_ == OLD


async def test_devices_that_were_already_dark_stop_nothing() -> None:
    world = await running(shards=2)
    shard = world.runtime.shards["hall-sensors-0"]
    shard.dark = {shard.assignment.devices[0].id: "never heard"}
    await world.step()
    world.settings = replace(SETTINGS, image=NEW)
    for _ in range(4):
        await world.step()
        world.start()
    assert world.images() == [NEW, NEW]


async def test_a_bad_image_is_reported_and_reverted_at_once() -> None:
    world = await running(image=OLD)
    world.manifest["spec"]["image"] = "embereye:bad"
    for _ in range(3):
        await world.step()
    world.runtime.waiting_pods = {"hall-sensors-0": "its pod waits for image embereye:bad (ErrImagePull)"}
    outcome = await world.step()
    waits = "hall-sensors-0 is not ready: its pod waits for image embereye:bad (ErrImagePull)"
    assert waits in outcome.status.condition("Progressing").message
    world.runtime.waiting_pods = {}
    outcome = await world.step(LIMIT // SECOND + 1)
    assert world.images() == ["embereye:bad", OLD, OLD]
    degraded = outcome.status.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "RolloutFailed")
    assert (
        "hall-sensors-0 is not ready with embereye:bad: 2 of its shards stay on the previous version"
        in degraded.message
    )
    assert outcome.status.condition("Covered").status == "True"
    assert "embereye:bad: 1 of 3 shards" in rollout_text(world.fleet)
    world.manifest["spec"] |= undone(world.fleet)
    await world.step()
    assert world.images() == [OLD, OLD, OLD]
    world.start()
    outcome = await world.step()
    assert outcome.status.condition("Degraded").status == "False"


async def test_a_failure_seen_by_kubernetes_is_reported_without_further_waiting() -> None:
    world = await running(shards=2)
    world.settings = replace(SETTINGS, image=NEW)
    await world.step()
    failed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    world.runtime.objects["Deployment", "hall-sensors-0"]["status"]["conditions"] = [failed]
    outcome = await world.step()
    assert outcome.status.condition("Degraded").reason == "RolloutFailed"


async def test_a_shard_created_during_a_rollout_runs_the_proven_image() -> None:
    world = await running(shards=2)
    world.settings = replace(SETTINGS, image=NEW)
    await world.step()
    world.manifest["spec"]["shards"] = 3
    await world.step()
    assert world.images() == [NEW, OLD, OLD]


async def test_a_paused_rollout_stops_and_continues() -> None:
    world = await running(shards=2)
    world.settings = replace(SETTINGS, image=NEW)
    await world.step()
    world.manifest["metadata"]["annotations"] = {ANNOTATION_ROLLOUT: "paused"}
    world.start()
    for _ in range(3):
        outcome = await world.step()
    assert world.images() == [NEW, OLD]
    assert outcome.status.condition("Progressing").reason == "RollingOut"
    assert "rollout resume hall" in outcome.status.rollout.why
    world.manifest["metadata"]["annotations"] = {}
    await world.step()
    assert world.images() == [NEW, NEW]


async def test_a_changed_memory_limit_rolls_one_shard_at_a_time_too() -> None:
    world = await running(shards=2)
    world.manifest["spec"]["template"] = {"resources": {"limits": {"memory": "3Gi"}}}
    await world.step()
    limited = ["resources" in child["spec"]["template"]["spec"]["containers"][0]
               and child["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits") == {"memory": "3Gi"}
               for (kind, _), child in sorted(world.runtime.objects.items()) if kind == "Deployment"]  # fmt: skip
    assert limited == [True, False]


@pytest.mark.parametrize(
    ("template", "is_set"),
    [
        ({"priorityClassName": "high"}, lambda pod: "priorityClassName" in pod),
        ({"nodeSelector": {"site": "a"}}, lambda pod: "nodeSelector" in pod),
        ({"tolerations": [{"key": "edge"}]}, lambda pod: "edge" in str(pod["tolerations"])),
        ({"resources": {"limits": {"cpu": "2"}}}, lambda pod: "cpu" in pod["containers"][0]["resources"]["limits"]),
    ],
)
async def test_a_removed_field_rolls_one_shard_at_a_time_too(template: Any, is_set: Any) -> None:
    def saying() -> list[bool]:
        objects = sorted(world.runtime.objects.items())
        return [is_set(child["spec"]["template"]["spec"]) for (kind, _), child in objects if kind == "Deployment"]

    world = await running(shards=3, template=template)
    assert saying() == [True, True, True]
    world.manifest["spec"]["template"] = {}
    for rolled in (1, 2, 3):
        await world.step()
        assert saying().count(False) == rolled, "the next is changed once this one watches again"
        deployment = world.runtime.objects["Deployment", f"hall-sensors-{rolled - 1}"]
        deployment["status"] = {"availableReplicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1}
        await world.step()
        assert saying().count(False) == rolled, "no other shard while its pod is starting"
        world.start()


async def test_a_shard_that_tolerates_every_taint_retains_its_first_pod() -> None:
    def pods() -> dict[str, Any]:
        objects = world.runtime.objects.items()
        return {name: child["spec"]["template"] for (kind, name), child in objects if kind == "Deployment"}

    world = Kubelet(fleet_of(shards=2, template={"tolerations": [{"operator": "Exists"}]}))
    await world.step()
    original = copy.deepcopy(pods())
    for _ in range(3):
        world.start()
        await world.step()
    assert pods() == original


async def test_the_default_toleration_returns_when_the_users_is_removed() -> None:
    world = await running(shards=1, template={"tolerations": [{"operator": "Exists"}]})
    world.manifest["spec"]["template"] = {}
    await world.step()
    pod = world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == list(ABSENCES)


@pytest.mark.apiserver
async def test_on_an_api_server_the_next_shard_changes_once_the_first_is_rolled(bench: Bench, namespace: str) -> None:
    memory, path = FleetMemory(), f"/apis/apps/v1/namespaces/{namespace}/deployments/hall-sensors-"

    async def step(image: str) -> list[str]:
        await bench.runtime.resync()
        fleet = parse_fleet(await asyncio.to_thread(bench.cluster.get, bench.fleet_path))
        await reconcile(fleet, bench.runtime, time.time_ns, replace(SETTINGS, image=image), memory)
        return [image_of(await asyncio.to_thread(bench.cluster.get, f"{path}{index}")) for index in range(2)]

    def roll(index: int) -> None:
        """Report that its pod runs, as the Deployment's controller does."""
        generation = bench.cluster.get(f"{path}{index}")["metadata"]["generation"]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        bench.cluster.merge(f"{path}{index}/status", {"status": {"observedGeneration": generation, **counts}})

    await step(OLD)
    for index in range(2):
        await bench.start(f"hall-sensors-{index}")
        await asyncio.to_thread(roll, index)
    for _ in range(3):
        await step(OLD)
    assert await step(NEW) == [NEW, OLD]
    assert await step(NEW) == [NEW, OLD], "its generation has not been observed"
    await asyncio.to_thread(roll, 0)
    assert await step(NEW) == [NEW, NEW]
    status = from_manifest(FleetStatus, bench.cluster.get(bench.fleet_path)["status"])
    assert (status.rollout.image, status.rollout.from_) == (NEW, OLD)


async def fleets(count: int, turns: Turns) -> list[Kubelet]:
    """Return complete fleets under an operator that knows them, and then gets another image."""
    worlds = [await running(shards=1, name=f"hall-{number}") for number in range(count)]
    for world in worlds:
        world.settings = replace(SETTINGS, image=NEW, turns=turns)
    return worlds


async def turn(worlds: list[Kubelet], seconds: int = 2) -> list[str]:
    for world in worlds:
        await world.step(seconds)
    return [world.images()[0] for world in worlds]


async def test_a_bad_image_leaves_all_fleets_but_the_first_untouched() -> None:
    worlds = await fleets(4, Turns(max_fleets=2))
    assert await turn(worlds) == [OLD] * 4, "the operator checks for roll-outs first"
    assert await turn(worlds, GRACE // SECOND) == [NEW, OLD, OLD, OLD]
    await turn(worlds)
    assert await turn(worlds, LIMIT // SECOND + 1) == [NEW, OLD, OLD, OLD]
    assert await turn(worlds, LIMIT // SECOND + 1) == [NEW, OLD, OLD, OLD]
    status: FleetStatus = (await worlds[3].step()).status
    assert status.rollout
    assert "halted: default/sensors/hall-0: hall-0-sensors-0 is not ready with embereye:new" in status.rollout.why
    assert status.condition("Covered").status == "True"


async def test_after_the_first_fleet_several_roll_at_once_with_a_delay() -> None:
    worlds = await fleets(4, Turns(max_fleets=2, delay=60 * SECOND))
    await turn(worlds)
    await turn(worlds, GRACE // SECOND)
    worlds[0].start()
    assert await turn(worlds) == [NEW, OLD, OLD, OLD], "it has a minute to prove itself"
    assert await turn(worlds, 61) == [NEW, NEW, NEW, OLD]
    worlds[1].start()
    worlds[2].start()
    await turn(worlds)
    assert await turn(worlds, 61) == [NEW] * 4


async def test_a_new_operator_continues_where_the_other_was() -> None:
    worlds = await fleets(3, Turns(max_fleets=1))
    await turn(worlds)
    await turn(worlds, GRACE // SECOND)
    fresh = Turns(max_fleets=1)
    for world in worlds:
        world.settings = replace(SETTINGS, image=NEW, turns=fresh)
    assert await turn(worlds[::-1]) == [OLD, OLD, NEW]
    assert await turn(worlds[::-1], GRACE // SECOND) == [OLD, OLD, NEW], "the fleet in progress is first"


class Broken(Kubelet):
    """A fleet whose pods never run, as without room on any node."""

    async def step(self, seconds: int = 2) -> Any:
        outcome = await super().step(seconds)
        for name, shard in self.runtime.shards.items():
            shard.reachable = False
            self.runtime.objects["Deployment", name]["status"] = {"updatedReplicas": 1, "unavailableReplicas": 1}
        return outcome


async def test_a_fleet_that_did_not_run_before_halts_no_other_and_proves_nothing() -> None:
    turns = Turns(max_fleets=2)
    worlds = await fleets(4, turns)
    broken = Broken(worlds[0].manifest, worlds[0].settings)
    broken.runtime, broken.now = worlds[0].runtime, worlds[0].now
    for shard in broken.runtime.shards:
        broken.runtime.objects["Deployment", shard]["status"] = {"unavailableReplicas": 1}
    worlds[0] = broken
    assert await turn(worlds) == [NEW, OLD, OLD, OLD], "a fleet that does not run has nothing to lose"
    assert await turn(worlds, GRACE // SECOND) == [NEW, NEW, OLD, OLD], "a fleet that does not run proves nothing"
    worlds[1].start()
    for seconds in (2, LIMIT // SECOND + 1, 2):
        await turn(worlds, seconds)
    assert worlds[2].images() == worlds[3].images() == [NEW]
    status: FleetStatus = (await broken.step()).status
    reasons = {condition.type: (condition.status, condition.reason) for condition in status.conditions}
    assert reasons["Ready"][0] == "False"
    assert reasons["Degraded"] != ("True", "RolloutFailed")


async def test_a_shard_that_did_not_run_before_delays_no_other_of_its_fleet() -> None:
    world = await running(shards=3)
    pending = world.runtime.objects["Deployment", "hall-sensors-1"]
    pending["status"] = {"unavailableReplicas": 1}
    world.runtime.shards["hall-sensors-1"].reachable = False
    world.settings = replace(SETTINGS, image=NEW)
    for _ in range(8):
        await world.step()
        world.start()
        world.runtime.objects["Deployment", "hall-sensors-1"]["status"] = {"unavailableReplicas": 1}
    assert world.images() == [NEW] * 3


async def failed(turns: Turns) -> list[Kubelet]:
    """Return fleets of which the first has failed and halts the others."""
    worlds = await fleets(3, turns)
    await turn(worlds)
    for seconds in (GRACE // SECOND, 2, LIMIT // SECOND + 1):
        assert await turn(worlds, seconds) == [NEW, OLD, OLD]
    assert "halted" in (await worlds[1].step()).status.rollout.why
    return worlds


async def test_a_fleet_that_returns_to_its_image_halts_no_other() -> None:
    worlds = await failed(Turns())
    worlds[0].manifest["spec"] |= undone(worlds[0].fleet)
    assert await turn(worlds) == [OLD, NEW, OLD]


async def test_a_proven_fleet_that_breaks_later_halts_no_other() -> None:
    worlds = await fleets(2, Turns(max_fleets=1))
    worlds[1].manifest["metadata"]["annotations"] = {ANNOTATION_ROLLOUT: "paused"}
    await turn(worlds)
    await turn(worlds, GRACE // SECOND)
    worlds[0].start()
    await turn(worlds)
    for seconds in (60, LIMIT // SECOND):
        await turn(worlds, seconds)
    worlds[0].runtime.objects["Deployment", "hall-0-sensors-0"]["status"] = {"unavailableReplicas": 1}
    await turn(worlds)
    await turn(worlds, LIMIT // SECOND + 1)
    worlds[1].manifest["metadata"]["annotations"] = {}
    assert await turn(worlds) == [NEW, NEW]


async def test_a_fleet_that_breaks_soon_after_its_turn_halts_the_others() -> None:
    worlds = await fleets(2, Turns(max_fleets=1, delay=60 * SECOND))
    await turn(worlds)
    await turn(worlds, GRACE // SECOND)
    worlds[0].start()
    await turn(worlds)
    worlds[0].runtime.objects["Deployment", "hall-0-sensors-0"]["status"] = {"unavailableReplicas": 1}
    await turn(worlds, 30)
    assert await turn(worlds, 61) == [NEW, OLD]
    assert await turn(worlds, LIMIT // SECOND) == [NEW, OLD]


async def test_a_new_leader_halts_no_fleet_for_an_old_failure() -> None:
    turns = Turns()
    worlds = await failed(turns)
    del worlds[0]  # another operator leads, and the fleet was deleted
    turns.forget()
    await turn(worlds)
    assert await turn(worlds, GRACE // SECOND) == [NEW, OLD]


@pytest.mark.parametrize(
    ("spec", "operators", "target"),
    [
        ({}, "embereye:1.0", "embereye:1.0"),
        ({"version": "1.1"}, "embereye:1.0", "embereye:1.1"),
        ({"version": "1.1"}, "registry:5000/a/embereye:1.0@sha256:ab", "registry:5000/a/embereye:1.1"),
        ({"image": "mine:2", "version": "1.1"}, "embereye:1.0", "mine:2"),
    ],
)
def test_a_fleet_can_choose_its_image(spec: Any, operators: str, target: str) -> None:
    assert target_image(parse_fleet(manifest(spec=spec)), operators) == target


def test_undoing_a_rollout_needs_a_previous_image() -> None:
    with pytest.raises(UserError, match=r"Set spec\.image"):
        undone(parse_fleet(manifest()))


def raised(container: Any) -> None:
    """Raise requests as GKE Autopilot does."""
    container["resources"]["requests"]["cpu"] = "250m"


def mirrored(container: Any) -> None:
    """Redirect the image as policies do."""
    container["image"] = f"mirror.example/{container['image']}"


@pytest.mark.parametrize("change", [raised, mirrored])
async def test_pods_changed_by_a_webhook_are_rolled_one_after_the_other(change: Any) -> None:
    world = await running(shards=3)
    write = world.runtime.apply

    async def admitted(manifest: Any, *, new: bool = False) -> Any:
        if manifest["kind"] == "Deployment":
            manifest = copy.deepcopy(manifest)
            change(manifest["spec"]["template"]["spec"]["containers"][0])
        return await write(manifest, new=new)

    async def at_rest() -> list[Any]:
        for _ in range(12):
            outcome = await world.step()
            world.start()
        assert outcome.status.rollout.pending == 0
        assert not outcome.actions, "nothing is written repeatedly"
        assert all(image.endswith(NEW) for image in world.images())
        return copy.deepcopy(
            [child["spec"] for (kind, _), child in world.runtime.objects.items() if kind == "Deployment"]
        )

    world.runtime.apply = admitted  # type: ignore[method-assign]
    world.settings = replace(SETTINGS, image=NEW)
    rolled = await at_rest()
    world.memory = FleetMemory()
    assert await at_rest() == rolled, "a restarted operator creates no new pods"
    edited = world.runtime.objects["Deployment", "hall-sensors-1"]["spec"]["template"]["spec"]["containers"][0]
    edited["env"] = []
    assert await at_rest() == rolled, "manual changes are reverted"
