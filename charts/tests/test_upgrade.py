"""Helm's upgrades of a release, on a real API server; nothing runs there."""

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
        self.user: tuple[str, ...] = ()  # whoever the kubeconfig is of

    def __call__(self, command: str, *values: str) -> subprocess.CompletedProcess[str]:
        settings = [argument for value in (*self.settings, *values) for argument in ("--set", value)]
        return helm(command, RELEASE, str(CHART), *self._place, *self.user, *settings)

    def remove(self) -> None:
        helm("uninstall", RELEASE, *self._place)


@pytest.fixture
def release(cluster: ApiServer, namespace: str) -> Iterator[Release]:
    found = Release(cluster, namespace)
    yield found
    found.remove()


def test_an_upgrade_that_would_leave_fleets_alone_stops_and_says_what_to_say(release: Release) -> None:
    assert release("install", "operator.clusterWide=true").returncode == 0
    stopped = release("upgrade")
    assert stopped.returncode != 0
    assert f"this release watches every namespace, and would now watch {release.namespace} alone" in stopped.stderr
    assert "--set operator.clusterWide=true" in stopped.stderr
    for value in ("operator.clusterWide=true", f"operator.namespaces={{{release.namespace}}}", "logFormat=json"):
        went_on = release("upgrade", value)
        assert went_on.returncode == 0, went_on.stderr


def test_an_upgrade_that_forgets_namespaces_stops_and_names_them(release: Release, cluster: ApiServer) -> None:
    place = f"{release.namespace}-north"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": place}})
    forgotten = f"operator.namespaces={{{release.namespace},{place}}}"
    more = ("operator.extraArgs={--namespace=annex}",)
    assert release("install", forgotten, *more).returncode == 0
    stopped = release("upgrade", *more)
    assert stopped.returncode != 0
    assert f"this release watches {release.namespace},{place}, and would now watch {release.namespace} alone" in (
        stopped.stderr
    )
    assert f"--set {forgotten}" in stopped.stderr
    for value in (f"operator.namespaces={{{release.namespace}}}", "logFormat=json"):
        went_on = release("upgrade", value, *more)
        assert went_on.returncode == 0, went_on.stderr


def test_a_release_of_its_own_namespace_is_upgraded_unasked(release: Release) -> None:
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
        "WARNING: hubs.north.hub.persistence.enabled is false: alarms, history and tokens but the admin's are lost "
        "with the hub's pod."
    ]


CRDS = [
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}fleets.embereye.dev"
    for kind in ("sensor", "camera")
]
OWNER = "meta.helm.sh/release-name"


def own(cluster: ApiServer, release: str | None, namespace: str | None, manager: str | None) -> None:
    """Have the CustomResourceDefinitions belong to a release; None: to none."""
    annotations = {OWNER: release, "meta.helm.sh/release-namespace": namespace}
    for path in CRDS:
        metadata = {"annotations": annotations, "labels": {"app.kubernetes.io/managed-by": manager}}
        cluster.merge(path, {"metadata": metadata})


@pytest.mark.parametrize(
    ("owner", "told"), [("north", "release north in namespace fire"), (None, "no release of Helm's")]
)
def test_a_second_release_is_told_in_words_whose_the_definitions_are(
    cluster: ApiServer, release: Release, owner: str | None, told: str
) -> None:
    release.settings = ()
    own(cluster, owner, owner and "fire", owner and "Helm")
    try:
        stopped = release("install")
        assert stopped.returncode != 0
        assert f"fleets.embereye.dev is there already and belongs to {told}, which upgrades it" in stopped.stderr
        assert "--set crds.enabled=false" in stopped.stderr
        own(cluster, RELEASE, release.namespace, "Helm")  # as the message says
        assert f"{OWNER}={RELEASE}" in stopped.stderr
        done = release("install")
        assert done.returncode == 0, done.stderr
    finally:
        own(cluster, None, None, None)


def test_who_owns_a_namespace_and_nothing_else_installs_and_upgrades_a_release_in_it(
    cluster: ApiServer, release: Release
) -> None:
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
