"""A FleetBackup on a real API server, whose controllers make CronJobs' Jobs and Jobs' pods; no kubelet runs these.

The operator's part has exactly the rights that the chart grants in the release's namespace.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from harness.cluster.chart import NAMESPACE, operators_rights, render
from harness.eventually import eventually, wait_for
from harness.need import CONTROLLER_MANAGER, HELM
from harness.servers.apiserver import ApiError, ApiServer, install_crds, path_of, run_api_server

from embereye.addons.archive.resource.keeper import FleetBackups
from embereye.addons.archive.resource.model import FLEET_BACKUP
from embereye_operator.addon import OperatorContext
from embereye_operator.api.crds import build_crd
from embereye_operator.runtime.kubernetes.client.answers import list_existing
from embereye_operator.runtime.kubernetes.client.client import Target, connected
from embereye_operator.runtime.kubernetes.client.resources import custom

pytestmark = [pytest.mark.apiserver, pytest.mark.needs(CONTROLLER_MANAGER, HELM), pytest.mark.timeout(300)]
BUCKET = {"bucket": "evidence", "prefix": "site-1", "credentialsSecret": {"name": "fire-evidence"}}
RESULT = {"name": "2026-12-01T03-00-01Z", "bytes": 12_345_678, "clips": 5, "seconds": 2.5}
RESOURCES = {"fleetbackups", "fleetbackups/status", "cronjobs", "jobs", "pods", "podtemplates", "events"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApiServer]:
    """An API server with the controllers of CronJobs and Jobs."""
    with run_api_server("cronjob-controller", "job-controller") as running:
        install_crds(running, [build_crd(FLEET_BACKUP)])
        yield running


@pytest.fixture
def release(cluster: ApiServer, namespace: str) -> str:
    """The namespace of a release: it has the chart's rights and pods for backups."""
    here = [manifest for manifest in operators_rights() if manifest["metadata"]["name"].endswith("-release")]
    here += [manifest for manifest in render() if manifest["kind"] == "PodTemplate"]
    for manifest in here:
        assert manifest["metadata"]["namespace"] == NAMESPACE
        manifest["metadata"]["namespace"] = namespace
        cluster.request("POST", path_of(manifest, name=False), manifest)
    return namespace


@pytest.fixture
async def backups(cluster: ApiServer, release: str) -> AsyncIterator[FleetBackups]:
    async with connected(Target(kubeconfig=str(cluster.operator_kubeconfig))) as client:
        yield FleetBackups(
            OperatorContext(
                client=client, namespace=release, release="embereye", is_leading=lambda: True,
                is_selected=lambda labels: labels.get("site") != "other",
            )
        )  # fmt: skip


def fleet_backup(namespace: str, name: str = "nightly", **spec: Any) -> dict[str, Any]:
    wanted = {"schedule": "0 3 * * *", "destination": {"s3": BUCKET}, **spec}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "embereye.dev/v1beta1", "kind": "FleetBackup", "metadata": metadata, "spec": wanted}


def create(cluster: ApiServer, manifest: Any) -> str:
    """Create the object; its path."""
    cluster.request("POST", path_of(manifest, name=False), manifest)
    return path_of(manifest)


