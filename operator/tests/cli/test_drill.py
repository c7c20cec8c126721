"""A drill on a real API server. No kubelet runs: pods are objects, and the operator's shards are simulated."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.hubs import HubProcess, hub_process, make_hub
from harness.servers.apiserver import ApiServer
from harness.stored import Stored

from embereye.process.lifecycle import UserError
from embereye.process.signing import open_sealed
from embereye_cli import plugin
from embereye_cli.cluster import drill
from embereye_cli.cluster.drill import Patience, Place
from embereye_cli.main import main
from embereye_operator.runtime.kubernetes.client.client import Target, connected, fleets_of

from ..site import Site

__all__ = ["hub_process", "make_hub"]  # fixtures
QUICK = Patience(recovery=20, steady=0.5, poll=0.1)


def make_pod(site: Site, name: str, node: str = "", labels: dict[str, str] | None = None) -> None:
    """Declare a pod, by default of a shard, which is gone as soon as it is deleted."""
    labels = (
        labels
        or site.cluster.get(f"/apis/apps/v1/namespaces/{site.namespace}/deployments")["items"][0]["metadata"]["labels"]
    )
    spec = {"containers": [{"name": "c", "image": "embereye:test"}], "terminationGracePeriodSeconds": 0}
    spec |= {"nodeName": node} if node else {}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    site.cluster.request("POST", f"/api/v1/namespaces/{site.namespace}/pods", pod)


def pods(site: Site) -> list[str]:
    return [pod["metadata"]["name"] for pod in site.cluster.get(f"/api/v1/namespaces/{site.namespace}/pods")["items"]]


def make_node(cluster: ApiServer, name: str) -> None:
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})


def is_cordoned(cluster: ApiServer, name: str) -> bool:
    return bool(cluster.get(f"/api/v1/nodes/{name}")["spec"].get("unschedulable"))


async def run(site: Site, *words: str, patience: Patience = QUICK) -> int:
    arguments = plugin.build_parser().parse_args(["drill", "hall", *words])
    async with connected(Target(site.namespace, kubeconfig=str(site.cluster.kubeconfig))) as client:
        (fleet,) = await fleets_of(client, site.namespace, print)
        return await drill.drill(Place(client, fleet, site.namespace), arguments, patience)


@pytest.mark.apiserver
async def test_each_fault_is_announced_done_and_reported(site: Site, tmp_path: Path) -> None:
    node = f"node-{site.namespace}"
    make_node(site.cluster, node)
    make_pod(site, "a")
    make_pod(site, "c", node)
    before = site.cluster.get(f"/api/v1/namespaces/{site.namespace}/configmaps/hall-sensors-placement")
    make_pod(site, "hub", labels=drill.HUB)
    file = tmp_path / "drill.json"
    faults = "shard-deleted", "hub-deleted", "placement-deleted", "node-drained"
    code = await run(site, *faults, "--allow-node", node, "--who", "Ada", "--out", str(file))
    made = json.loads(file.read_text())
    assert (code, made["complete"], made["notRun"]) == (0, True, []), made
    assert [each["fault"] for each in made["faults"]] == list(faults)
    assert [each["target"] for each in made["faults"]] == [
        "pod a", "pod hub", "ConfigMap hall-sensors-placement", f"node {node}, pods c",
    ]  # fmt: skip
    assert [each["allowedSeconds"] for each in made["faults"]] == [10.0, 1.5, 1.5, 1.5]
    assert pods(site) == []
    assert not is_cordoned(site.cluster, node)
    after = site.cluster.get(f"/api/v1/namespaces/{site.namespace}/configmaps/hall-sensors-placement")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "by Ada: shard-deleted, hub-deleted" in site.events("DrillStarted")[0]["message"]
    assert "4 of 4 faults passed" in site.events("DrillEnded")[0]["message"]


@pytest.mark.apiserver
async def test_a_fault_without_recovery_ends_the_drill_and_uncordons_the_node(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"node-{site.namespace}"
    make_node(site.cluster, node)
    make_pod(site, "a")
    make_pod(site, "c", node)
    monkeypatch.setattr(Place, "is_gone", never)
    file = tmp_path / "drill.json"
    words = ("node-drained", "shard-deleted", "--allow-node", node, "--out", str(file))
    assert await run(site, *words, patience=Patience(recovery=1, steady=0.2, poll=0.1)) == 1
    made = json.loads(file.read_text())
    assert (made["faults"][0]["outcome"], made["notRun"]) == ("not recovered", ["shard-deleted"])
    assert not is_cordoned(site.cluster, node)
    assert pods(site) == ["a"]


async def never(*_: Any) -> bool:
    return False


@pytest.mark.apiserver
async def test_a_drain_waits_until_the_budget_allows_it(site: Site) -> None:
    node = f"node-{site.namespace}"
    make_node(site.cluster, node)
    make_pod(site, "c", node)
    pod = f"/api/v1/namespaces/{site.namespace}/pods/c"
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    site.cluster.merge(f"{pod}/status", {"status": ready})  # a budget is not asked for others
    task = asyncio.ensure_future(run(site, "node-drained", "--allow-node", node))
    while not is_cordoned(site.cluster, node):
        assert not task.done(), await task
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)
    assert pods(site) == ["c"]
    site.cluster.merge(f"{pod}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    assert await task == 0
    assert pods(site) == []


@pytest.mark.apiserver
async def test_ctrl_c_uncordons_the_node_and_writes_the_report(site: Site, tmp_path: Path) -> None:
    node = f"node-{site.namespace}"
    make_node(site.cluster, node)
    make_pod(site, "c", node)
    file = tmp_path / "drill.json"
    words = ("node-drained", "--allow-node", node, "--out", str(file))
    task = asyncio.ensure_future(run(site, *words, patience=Patience(recovery=60, steady=60, poll=0.1)))
    while not is_cordoned(site.cluster, node) or pods(site):
        assert not task.done(), await task
        await asyncio.sleep(0.1)
    task.cancel()  # as asyncio does at Ctrl-C
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_cordoned(site.cluster, node)
    made = json.loads(file.read_text())
    assert (made["complete"], made["faults"][0]["outcome"]) == (False, "aborted")
    assert site.events("DrillEnded")


@pytest.mark.apiserver
async def test_what_cannot_be_harmed_is_refused(site: Site) -> None:
    with pytest.raises(UserError, match=r"hub-deleted: namespace .* has no pod of a hub"):
        await run(site, "hub-deleted")
    with pytest.raises(UserError, match="has no pod in namespace"):
        await run(site, "shard-deleted")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["node-drained"], "needs --allow-node NODE"),
        (["no-such"], "no-such is no fault of a drill. Choose from shard-"),
    ],
)
def test_faults_are_checked_before_anything_is_done(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(["drill", "hall", *words]) == 2
    assert reason in capsys.readouterr().err


def test_without_a_fault_they_are_listed_with_their_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["drill", "hall"]) == 0
    listed = capsys.readouterr().out
    assert "shard-deleted" in listed
    assert "(gap: 10 s at most)" in listed


@pytest.mark.slow
@pytest.mark.apiserver
async def test_the_hub_signs_the_report_and_knows_of_the_drill(
    site: Site, tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    hub = make_hub(Stored(tmp_path), "--site", "mill")
    hub.start()
    await hub.ready()
    make_pod(site, "a")
    at = ("--console", f"http://127.0.0.1:{hub.http_port}", "--token", hub.token)
    file = tmp_path / "drill.json"
    assert await run(site, "shard-deleted", "--who", "Ada", "--out", str(file), *at) == 0
    key = json.loads(file.read_bytes())["key"]
    made = open_sealed(file.read_bytes(), [key])
    assert (made["complete"], made["site"], made["startedBy"]) == (True, "mill", "Ada (admin)")
    assert made["faults"][0]["target"] == "pod a"
    pages = tmp_path / "drill.pdf"
    assert await asyncio.to_thread(main, ["drill", "show", made["drill"], "--out", str(pages), *at]) == 0
    assert await asyncio.to_thread(main, ["drill", "verify", str(pages), "--key", key]) == 0
    assert await asyncio.to_thread(main, ["drill", "verify", str(pages), "--key", "0" * 64]) == 1
