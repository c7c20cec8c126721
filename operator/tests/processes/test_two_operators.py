"""Two operator processes and one Lease against a real API server."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, path_of

from .test_operator import children, create, has_status, names, operator, sensor_fleet, wait_for_children

pytestmark = pytest.mark.apiserver


def is_leading(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            return "embereye_operator_leading 1.0" in response.read().decode()
    except OSError:
        return False  # it is starting


def owners(existing: Any) -> Any:
    return json.loads(existing["ConfigMap", "hall-sensors-placement"]["data"]["placement.json"])["devices"]


def test_the_other_operator_takes_over_and_moves_nothing(
    cluster: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEREYE_LEASE", f"{namespace}/operator")
    with (
        operator(cluster, tmp_path / "a", namespace) as (one_process, one_port),
        operator(cluster, tmp_path / "b", namespace) as (other_process, other_port),
    ):
        both = [(one_process, one_port), (other_process, other_port)]

        def leader() -> Any:
            leaders = [entry for entry in both if entry[0].poll() is None and is_leading(entry[1])]
            return leaders[0] if len(leaders) == 1 else None

        first = wait_for(leader, "one leader")
        fleet = create(cluster, sensor_fleet(namespace, shards=2))
        wait_for_children(cluster, namespace, names(2))
        has_status(cluster, fleet)
        time.sleep(3)
        before = children(cluster, namespace)
        os.kill(first[0].pid, signal.SIGKILL)
        first[0].wait()
        cluster.merge(path_of(fleet), {"spec": {"shards": 3}})
        wait_for_children(cluster, namespace, names(3))
        second = wait_for(leader, "another leader")
        assert second != first
        assert owners(children(cluster, namespace)) == owners(before)
        os.kill(second[0].pid, signal.SIGTERM)
        assert second[0].wait(30) == 0
        lease = cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator")
        assert lease["spec"]["holderIdentity"] in {"", None} or "holderIdentity" not in lease["spec"]
