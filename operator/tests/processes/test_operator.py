"""The operator as a process against a real API server."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.need import CONTROLLER_MANAGER
from harness.servers.apiserver import ApiServer, path_of

from embereye.process.addresses import free_port

from ..api.test_schema import camera, manifest

pytestmark = pytest.mark.apiserver
LOG_LINES = 60  # of an operator's log, printed if its test fails
KINDS = ("Deployment", "Service", "ConfigMap", "PodDisruptionBudget")


@contextlib.contextmanager
def operator(
    cluster: ApiServer,
    log: Path,
    namespace: str = "",
    kubeconfig: Path | None = None,
    options: Sequence[str] = (),
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run an operator; yields its process and health port. Kills it in the end, prints its log on failure."""
    port = free_port()
    scope = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "embereye_cli", "operator", *scope, "--image=embereye:test",
             f"--hub={os.environ.get('EMBEREYE_HUB', '127.0.0.1:9')}", f"--health-port={port}", *options],
            env={**os.environ, "KUBECONFIG": str(kubeconfig or cluster.kubeconfig)},
            stdout=out,
            stderr=out,
        )  # fmt: skip
    try:
        yield process, port
    except BaseException:
        print("".join(log.open(errors="replace").readlines()[-LOG_LINES:]))
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def running(cluster: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run one operator for the tests that do not kill it; yields its health port."""
    with operator(cluster, tmp_path_factory.mktemp("operator") / "log") as (_, port):
        yield port


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
        return True
    return False


def sensor_fleet(namespace: str, name: str = "hall", **spec: Any) -> dict[str, Any]:
    sensors = [{"id": f"s-{number}", "zone": "hall"} for number in range(4)]
    return manifest(spec={"sensors": sensors, **spec}, namespace=namespace, name=name)


def camera_fleet(namespace: str) -> dict[str, Any]:
    return manifest("CameraFleet", {"cameras": [camera()]}, namespace=namespace)


def create(cluster: ApiServer, document: dict[str, Any]) -> Any:
    return cluster.request("POST", path_of(document, name=False), document)


def children(cluster: ApiServer, namespace: str) -> dict[tuple[str, str], Any]:
    existing = {}
    for kind in KINDS:
        listed = cluster.get(path_of({"kind": kind, "metadata": {"namespace": namespace}}, name=False))
        for item in listed["items"]:
            if item["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "embereye-operator":
                existing[kind, item["metadata"]["name"]] = item
    return existing


def essence(existing: dict[tuple[str, str], Any]) -> Any:
    """Return the children's content without the server's additions."""
    return {
        key: {
            "labels": item["metadata"]["labels"],
            "owners": item["metadata"].get("ownerReferences"),
            "spec": {
                name: value for name, value in item.get("spec", {}).items() if name not in {"clusterIP", "clusterIPs"}
            },
            "data": item.get("data"),
        }
        for key, item in existing.items()
    }


def names(shards: int, kind: str = "sensors", fleet: str = "hall", *, services: int = 0) -> set[tuple[str, str]]:
    """Return the names of a fleet's children; `services` if there were more shards, whose addresses stay."""
    base = f"{fleet}-{kind}"
    shards_ = {("Deployment", f"{base}-{index}") for index in range(shards)}
    shards_ |= {("Service", f"{base}-{index}") for index in range(max(shards, services))}
    return shards_ | {("Service", base), ("PodDisruptionBudget", base), ("ConfigMap", f"{base}-placement")}


def wait_for_children(cluster: ApiServer, namespace: str, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], Any]:
    def difference() -> str:
        existing = set(children(cluster, namespace))
        return f"children, of which {sorted(wanted - existing)} are missing and {sorted(existing - wanted)} too many"

    return wait_for(
        lambda: existing if set(existing := children(cluster, namespace)) == wanted else None, difference, 120
    )


def has_status(cluster: ApiServer, document: dict[str, Any]) -> Any:
    return wait_for(lambda: (cluster.get(path_of(document)) or {}).get("status"), "a status")


