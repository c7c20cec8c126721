"""Two operator processes and one Lease against a real API server."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness.servers.apiserver import ApiServer, path_of, wait_for

from .test_operator import children, create, has_status, names, operator, sensor_fleet, settled

pytestmark = pytest.mark.apiserver


def is_leading(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            return "embereye_operator_leading 1.0" in response.read().decode()
    except OSError:
        return False  # it starts


def owners(found: Any) -> Any:
    return json.loads(found["ConfigMap", "hall-sensors-placement"]["data"]["placement.json"])["devices"]


def test_the_other_operator_takes_over_and_moves_nothing(
    cluster: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEREYE_LEASE", f"{namespace}/operator")
    with (
        operator(cluster, tmp_path / "a", namespace) as (one, one_port),
        operator(cluster, tmp_path / "b", namespace) as (other, other_port),
    ):
        both = [(one, one_port), (other, other_port)]

        def leader() -> Any:
            found = [entry for entry in both if entry[0].poll() is None and is_leading(entry[1])]
            return found[0] if len(found) == 1 else None

        first = wait_for(leader, "one leader")
        fleet = create(cluster, sensor_fleet(namespace, shards=2))
        settled(cluster, namespace, names(2))
        has_status(cluster, fleet)
        time.sleep(3)
        before = children(cluster, namespace)
        os.kill(first[0].pid, signal.SIGKILL)
        first[0].wait()
        killed = time.monotonic()
        cluster.merge(path_of(fleet), {"spec": {"shards": 3}})
        settled(cluster, namespace, names(3))
        assert time.monotonic() - killed < 30
        second = wait_for(leader, "another leader")
        assert second != first
        assert owners(children(cluster, namespace)) == owners(before)
        os.kill(second[0].pid, signal.SIGTERM)
        assert second[0].wait(30) == 0
        lease = cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator")
        assert lease["spec"]["holderIdentity"] in {"", None} or "holderIdentity" not in lease["spec"]
