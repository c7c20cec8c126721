"""Fixtures: a real API server for the session, a namespace and an operator process for a test."""

from collections.abc import Iterator

import pytest

from embereye_operator.crds import build_crd
from embereye_operator.model import FLEET_TYPES

from .cluster import Cluster, install_crds, run_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with run_cluster() as running:
        install_crds(running, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        yield running


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name
