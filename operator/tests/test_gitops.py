"""The view of GitOps tools on fleets, and the fleets' report about writers of spec.shards."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.need import LUA, program
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig

from embereye.units import MINUTE, SECOND
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.names import MANAGED_BY
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.scaling.writers import Write, describe_contest, remember
from embereye_operator.decide.status import LASTING_SECONDS
from embereye_operator.reconcile.reconcile import reconcile
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

from .api.test_schema import ROOT, manifest
from .fakes import SETTINGS, World
from .processes.test_operator import create, sensor_fleet
from .test_reconcile import fleet_of

HEALTH = ROOT / "deploy/argocd/health.lua"


@pytest.mark.parametrize("name", ["sensorfleet", "camerafleet"])
def test_an_example_with_autoscaling_does_not_declare_its_shards(name: str) -> None:
    document = yaml.safe_load((ROOT / f"charts/embereye/examples/{name}.yaml").read_text())
    assert parse_fleet(document).spec.autoscaling.mode == "embedded"
    assert "shards" not in document["spec"]


def lua(value: Any) -> str:
    """Return `value` as a Lua expression."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {lua(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return "nil" if value is None else json.dumps(value)


def health(tmp_path: Path, fleet: Any) -> tuple[str, str]:
    """Return the result of Argo CD's interpreter for the script and a fleet."""
    script = tmp_path / "ask.lua"
    script.write_text(
        f"obj = {lua(fleet)}\nlocal hs = dofile({json.dumps(str(HEALTH))})\nprint(hs.status)\nprint(hs.message)\n"
    )
    interpreter = program("glua")
    assert interpreter
    done = subprocess.run([interpreter, script], capture_output=True, text=True, check=True, timeout=10)
    status, _, message = done.stdout.partition("\n")
    return status, message.strip()


async def reported_fleet(**spec: Any) -> World:
    """Return a complete fleet with the operator's status."""
    world = World(fleet_of(shards=2, **spec))
    await world.run_until_complete()
    return world


def as_stored(world: World) -> Any:
    return {**world.fleet.manifest, "status": world.runtime.statuses[-1]}


@pytest.mark.needs(LUA)
async def test_argo_cd_sees_a_covered_fleet_as_healthy(tmp_path: Path) -> None:
    assert health(tmp_path, as_stored(await reported_fleet())) == ("Healthy", "all 12 devices are watched")


@pytest.mark.needs(LUA)
async def test_argo_cd_sees_dark_devices_as_degraded_and_names_them(tmp_path: Path) -> None:
    world = await reported_fleet()
    owner = next(shard for shard in world.runtime.shards.values() if shard.assignment.devices)
    owner.dark[device := owner.assignment.devices[0].id] = "never heard"
    await world.step()
    status, message = health(tmp_path, as_stored(world))
    assert status == "Degraded"
    assert device in message


@pytest.mark.needs(LUA)
async def test_argo_cd_waits_for_new_and_changing_fleets(tmp_path: Path) -> None:
    assert health(tmp_path, manifest(generation=1))[0] == "Progressing"
    world = await reported_fleet()
    fleet = as_stored(world)
    fleet["metadata"] = {**fleet["metadata"], "generation": fleet["metadata"]["generation"] + 1}
    assert health(tmp_path, fleet)[0] == "Progressing"
    world.runtime.starts_shards = False
    world.manifest = fleet_of(shards=3)
    await world.step()
    assert health(tmp_path, as_stored(world))[0] == "Progressing"


@pytest.mark.needs(LUA)
async def test_argo_cd_sees_problems_and_paused_fleets(tmp_path: Path) -> None:
    world = await reported_fleet()
    world.runtime.hub_is_down = True
    await world.last(LASTING_SECONDS)
    status, message = health(tmp_path, as_stored(world))
    assert (status, "hub:50052" in message) == ("Degraded", True)
    world = await reported_fleet(paused=True)
    assert health(tmp_path, as_stored(world))[0] == "Suspended"


def write(second: int, writer: str, shards: int) -> Write:
    return Write(second * SECOND, writer, shards, (writer, str(second)))


def test_two_alternating_writers_are_named() -> None:
    writes = tuple(write(10 * n, ("argocd-controller", MANAGED_BY)[n % 2], 2 + n % 2) for n in range(4))
    assert describe_contest(writes[:3], 30 * SECOND) == ""
    sentence = describe_contest(writes, 31 * SECOND)
    assert f"in turn by {MANAGED_BY} (3) and argocd-controller (2)" in sentence
    assert describe_contest(writes, 30 * SECOND + 11 * MINUTE) == "", "it is over"


@pytest.mark.parametrize(
    "writes",
    [
        [write(n, MANAGED_BY, n) for n in range(6)],  # a single frequent writer
        [write(n, ("kubectl", MANAGED_BY)[n % 2], 2) for n in range(6)],  # they agree
        [write(n, f"writer-{n}", n % 2) for n in range(6)],  # many writers, each once
    ],
)
def test_writers_that_undo_no_change_are_not_named(writes: list[Write]) -> None:
    assert describe_contest(tuple(writes), 10 * SECOND) == ""


def test_a_write_is_remembered_once() -> None:
    first = write(1, "a", 2)
    assert remember((), None) == ()
    assert remember((first,), first) == (first,)
    assert len(remember(tuple(write(n, "a", n) for n in range(16)), write(17, "b", 1))) == 16


@pytest.fixture
async def runtime(cluster: ApiServer, namespace: str) -> AsyncIterator[KubernetesRuntime]:
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    created = build_runtime(
        client, KubernetesOptions(hub="127.0.0.1:9", namespaces=[namespace], resolve=lambda *_: "127.0.0.1:9")
    )
    yield created
    await created.close()


@pytest.mark.apiserver
async def test_the_api_server_reveals_alternating_writers(
    cluster: ApiServer, namespace: str, runtime: KubernetesRuntime
) -> None:
    document = sensor_fleet(namespace)
    path, memory = path_of(document), FleetMemory()

    async def observe() -> FleetStatus:
        await runtime.resync()
        fleet = parse_fleet(runtime.world.cache.objects["SensorFleet", namespace, "hall"].manifest(), strict=False)
        return (await reconcile(fleet, runtime, time.time_ns, SETTINGS, memory)).status

    def sync() -> None:
        """Write the number as a GitOps tool does."""
        wanted = {**document, "spec": {**document["spec"], "shards": 2}}
        query = "?fieldManager=argocd-controller&force=true"
        cluster.request("PATCH", f"{path}{query}", wanted, "application/apply-patch+yaml")

    await asyncio.to_thread(create, cluster, document)
    await observe()
    for _ in range(2):
        await asyncio.to_thread(sync)
        status = await observe()
        await runtime.writer.scale(parse_fleet(await asyncio.to_thread(cluster.get, path)), 3)
        status = await observe()
    scaling = status.condition("ScalingActive")
    assert scaling
    assert (scaling.status, scaling.reason) == ("False", "ShardsContested")
    assert f"{MANAGED_BY} (3) and argocd-controller (2)" in scaling.message
    degraded = status.condition("Degraded")
    assert degraded
    assert "argocd-controller" in degraded.message
