"""Passes that fail against a real API server: the fleet, its Events and /metrics report it."""

from typing import Any

import pytest
from aiohttp import web
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer

from ..faulty import status
from ..site import Site

pytestmark = pytest.mark.apiserver


def test_a_quota_on_config_maps_is_reported(site: Site, cluster: ApiServer, namespace: str) -> None:
    name = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/hall-sensors-placement")
    wait_for(lambda: cluster.get(f"/api/v1/namespaces/{namespace}/configmaps/hall-sensors-placement"), "it is back")
    site.wait_until_healed(2)
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"count/configmaps": "0"}
    cluster.request("POST", quotas, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    # Without a controller manager, the test counts.
    cluster.merge(f"{quotas}/none/status", {"status": {"hard": hard, "used": {"count/configmaps": "0"}}})
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/hall-sensors-placement")
    wait_for(lambda: site.conditions().get("Degraded") == ("True", "ApplyRefused"), "a fleet that says so")
    wait_for(lambda: site.events("ApplyRefused"), "an Event")
    (event,) = site.events("ApplyRefused")
    assert "exceeded quota" in event["message"]
    wait_for(lambda: site.metric("embereye_fleet_condition", condition="Degraded") == 1, "a metric")
    assert len(cluster.get(name)["items"]) == 2, "running shards continue"
    cluster.request("DELETE", f"{quotas}/none")
    site.wait_until_healed(2)
    # The status is written before the pass that wrote it has ended and is counted.
    wait_for(lambda: site.metric("embereye_fleet_condition", condition="Degraded") == 0, "a metric of that")


def test_a_fleet_that_cannot_be_parsed_is_reported(site: Site, cluster: ApiServer) -> None:
    """The fleet was stored under an older schema."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sensorfleets.embereye.dev"
    before = cluster.get(path)["spec"]["versions"]
    lax = cluster.get(path)["spec"]["versions"]
    schema = lax[0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema.pop("x-kubernetes-validations", None)
    wait_for(
        lambda: site.metric("embereye_fleet_condition", condition="Covered") == 1, "the metric of the true condition"
    )
    cluster.merge(path, {"spec": {"versions": lax}})
    try:
        wait_for(lambda: _is_accepted(cluster, site.fleet, {"spec": {"deadline": "soon"}}), "a lax schema")
        wait_for(lambda: site.conditions().get("Degraded") == ("True", "SpecInvalid"), "a fleet that says so")
        assert site.conditions()["Covered"] == ("Unknown", "SpecInvalid")
        assert site.metric("embereye_fleet_condition", condition="Covered") == 0
        assert site.metric("embereye_fleet_condition", condition="Degraded") == 1
        wait_for(lambda: site.events("SpecInvalid"), "an Event")
        assert "deadline" in site.events("SpecInvalid")[0]["message"]
        wait_for(lambda: (site.metric("embereye_operator_failures_total") or 0) >= 4, "more attempts")
        assert len(site.events("SpecInvalid")) == 1, "one Event with a count"
        cluster.merge(site.fleet, {"spec": {"deadline": "5s"}})
        site.wait_until_healed(2)
        wait_for(lambda: site.metric("embereye_fleet_condition", condition="Covered") == 1, "a metric of that")
    finally:
        cluster.merge(path, {"spec": {"versions": before}})


def _is_accepted(cluster: ApiServer, path: str, patch: Any) -> bool:
    try:
        cluster.merge(path, patch)
    except Exception:  # the previous schema is still in force
        return False
    return bool(cluster.get(path)["spec"]["deadline"] == "soon")


def test_an_unwritable_child_is_reported(site: Site) -> None:
    def judge(request: web.Request) -> web.StreamResponse | None:
        if request.method == "PATCH" and "/deployments/" in request.path:
            return status(500, 'failed calling webhook "vet.example.org": connection refused')
        return None

    site.proxy.judge = judge
    site.scale(3)
    wait_for(lambda: site.conditions().get("Degraded") == ("True", "ReconcileFailed"), "a fleet that says so")
    assert site.conditions()["Covered"][0] == "Unknown"
    assert site.metric("embereye_fleet_condition", condition="Covered") == 0
    assert site.metric("embereye_fleet_required_shards") is None, "unknown is not a number"
    wait_for(lambda: site.events("ReconcileFailed"), "an Event")
    (event,) = site.events("ReconcileFailed")
    assert "vet.example.org" in event["message"]
    assert "Deployment" in event["message"]
    site.proxy.judge = lambda _: None
    site.wait_until_healed(3)
    wait_for(lambda: site.metric("embereye_fleet_condition", condition="Covered") == 1, "a metric of that")
    assert site.metric("embereye_fleet_required_shards") is not None


def test_a_connection_broken_during_an_events_write_loses_nothing(site: Site) -> None:
    broken = 0

    def judge(request: web.Request) -> web.StreamResponse | None:
        nonlocal broken
        if request.method == "POST" and request.path.endswith("/events") and broken < 3:
            broken += 1
            assert request.transport
            request.transport.abort()
            return web.Response()
        return None

    known = {event["metadata"]["name"] for event in site.events("NotReady")}
    failures = site.metric("embereye_operator_failures_total")
    site.proxy.judge = judge
    site.scale(3)
    site.wait_until_healed(3)
    assert site.metric("embereye_operator_failures_total") == failures, "no pass failed"

    def is_recorded() -> bool:
        now = site.events("NotReady")
        return bool({event["metadata"]["name"] for event in now} - known) or any(event["count"] > 1 for event in now)

    wait_for(is_recorded, "the Event, later", 90)
    assert broken == 3
