"""Helm's upgrades of a release, on a real API server; nothing runs there."""

import subprocess
from collections.abc import Iterator

import pytest
from harness.cluster.chart import CHART, helm
from harness.servers.apiserver import ApiServer

RELEASE = "embereye-upgraded"

pytestmark = pytest.mark.apiserver


class Release:
    def __init__(self, cluster: ApiServer, namespace: str) -> None:
        self._place = ("--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace)
        self.namespace = namespace

    def __call__(self, command: str, *values: str) -> subprocess.CompletedProcess[str]:
        settings = [argument for value in ("crds.enabled=false", *values) for argument in ("--set", value)]
        return helm(command, RELEASE, str(CHART), *self._place, *settings)

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


def test_a_release_of_its_own_namespace_is_upgraded_unasked(release: Release) -> None:
    for command in ("install", "upgrade"):
        done = release(command)
        assert done.returncode == 0, done.stderr