def test_both_fleets_get_children_that_they_own(cluster: ApiServer, namespace: str, running: int) -> None:
    fleets = {
        "sensors": create(cluster, sensor_fleet(namespace)),
        "cameras": create(cluster, camera_fleet(namespace)),
    }
    existing = wait_for_children(cluster, namespace, names(1) | names(1, "cameras"))
    for (_, name), child in existing.items():
        fleet = fleets["sensors" if "-sensors" in name else "cameras"]
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "embereye.dev/v1alpha1",
            "kind": fleet["kind"],
            "name": "hall",
            "uid": fleet["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        assert any(entry["manager"] == "embereye-operator" for entry in child["metadata"]["managedFields"])
    for fleet in fleets.values():
        status = has_status(cluster, fleet)
        assert {entry["type"] for entry in status["conditions"]} == {
            "Ready", "Progressing", "Degraded", "Covered", "ScalingActive", "MetricsAvailable", "AccessRestricted"
        }  # fmt: skip
        metadata = cluster.get(path_of(fleet))["metadata"]
        assert "annotations" not in metadata
        assert "finalizers" not in metadata


def test_nothing_is_written_once_everything_is_up_to_date(cluster: ApiServer, namespace: str, running: int) -> None:
    fleet = create(cluster, sensor_fleet(namespace))
    wait_for_children(cluster, namespace, names(1))
    has_status(cluster, fleet)

    def passes() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{running}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        mine = [line for line in lines if f'namespace="{namespace}"' in line and "operator_passes_total" in line]
        return float(mine[0].split()[-1]) if mine else 0.0

    def versions() -> dict[Any, str]:
        objects = {**children(cluster, namespace), "fleet": cluster.get(path_of(fleet))}
        return {key: item["metadata"]["resourceVersion"] for key, item in objects.items()}

    def is_unchanged_by_two_passes() -> bool:
        before, done = versions(), passes()
        wait_for(lambda: passes() >= done + 2, "two more passes")
        return versions() == before

    # The first passes still write what they learn about the new pods.
    assert any(is_unchanged_by_two_passes() for _ in range(4))


def edit(patch: Any) -> Callable[[ApiServer, Any], None]:
    return lambda cluster, child: cluster.merge(path_of(child), patch)


def remove(cluster: ApiServer, child: Any) -> None:
    cluster.request("DELETE", path_of(child))


def change_container(**fields: Any) -> Callable[[ApiServer, Any], None]:
    def change(cluster: ApiServer, child: Any) -> None:
        container = child["spec"]["template"]["spec"]["containers"][0] | fields
        cluster.merge(path_of(child), {"spec": {"template": {"spec": {"containers": [container]}}}})

    return change


EDITS = [
    ("Deployment", "hall-sensors-0", remove),
    ("Deployment", "hall-sensors-0", edit({"spec": {"replicas": 0}})),
    ("Deployment", "hall-sensors-0", edit({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}})),
    ("Deployment", "hall-sensors-0", edit({"metadata": {"labels": {"embereye.dev/shard": "other"}}})),
    ("Deployment", "hall-sensors-0", edit({"metadata": {"ownerReferences": None}})),
    ("Deployment", "hall-sensors-0", change_container(image="busybox")),
    ("Deployment", "hall-sensors-0", change_container(args=["sleep", "1"])),
    ("Deployment", "hall-sensors-0", change_container(env=[])),
    ("Deployment", "hall-sensors-0", change_container(command=["sleep"])),
    ("Deployment", "hall-sensors-0", change_container(securityContext={"runAsUser": 0})),
    ("Service", "hall-sensors-0", remove),
    ("Service", "hall-sensors-0", edit({"spec": {"selector": {"extra": "label"}}})),
    ("Service", "hall-sensors-0", edit({"spec": {"ports": [{"name": "grpc", "port": 1}]}})),
    ("Service", "hall-sensors", remove),
    ("Service", "hall-sensors", edit({"spec": {"selector": {"embereye.dev/fleet": "sensors.other"}}})),
    ("ConfigMap", "hall-sensors-placement", remove),
    ("ConfigMap", "hall-sensors-placement", edit({"data": None})),
    ("ConfigMap", "hall-sensors-placement", edit({"data": {"hall-sensors-0.json": "{}"}})),
    ("ConfigMap", "hall-sensors-placement", edit({"data": {"hall-sensors-9.json": "{}"}})),
    ("PodDisruptionBudget", "hall-sensors", remove),
    ("PodDisruptionBudget", "hall-sensors", edit({"spec": {"maxUnavailable": 3}})),
    ("PodDisruptionBudget", "hall-sensors", edit({"spec": {"selector": {"matchLabels": {"a": "b"}}}})),
]


