"""Fixtures for every suite: a real API server for the session, a namespace for a test."""

from collections.abc import Iterator

import pytest
from harness.apiserver import ApiServer, install_crds, run_api_server

from embereye_operator.crds import build_crd
from embereye_operator.model import FLEET_TYPES


@pytest.fixture(scope="session")
def cluster() -> Iterator[ApiServer]:
    """A kube-apiserver with etcd, garbage collection where it can be had, and our CRDs."""
    with run_api_server() as running:
        install_crds(running, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        yield running


@pytest.fixture
def namespace(cluster: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name
