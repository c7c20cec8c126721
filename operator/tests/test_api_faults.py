"""An operator process behind an API server that fails: nothing dark, nothing orphaned, and the log says it once."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.apiserver import ApiServer, free_ports, path_of, wait_for

from .faulty import FaultyServer, gone, is_watch, is_write, status
from .test_operator import answers, children, create, names, sensor_fleet

pytestmark = pytest.mark.apiserver


class Site:
    """A namespace with one fleet, an operator whose shards are simulated, and a faulty server between."""

    def __init__(self, cluster: ApiServer, namespace: str, proxy: FaultyServer, log: Path) -> None:
        self.cluster, self.namespace, self.proxy, self.log = cluster, namespace, proxy, log
        self.fleet = path_of(create(cluster, sensor_fleet(namespace, shards=2, autoscaling={"mode": "none"})))

    def covered(self, shards: int) -> bool:
        """Whether all is as declared: the children, one owner a device, and the status."""
        found = children(self.cluster, self.namespace)
        fleet = self.cluster.get(self.fleet)
        told = fleet.get("status") or {}
        if told.get("observedGeneration") != fleet["metadata"]["generation"] or told.get("readyShards") != shards:
            return False
        # Which of them go is the operator's choice, and their Services are kept.
        shard_names = {name for kind, name in found if kind == "Deployment"}
        others = {key for key in found if key[0] not in {"Deployment", "Service"}}
        data = found["ConfigMap", "hall-sensors-placement"]["data"]
        assignments = [json.loads(text) for name, text in data.items() if name != "placement.json"]
        owned = sorted(device["id"] for entry in assignments for device in entry.get("devices", []))
        conditions = {entry["type"]: entry["status"] for entry in told["conditions"]}
        return (
            conditions["Covered"] == "True"
            and conditions["Progressing"] == "False"
            and owned == ["s-0", "s-1", "s-2", "s-3"]
            and {entry["shard"] for entry in assignments} == shard_names
            and len(shard_names) == shards
            and others == {key for key in names(1) if key[0] not in {"Deployment", "Service"}}
        )

    def scale(self, shards: int) -> None:
        self.cluster.merge(f"{self.fleet}/scale", {"spec": {"replicas": shards}})

    def heals(self, shards: int, seconds: float = 45) -> None:
        deadline = time.monotonic() + seconds
        while not self.covered(shards):
            assert time.monotonic() < deadline, (
                f"{shards} shards: {sorted(children(self.cluster, self.namespace))} {self.told()}"
            )
            time.sleep(0.1)

    def told(self) -> Any:
        return (self.cluster.get(self.fleet) or {}).get("status"), self.log.read_text()[-1500:]

    def warnings(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line for line in lines if " WARNING " in line or " ERROR " in line]


@pytest.fixture
def site(cluster: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Site]:
    log = tmp_path / "log"
    (port,) = free_ports(1)
    with FaultyServer(cluster, tmp_path) as proxy:
        command = [sys.executable, "-m", "embereye_operator.simulated", "--image=test", "--hub=127.0.0.1:9",
                   f"--namespace={namespace}", f"--health-port={port}"]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env={**os.environ, "KUBECONFIG": str(proxy.kubeconfig)}, stdout=out, stderr=out
            )
        try:
            site = Site(cluster, namespace, proxy, log)
            wait_for(lambda: answers(port), "an operator that answers")
            site.heals(2, 20)
            yield site
            assert process.poll() is None, "it lives on"
            wait_for(lambda: answers(port), "an operator that is well")
        finally:
            process.kill()
            process.wait(10)


def storm(code: int, share: int, **headers: str) -> Callable[[Any], Any]:
    """Of each `share` requests that are no watch, only the last is served."""
    count = itertools.count(1)

    def judge(request: Any) -> Any:
        if is_watch(request) or next(count) % share == 0:
            return None
        return status(code, "the server is not well", **headers)

    return judge


def test_watches_that_are_cut_or_too_old_are_taken_up_again(site: Site) -> None:
    site.proxy.cut()
    site.scale(3)
    site.heals(3)
    first = itertools.count()
    site.proxy.judge = lambda request: gone() if is_watch(request) and next(first) < 5 else None
    site.proxy.cut()
    site.scale(1)
    site.heals(1)


@pytest.mark.parametrize(("code", "headers"), [(500, {}), (429, {"Retry-After": "1"}), (409, {})])
def test_a_storm_of_errors_is_outlived_and_told_once(site: Site, code: int, headers: dict[str, str]) -> None:
    site.proxy.judge = storm(code, 4, **headers)
    site.scale(3)
    wait_for(lambda: site.proxy.answered[code] >= 3, "some errors")
    time.sleep(3)
    site.proxy.judge = lambda _: None
    site.heals(3)
    told = [line for line in site.warnings() if "hall" in line]
    assert 1 <= len(told) <= 6, "the reason, not every attempt"


def test_retry_after_is_honoured(site: Site) -> None:
    times = []

    def judge(request: Any) -> Any:
        if not is_write(request) or len(times) == 3:
            return None
        times.append(time.monotonic())
        return status(429, "too many requests", **{"Retry-After": "2"})

    site.proxy.judge = judge
    site.scale(3)
    site.heals(3)
    assert len(times) == 3
    assert min(after - before for before, after in itertools.pairwise(times)) >= 2.0


@pytest.mark.parametrize("seconds", [10, pytest.param(75, marks=pytest.mark.slow)])
def test_a_server_that_is_away_changes_nothing_and_is_told_once(site: Site, seconds: int) -> None:
    before = children(site.cluster, site.namespace)
    site.proxy.down = True
    site.proxy.cut()
    site.scale(3)
    time.sleep(seconds)
    after = children(site.cluster, site.namespace)
    assert {key: child["metadata"]["uid"] for key, child in before.items()} == {
        key: child["metadata"]["uid"] for key, child in after.items()
    }
    site.proxy.down = False
    site.heals(3, 60)
    assert len(site.warnings()) <= 4, site.warnings()


def test_a_fleet_that_is_deleted_in_the_middle_of_a_handover_leaves_nothing(site: Site) -> None:
    site.scale(3)
    wait_for(lambda: ("Deployment", "hall-sensors-2") in children(site.cluster, site.namespace), "a third shard")
    site.cluster.request("DELETE", site.fleet)
    if site.cluster.collects_garbage:
        wait_for(lambda: not children(site.cluster, site.namespace), "no children")
        time.sleep(3)
        assert not children(site.cluster, site.namespace), "nothing is made for a fleet that is gone"