@pytest.fixture(scope="module")
def edited(cluster: ApiServer, running: int) -> str:
    """Yield a namespace with a fleet that many tests damage, one after the other."""
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "edited"}})
    has_status(cluster, create(cluster, sensor_fleet("edited")))
    wait_for_children(cluster, "edited", names(1))
    return "edited"


def without_epoch(existing: Any) -> Any:
    """Remove the fields that change: a lost record costs an epoch, a lost Service its IP address."""
    data = existing["ConfigMap", "hall-sensors-placement"]["data"] or {}
    parsed = {}
    for key, text in data.items():
        with contextlib.suppress(ValueError):
            parsed[key] = {name: value for name, value in json.loads(text).items() if name not in {"epoch", "own"}}
    existing["ConfigMap", "hall-sensors-placement"]["data"] = parsed
    return existing


@pytest.mark.parametrize(("kind", "name", "damage"), EDITS, ids=[f"{i}-{row[0]}" for i, row in enumerate(EDITS)])
def test_manual_changes_are_reverted(
    cluster: ApiServer, edited: str, kind: str, name: str, damage: Callable[[ApiServer, Any], None]
) -> None:
    before = children(cluster, edited)
    child = before[kind, name]
    damage(cluster, {**child, "kind": kind})
    changed = (cluster.get(path_of({**child, "kind": kind})) or {"metadata": {}})["metadata"].get("resourceVersion")
    assert changed != child["metadata"]["resourceVersion"], "the damage was done"
    wanted = without_epoch(essence(before))

    def restored() -> bool:
        existing = children(cluster, edited)
        return set(existing) == set(before) and without_epoch(essence(existing)) == wanted

    wait_for(restored, f"{kind} {name} as it was")


def test_kubectl_scale_creates_and_deletes_shards(cluster: ApiServer, namespace: str, running: int) -> None:
    fleet = create(cluster, sensor_fleet(namespace))
    wait_for_children(cluster, namespace, names(1))
    addresses = set()
    for count in (3, 1, 3):
        cluster.merge(f"{path_of(fleet)}/scale", {"spec": {"replicas": count}})
        existing = wait_for_children(cluster, namespace, names(count, services=3))
        addresses.add(existing["Service", "hall-sensors-2"]["spec"]["clusterIP"])

        def is_reported(count: int = count) -> bool:
            scale = cluster.get(f"{path_of(fleet)}/scale")
            return (
                scale["status"].get("replicas") == count
                and "embereye.dev/fleet=sensors.hall" in (scale["status"]["selector"])
            )

        wait_for(is_reported, f"{count} shards in the scale subresource")
    assert len(addresses) == 1, "a shard that returns has its old address"


