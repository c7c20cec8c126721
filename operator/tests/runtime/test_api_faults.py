"""An operator behind a failing API server: no device goes dark, no object is orphaned, failures are logged once."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, path_of

from ..api.test_schema import camera, manifest
from ..faulty import gone, is_watch, is_write, status
from ..processes.test_operator import children, create, operator
from ..site import Site

pytestmark = pytest.mark.apiserver


def storm(code: int, share: int, **headers: str) -> Callable[[Any], Any]:
    """Return a judge that serves only the last of each `share` requests, except watches."""
    count = itertools.count(1)

    def judge(request: Any) -> Any:
        if is_watch(request) or next(count) % share == 0:
            return None
        return status(code, "the server is not well", **headers)

    return judge


def test_broken_or_expired_watches_are_resumed(site: Site) -> None:
    site.proxy.cut()
    site.scale(3)
    site.wait_until_healed(3)
    first = itertools.count()
    site.proxy.judge = lambda request: gone() if is_watch(request) and next(first) < 5 else None
    site.proxy.cut()
    site.scale(1)
    site.wait_until_healed(1)


@pytest.mark.parametrize(("code", "headers"), [(500, {}), (429, {"Retry-After": "1"}), (409, {})])
def test_a_storm_of_errors_is_survived_and_logged_once(site: Site, code: int, headers: dict[str, str]) -> None:
    site.proxy.judge = storm(code, 4, **headers)
    site.scale(3)
    wait_for(lambda: site.proxy.answered[code] >= 3, "some errors")
    time.sleep(3)
    site.proxy.judge = lambda _: None
    site.wait_until_healed(3)
    warnings = [line for line in site.warnings() if "hall" in line]
    assert 1 <= len(warnings) <= 6, "the reason, not every attempt"


def test_retry_after_is_honoured(site: Site) -> None:
    times: list[float] = []
    refused: list[str] = []  # the path of the first write: others may be in progress

    def judge(request: Any) -> Any:
        if not is_write(request) or len(times) == 3 or request.path != (refused or [request.path])[0]:
            return None
        refused.append(request.path)
        times.append(time.monotonic())
        return status(429, "too many requests", **{"Retry-After": "2"})

    site.proxy.judge = judge
    site.scale(3)
    site.wait_until_healed(3)
    wait_for(lambda: len(times) == 3, "the write that was refused comes a third time")
    assert min(after - before for before, after in itertools.pairwise(times)) >= 2.0


@pytest.mark.parametrize("seconds", [10, pytest.param(75, marks=pytest.mark.slow)])
def test_an_absent_server_changes_nothing_and_is_logged_once(site: Site, seconds: int) -> None:
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
    site.wait_until_healed(3)
    assert len(site.warnings()) <= 4, site.warnings()


def test_a_fleet_deleted_during_a_handover_leaves_nothing(site: Site) -> None:
    site.scale(3)
    wait_for(lambda: ("Deployment", "hall-sensors-2") in children(site.cluster, site.namespace), "a third shard")
    site.cluster.request("DELETE", site.fleet)
    if site.cluster.collects_garbage:
        wait_for(lambda: not children(site.cluster, site.namespace), "no children")
        time.sleep(3)
        assert not children(site.cluster, site.namespace), "nothing is created for a deleted fleet"


def test_a_new_field_in_the_schema_changes_nothing(site: Site) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sensorfleets.embereye.dev"
    before = site.cluster.get(path)["spec"]
    newer = site.cluster.get(path)["spec"]["versions"]
    fields = newer[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["later"] = {"type": "string", "default": "unknown to this version"}
    site.cluster.merge(path, {"spec": {"versions": newer}})
    try:
        wait_for(lambda: site.cluster.get(site.fleet)["spec"].get("later"), "the new field")
        site.scale(3)
        site.wait_until_healed(3)
    finally:
        site.cluster.merge(path, {"spec": {"versions": before["versions"]}})


def test_two_operators_by_mistake_end_in_a_stable_state(cluster: ApiServer, namespace: str, tmp_path: Path) -> None:
    fleet = create(cluster, manifest(spec={"sensors": [{"id": "s-1", "zone": "hall"}]}, namespace=namespace))
    with operator(cluster, tmp_path / "one", namespace), operator(cluster, tmp_path / "other", namespace):
        wait_for(lambda: (cluster.get(path_of(fleet)) or {}).get("status"), "a status")
        cluster.merge(f"{path_of(fleet)}/scale", {"spec": {"replicas": 3}})
        wait_for(lambda: ("Deployment", "hall-sensors-2") in children(cluster, namespace), "three shards")

        def versions() -> dict[Any, str]:
            return {key: child["metadata"]["resourceVersion"] for key, child in children(cluster, namespace).items()}

        def is_at_rest() -> bool:
            before = versions()
            time.sleep(4)
            return versions() == before

        wait_for(is_at_rest, "two operators that agree")


def test_a_pushing_cameras_address_stays_on_the_server(site: Site) -> None:
    cameras = [camera(id=f"gate-{number}", source=f"rtp://:{5004 + number}") for number in range(4)]
    spec = {"cameras": cameras, "autoscaling": {"mode": "none"}}
    fleet = path_of(create(site.cluster, manifest("CameraFleet", spec, namespace=site.namespace, name="yard")))

    def services() -> dict[str, tuple[str, str]]:
        specs = [child["spec"] for (_, name), child in children(site.cluster, site.namespace).items() if "gate" in name]
        return {spec["clusterIP"]: spec["selector"]["embereye.dev/shard"] for spec in specs}

    wait_for(lambda: len(services()) == 4, "a Service for each camera")
    before = services()
    site.cluster.merge(f"{fleet}/scale", {"spec": {"replicas": 2}})
    wait_for(lambda: len(set(services().values())) == 2, "Services that follow")
    assert set(services()) == set(before), "addresses stay"