def ready(cluster: ApiServer, path: str) -> tuple[str, str, str]:
    (condition,) = cluster.get(path)["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


async def end_a_job(cluster: ApiServer, namespace: str, name: str, phase: str, message: str) -> None:
    """Start a Job of the CronJob, as `kubectl create job --from` does, and let its pod end with `message`."""
    cron_job = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/cronjobs/nightly-backup")
    template = cron_job["spec"]["jobTemplate"]
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "backoffLimit": 0},
    }  # fmt: skip
    path = create(cluster, job)

    def pods() -> list[Any]:
        listed = cluster.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=job-name={name}")["items"]
        return [pod for pod in listed if pod["metadata"]["name"].startswith(name)]

    await eventually(lambda: len(pods()) == 1)
    state = {"terminated": {"exitCode": int(phase == "Failed"), "message": message}}
    container = {"name": "backup", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": phase, "containerStatuses": [container]}
    cluster.merge(f"/api/v1/namespaces/{namespace}/pods/{pods()[0]['metadata']['name']}/status", {"status": status})
    ended = {"Complete", "Failed"}
    await eventually(lambda: any(c["type"] in ended for c in cluster.get(path)["status"].get("conditions", ())))


async def test_a_backup_is_scheduled_made_and_reported(cluster: ApiServer, release: str, backups: FleetBackups) -> None:
    before, path = len(cluster.audit()), create(cluster, fleet_backup(release))
    await backups.reconcile()
    job = cluster.get(f"/apis/batch/v1/namespaces/{release}/cronjobs/nightly-backup")
    assert (job["spec"]["schedule"], job["spec"]["timeZone"], job["spec"]["suspend"]) == ("0 3 * * *", "Etc/UTC", False)
    pod = job["spec"]["jobTemplate"]["spec"]["template"]
    declared = json.loads(pod["metadata"]["annotations"]["embereye.dev/backup-destination"])
    assert declared["credentials"] == "/etc/embereye/backup-keys"
    assert any(volume.get("secret", {}).get("secretName") == "fire-evidence" for volume in pod["spec"]["volumes"])
    assert ready(cluster, path)[:2] == ("Unknown", "Waiting")

    versions = [cluster.get(each)["metadata"]["resourceVersion"] for each in (path, path_of(job))]
    await backups.reconcile()
    assert [cluster.get(each)["metadata"]["resourceVersion"] for each in (path, path_of(job))] == versions

    await end_a_job(cluster, release, "first", "Succeeded", json.dumps(RESULT))
    await backups.reconcile()
    assert ready(cluster, path)[:2] == ("True", "BackedUp")
    last = cluster.get(path)["status"]["lastBackup"]
    assert (last["name"], last["size"], last["clips"]) == (RESULT["name"], "12.3 MB", 5)
    rows = {family.name: [sample.value for sample in family.samples] for family in backups.metrics()}
    assert rows["embereye_operator_backup_ready"] == [1]
    assert rows["embereye_operator_backup_overdue_seconds"] == [0]
    assert rows["embereye_operator_backup_size_bytes"] == [12_345_678]

    await asyncio.sleep(1.1)  # Kubernetes' times have whole seconds
    await end_a_job(cluster, release, "second", "Failed", "the bucket evidence cannot be used: it cannot be reached")
    await backups.reconcile()
    assert ready(cluster, path)[:2] == ("False", "Failed")
    assert "the bucket evidence cannot be used" in ready(cluster, path)[2]
    assert cluster.get(path)["status"]["lastBackup"] == last
    events = cluster.get(f"/api/v1/namespaces/{release}/events")["items"]
    reasons = [(entry["type"], entry["reason"]) for entry in events if entry["involvedObject"]["kind"] == "FleetBackup"]
    assert sorted(reasons) == [("Normal", "BackedUp"), ("Normal", "Waiting"), ("Warning", "Failed")]

    cluster.merge(path, {"spec": {"suspend": True}})
    await backups.reconcile()
    assert cluster.get(path_of(job))["spec"]["suspend"] is True
    assert ready(cluster, path)[:2] == ("Unknown", "Suspended")
    check_rights(cluster, before)
    cluster.request("DELETE", path)
    wait_for(lambda: cluster.get(path_of(job)) is None, "the CronJob's end with its FleetBackup")


def check_rights(cluster: ApiServer, since: int) -> None:
    """Assert that each right of the chart's for backups was used, and that none was missing."""
    entries = [entry for entry in cluster.audit()[since:] if "resource" in entry.get("objectRef", {})]
    assert [entry for entry in entries if entry["responseStatus"]["code"] in {401, 403}] == []
    used = {
        ("/".join(filter(None, (entry["objectRef"]["resource"], entry["objectRef"].get("subresource")))), verb)
        for entry in entries
        for verb in (entry["verb"], *(["create"] if entry["responseStatus"]["code"] == 201 else []))
    }
    (role,) = (
        each for each in operators_rights() if each["kind"] == "Role" and each["metadata"]["name"].endswith("-release")
    )
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    of_others = {("pods", "delete")}
    assert {right for right in granted if right[0] in RESOURCES} - of_others == used


async def test_what_prevents_backups_is_in_the_condition(
    cluster: ApiServer, release: str, backups: FleetBackups
) -> None:
    path = create(cluster, fleet_backup(release, hub="north"))
    elsewhere = create(cluster, fleet_backup(release, "elsewhere", timeZone="Mars/Olympus"))
    other = fleet_backup(release, "others")
    other["metadata"]["labels"] = {"site": "other"}
    left_alone = create(cluster, other)
    await backups.reconcile()
    assert ready(cluster, path)[:2] == ("False", "Misconfigured")
    assert "PodTemplate embereye-north-hub-backup" in ready(cluster, path)[2]
    assert ready(cluster, elsewhere)[:2] == ("False", "Misconfigured")
    assert "spec.timeZone" in ready(cluster, elsewhere)[2]
    assert "status" not in cluster.get(left_alone)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedule": "0 25 * * *"}, "must be minute, hour, day, month and weekday in cron's form"),
        ({"schedule": "@daily"}, "spec.schedule"),
        ({"destination": {}}, "needs exactly one of s3, claim"),
        ({"destination": {"s3": BUCKET, "claim": {"name": "share"}}}, "needs exactly one of s3, claim"),
        ({"destination": {"claim": {"name": "share", "path": "../other"}}}, "spec.destination.claim.path"),
        ({"destination": {"s3": {**BUCKET, "endpoint": "ftp://x"}}}, "spec.destination.s3.endpoint"),
        ({"keep": 1001}, "spec.keep"),
        ({"include": "Clips"}, "spec.include"),
    ],
)
def test_a_wrong_field_is_refused(cluster: ApiServer, namespace: str, spec: Any, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        create(cluster, fleet_backup(namespace, **spec))
    assert words in refused.value.message


async def test_a_kind_that_the_server_does_not_know_has_no_objects(cluster: ApiServer, namespace: str) -> None:
    async with connected(Target(kubeconfig=str(cluster.kubeconfig))) as client:
        assert await list_existing(client, custom("NoSuchKind", "nosuchkinds"), namespace) == []
