"""Releases whose operators see the same fleets, as processes on a real API server: each fleet has one operator."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, path_of

from .test_operator import answers, create, names, operator, sensor_fleet, wait_for_children

pytestmark = pytest.mark.apiserver
PATIENCE = 10  # seconds, where a real operator waits 60
WATCHED = 24  # seconds; a pass comes every two


def options(namespace: str, release: str, *more: str) -> list[str]:
    return [
        f"--lease={namespace}/{release}", f"--image=embereye:{release}", f"--take-over-after={PATIENCE}", *more
    ]  # fmt: skip


def holder(cluster: ApiServer, fleet: str) -> str:
    return str(((cluster.get(fleet) or {}).get("status") or {}).get("operator", {}).get("name", "")).rpartition("/")[2]


def image(cluster: ApiServer, namespace: str, shard: str = "hall-sensors-0") -> str:
    path = path_of({"kind": "Deployment", "metadata": {"namespace": namespace, "name": shard}})
    deployment = cluster.get(path)
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"]) if deployment else ""


def generations(cluster: ApiServer, namespace: str, fleet: str) -> dict[str, tuple[int, str]]:
    """Return generation and placement of everything that operators write."""
    result = {"fleet": (cluster.get(fleet)["metadata"]["generation"], holder(cluster, fleet))}
    kinds = {"Deployment": "apps/v1", "Service": "v1", "PodDisruptionBudget": "policy/v1", "ConfigMap": "v1"}
    for kind in kinds:
        for item in cluster.get(path_of({"kind": kind, "metadata": {"namespace": namespace}}, name=False))["items"]:
            if "embereye.dev/fleet" in item["metadata"].get("labels", {}):
                result[f"{kind} {item['metadata']['name']}"] = (
                    item["metadata"].get("generation", 0), item["metadata"]["resourceVersion"]
                )  # fmt: skip
    return result


@pytest.mark.slow
def test_two_releases_respect_each_others_fleets_and_the_survivor_takes_over(
    cluster: ApiServer, namespace: str, tmp_path: Path
) -> None:
    with operator(cluster, tmp_path / "blue", namespace, options=options(namespace, "blue")) as (blue, _):
        fleet = path_of(create(cluster, sensor_fleet(namespace, shards=2)))
        wait_for(lambda: holder(cluster, fleet) == "blue", "a holder")
        wait_for_children(cluster, namespace, names(2))
        with operator(cluster, tmp_path / "green", namespace, options=options(namespace, "green")) as (_, port):
            wait_for(lambda: answers(port), "another operator")
            wait_for(lambda: "is left alone" in (tmp_path / "green").read_text(), "an operator that leaves it alone")
            before = generations(cluster, namespace, fleet)
            deadline = time.monotonic() + WATCHED
            while time.monotonic() < deadline:
                assert generations(cluster, namespace, fleet) == before
                time.sleep(0.5)
            assert image(cluster, namespace) == "embereye:blue"
            assert (tmp_path / "green").read_text().count("is left alone") == 1

            os.kill(blue.pid, signal.SIGKILL)
            killed = time.monotonic()
            wait_for(lambda: holder(cluster, fleet) == "green", "a new holder")
            assert time.monotonic() - killed >= PATIENCE - 2.5, "not before its Lease, renewed every 2 s, was old"
            wait_for(lambda: image(cluster, namespace) == "embereye:green", "its image")
            with operator(cluster, tmp_path / "blue again", namespace, options=options(namespace, "blue")):
                wait_for(lambda: "is left alone" in (tmp_path / "blue again").read_text(), "a fleet that is taken")
                before = generations(cluster, namespace, fleet)
                time.sleep(6)
                assert generations(cluster, namespace, fleet) == before

                # A person can decide it, too.
                given = {"metadata": {"annotations": {"embereye.dev/operator": f"{namespace}/blue"}}}
                cluster.merge(fleet, given)
                wait_for(lambda: holder(cluster, fleet) == "blue", "the operator it was given to")
                wait_for(lambda: image(cluster, namespace) == "embereye:blue", "its image")
                before = generations(cluster, namespace, fleet)
                time.sleep(6)
                assert generations(cluster, namespace, fleet) == before
    for log in tmp_path.iterdir():
        assert "Traceback" not in log.read_text()


def test_of_two_operators_that_see_a_new_fleet_at_once_one_gets_it(
    cluster: ApiServer, namespace: str, tmp_path: Path
) -> None:
    with (
        operator(cluster, tmp_path / "blue", namespace, options=options(namespace, "blue")) as (_, blue),
        operator(cluster, tmp_path / "green", namespace, options=options(namespace, "green")) as (_, other),
    ):
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        wait_for(lambda: answers(blue) and answers(other), "two operators")
        wait_for(
            lambda: sum(bool(item["spec"].get("holderIdentity")) for item in cluster.get(leases)["items"]) == 2,
            "two that act",
        )
        fleets = [path_of(create(cluster, sensor_fleet(namespace, name=f"hall-{index}"))) for index in range(6)]
        wait_for(lambda: all(holder(cluster, fleet) for fleet in fleets), "holders")
        holders = [holder(cluster, fleet) for fleet in fleets]
        wait_for(
            lambda: all(image(cluster, namespace, f"hall-{index}-sensors-0") for index in range(6)), "all Deployments"
        )
        time.sleep(6)
        for index, name in enumerate(holders):
            path = {"kind": "Deployment", "metadata": {"namespace": namespace, "name": f"hall-{index}-sensors-0"}}
            assert image(cluster, namespace, f"hall-{index}-sensors-0") == f"embereye:{name}"
            assert cluster.get(path_of(path))["metadata"]["generation"] == 1, "no other operator wrote it meanwhile"


def test_selectors_and_namespaces_divide_fleets_and_a_label_moves_one(
    cluster: ApiServer, namespace: str, tmp_path: Path
) -> None:
    others = [f"{namespace}-{name}" for name in ("b", "c")]
    for other in others:
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    spaces = f"{namespace},{others[0]}"

    def labelled(space: str, site: str) -> str:
        document: Any = sensor_fleet(space)
        document["metadata"]["labels"] = {"site": site}
        return path_of(create(cluster, document))

    north, south = labelled(namespace, "north"), labelled(others[0], "south")
    outside = labelled(others[1], "north")
    with (
        operator(cluster, tmp_path / "blue", spaces, options=options(namespace, "blue", "--fleet-selector=site=north")),
        operator(
            cluster, tmp_path / "green", namespace,
            options=options(namespace, "green", f"--namespace={others[0]}", "--fleet-selector=site!=north"),
        ),
    ):  # fmt: skip
        wait_for(lambda: (holder(cluster, north), holder(cluster, south)) == ("blue", "green"), "one for each")
        wait_for(lambda: image(cluster, others[0]) == "embereye:green", "its image")
        cluster.merge(south, {"metadata": {"labels": {"site": "north"}}})
        wait_for(lambda: holder(cluster, south) == "blue", "the operator that selects it now")
        wait_for(lambda: image(cluster, others[0]) == "embereye:blue", "its image")
        assert "status" not in cluster.get(outside), "fleets in other namespaces are not reconciled"
    lease = cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/blue")
    scope = json.loads(lease["metadata"]["annotations"]["embereye.dev/scope"])
    assert scope == {"namespaces": [namespace, others[0]], "selector": "site=north"}