@pytest.mark.needs(CONTROLLER_MANAGER)
def test_a_deleted_fleet_deletes_its_children(cluster: ApiServer, namespace: str, running: int) -> None:
    fleet = create(cluster, sensor_fleet(namespace))
    other = create(cluster, sensor_fleet(namespace, name="other"))
    wait_for_children(cluster, namespace, names(1) | names(1, fleet="other"))
    has_status(cluster, other)
    cluster.request("DELETE", path_of(fleet))
    wait_for_children(cluster, namespace, names(1, fleet="other"))
    assert cluster.get(path_of(fleet)) is None
    again = create(cluster, sensor_fleet(namespace))
    existing = wait_for_children(cluster, namespace, names(1) | names(1, fleet="other"))
    assert existing["Deployment", "hall-sensors-0"]["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]


def test_devices_of_a_config_map_follow_its_changes(cluster: ApiServer, namespace: str, running: int) -> None:
    fleet = create(cluster, sensor_fleet(namespace, sensorsFrom=[{"configMapRef": {"name": "more"}}]))

    def status_has(reason: str, declared: int) -> bool:
        status = (cluster.get(path_of(fleet)) or {}).get("status", {})
        reasons = {entry["reason"] for entry in status.get("conditions", [])}
        return status.get("devices", {}).get("declared") == declared and (reason in reasons)

    wait_for(lambda: status_has("DeviceListMissing", 4), "a complaint about the missing ConfigMap")
    document = {
        "kind": "ConfigMap",
        "metadata": {"name": "more", "namespace": namespace},
        "data": {"list": "- {id: x-1, zone: yard}"},
    }
    create(cluster, document)
    wait_for(lambda: status_has("HubUnreachable", 5), "five devices")
    cluster.merge(path_of(document), {"data": {"list": "[{id: x-1, zone: yard}, {id: x-2, zone: yard}]"}})
    wait_for(lambda: status_has("HubUnreachable", 6), "six devices")
    data = children(cluster, namespace)["ConfigMap", "hall-sensors-placement"]["data"]
    assert json.loads(data["placement.json"])["devices"]["x-2"] == "hall-sensors-0"


def test_health_and_metrics_report_the_operators_state(cluster: ApiServer, namespace: str, running: int) -> None:
    has_status(cluster, create(cluster, sensor_fleet(namespace)))

    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{running}{path}", timeout=5) as response:
            return str(response.read().decode())

    assert page("/healthz") == "ok\n"
    sample = f'embereye_fleet_required_shards{{namespace="{namespace}",kind="sensors",fleet="hall"}} 1.0'
    wait_for(lambda: sample in page("/metrics"), "the required shards")


def test_the_time_of_every_pass_is_counted(cluster: ApiServer, namespace: str, running: int) -> None:
    has_status(cluster, create(cluster, sensor_fleet(namespace)))

    def value(start: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{running}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(start))

    passes = value(f'embereye_operator_passes_total{{namespace="{namespace}"')
    assert passes > 0
    wait_for(lambda: value("embereye_operator_pass_duration_seconds_count") >= passes, "their durations")
    assert value("embereye_operator_pass_duration_seconds_sum") > 0


@pytest.mark.parametrize("attempt", range(2))
def test_a_killed_operators_successor_finishes_its_work(
    cluster: ApiServer, namespace: str, tmp_path: Path, attempt: int
) -> None:
    """The same changes with and without kills in between lead to the same result."""
    chance = random.Random(attempt)
    fleet = sensor_fleet(namespace)
    steps: list[Callable[[], Any]] = [
        lambda: create(cluster, fleet),
        lambda: cluster.merge(path_of(fleet), {"spec": {"shards": 3, "deadline": "9s"}}),
        lambda: cluster.merge(path_of(fleet), {"spec": {"shards": 2, "sensors": fleet["spec"]["sensors"][:3]}}),
    ]
    for step in steps:
        with operator(cluster, tmp_path / "log", namespace) as (process, port):
            wait_for(lambda port=port: answers(port), "an operator that answers")
            time.sleep(chance.uniform(0.0, 0.5))  # before, while or after it has started to watch
            step()
            time.sleep(chance.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
    with operator(cluster, tmp_path / "log", namespace) as (process, port):
        optional = {("Service", "hall-sensors-2")}  # if the third shard was created before the kill
        wait_for(lambda: set(children(cluster, namespace)) - optional == names(2), "two shards")

        def finished() -> bool:
            status = (cluster.get(path_of(fleet)) or {}).get("status", {})
            data = children(cluster, namespace)["ConfigMap", "hall-sensors-placement"]["data"]
            record = json.loads(data["placement.json"])
            return (
                status.get("observedGeneration") == 3
                and set(record["devices"]) == {"s-0", "s-1", "s-2"}
                and json.loads(data["hall-sensors-1.json"])["sensor"]["deadlineNs"] == "9000000000"
                and set(data) == {"placement.json", "hall-sensors-0.json", "hall-sensors-1.json"}
            )

        wait_for(finished, "the end state")
        wait_for(lambda: answers(port), "an operator that answers")
        process.terminate()
        assert process.wait(30) == 0
