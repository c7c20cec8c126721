"""Upgrades of a release by Helm, on a real API server without running pods."""

import subprocess
from collections.abc import Iterator

import pytest
from harness.cluster.chart import CHART, helm
from harness.servers.apiserver import ApiServer, path_of

RELEASE = "embereye-upgraded"

pytestmark = pytest.mark.apiserver


class Release:
    def __init__(self, cluster: ApiServer, namespace: str) -> None:
        self._place = ("--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace)
        self.namespace = namespace
        self.settings: tuple[str, ...] = ("crds.enabled=false",)
        self.user: tuple[str, ...] = ()  # impersonated user; none: that of the kubeconfig

    def __call__(self, command: str, *values: str) -> subprocess.CompletedProcess[str]:
        settings = [argument for value in (*self.settings, *values) for argument in ("--set", value)]
        return helm(command, RELEASE, str(CHART), *self._place, *self.user, *settings)

    def remove(self) -> None:
        helm("uninstall", RELEASE, *self._place)


@pytest.fixture
def release(cluster: ApiServer, namespace: str) -> Iterator[Release]:
    release = Release(cluster, namespace)
    yield release
    release.remove()


def test_an_upgrade_that_would_abandon_fleets_stops_and_names_the_options(release: Release) -> None:
    assert release("install", "operator.clusterWide=true").returncode == 0
    stopped = release("upgrade")
    assert stopped.returncode != 0
    assert f"this release watches every namespace, and would now watch only {release.namespace}" in stopped.stderr
    assert "--set operator.clusterWide=true" in stopped.stderr
    for value in ("operator.clusterWide=true", f"operator.namespaces={{{release.namespace}}}", "logFormat=json"):
        upgraded = release("upgrade", value)
        assert upgraded.returncode == 0, upgraded.stderr


def test_an_upgrade_that_forgets_namespaces_stops_and_names_them(release: Release, cluster: ApiServer) -> None:
    place = f"{release.namespace}-north"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": place}})
    forgotten = f"operator.namespaces={{{release.namespace},{place}}}"
    more = ("operator.extraArgs={--namespace=annex}",)
    assert release("install", forgotten, *more).returncode == 0
    stopped = release("upgrade", *more)
    assert stopped.returncode != 0
    assert f"this release watches {release.namespace},{place}, and would now watch only {release.namespace}" in (
        stopped.stderr
    )
    assert f"--set {forgotten}" in stopped.stderr
    for value in (f"operator.namespaces={{{release.namespace}}}", "logFormat=json"):
        upgraded = release("upgrade", value, *more)
        assert upgraded.returncode == 0, upgraded.stderr


def test_a_release_for_its_namespace_only_is_upgraded_without_questions(release: Release) -> None:
    for command in ("install", "upgrade"):
        done = release(command)
        assert done.returncode == 0, done.stderr


def test_notes_name_every_hub_whose_history_ends_with_its_pod(release: Release) -> None:
    release.settings = (
        "crds.enabled=false", "hub.database.dsnSecret.name=dsn", "hub.persistence.enabled=false",
        "hubs.north.namespaces={north}", "hubs.south.hub.database.dsnSecret.name=south",
        "hubs.west.hub.persistence.enabled=true",
    )  # fmt: skip
    done = release("install")
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
    assert warned == [
        "WARNING: hubs.north.hub.persistence.enabled is false: alarms, history and all tokens except the admin's "
        "are lost "
        "with the hub's pod."
    ]


CRDS = [
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.embereye.dev"
    for plural in ("sensorfleets", "camerafleets", "fleetbackups")
]
OWNER = "meta.helm.sh/release-name"


def give(cluster: ApiServer, release: str | None, namespace: str | None, manager: str | None) -> None:
    """Give the CustomResourceDefinitions to a release; None: to none."""
    annotations = {OWNER: release, "meta.helm.sh/release-namespace": namespace}
    for path in CRDS:
        metadata = {"annotations": annotations, "labels": {"app.kubernetes.io/managed-by": manager}}
        cluster.merge(path, {"metadata": metadata})


@pytest.mark.parametrize(("owner", "words"), [("north", "release north in namespace fire"), (None, "no Helm release")])
def test_a_second_release_is_refused_with_the_owner_of_the_definitions(
    cluster: ApiServer, release: Release, owner: str | None, words: str
) -> None:
    release.settings = ()
    give(cluster, owner, owner and "fire", owner and "Helm")
    try:
        stopped = release("install")
        assert stopped.returncode != 0
        assert f"fleets.embereye.dev exists already and belongs to {words}, which upgrades it" in stopped.stderr
        assert "--set crds.enabled=false" in stopped.stderr
        give(cluster, RELEASE, release.namespace, "Helm")  # as the message says
        assert f"{OWNER}={RELEASE}" in stopped.stderr
        done = release("install")
        assert done.returncode == 0, done.stderr
    finally:
        give(cluster, None, None, None)


def test_the_owner_of_a_namespace_can_install_and_upgrade_a_release_in_it(cluster: ApiServer, release: Release) -> None:
    metadata = {"name": "owner", "namespace": release.namespace}
    role = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    subject = {"kind": "User", "name": "owner", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "roleRef": {"kind": "Role", "name": "owner", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [subject],
    }
    for kind, body in (("Role", role), ("RoleBinding", binding)):
        manifest = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, **body}
        cluster.request("PATCH", f"{path_of(manifest)}?fieldManager=test", manifest, "application/apply-patch+yaml")
    release.settings = ("crds.enabled=false", "rbac.aggregate=false", "operator.nodes=false")
    release.user = ("--kube-as-user", "owner", "--kube-as-group", "system:authenticated")
    for command in ("install", "upgrade"):
        done = release(command)
        assert done.returncode == 0, done.stderr
