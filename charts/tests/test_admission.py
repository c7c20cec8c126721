"""The chart's policy against two fleets that declare one device or port, on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
from harness.cluster.chart import NAMESPACE, render, template
from harness.eventually import wait_for
from harness.servers.apiserver import ApiError, ApiServer, path_of

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.shared import API_VERSIONS
from embereye_operator.decide.claims import Claims, claims_of

POLICIES = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def policies(*values: str) -> list[dict[str, Any]]:
    return [manifest for manifest in render(*values) if manifest["kind"] in POLICIES]


def sensors(name: str, namespace: str, *ids: str, version: str = API_VERSIONS[0], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": version, "kind": "SensorFleet", "metadata": {"name": name, "namespace": namespace},
        "spec": {"sensors": [{"id": device, "zone": "hall"} for device in ids], **spec},
    }  # fmt: skip


def cameras(name: str, namespace: str, *ids: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSIONS[0], "kind": "CameraFleet", "metadata": {"name": name, "namespace": namespace},
        "spec": {"cameras": [{"id": device, "zone": "hall", "source": "push"} for device in ids], **spec},
    }  # fmt: skip


def node_ports(**ports: int) -> dict[str, Any]:
    return {"expose": {"type": "NodePort", "advertisedHost": "10.0.0.1", "ports": ports}}


def create(cluster: ApiServer, manifest: dict[str, Any]) -> Any:
    return cluster.request("POST", path_of(manifest, name=False), manifest)


def refusal(cluster: ApiServer, manifest: dict[str, Any]) -> str:
    """Return why the API server would refuse this new fleet; empty if it would not."""
    try:
        cluster.request("POST", f"{path_of(manifest, name=False)}?dryRun=All", manifest)
    except ApiError as error:
        if error.code != 422:
            raise
        return error.message
    return ""


def create_compared(cluster: ApiServer, fleet: dict[str, Any]) -> Any:
    """Create a fleet that has a device, and wait until the policy compares others with it."""
    created = create(cluster, fleet)
    metadata = {**fleet["metadata"], "name": "probe"}
    wait_for(lambda: refusal(cluster, {**fleet, "metadata": metadata}), f"a comparison with {fleet['metadata']}")
    return created


@pytest.fixture(scope="module")
def denying(cluster: ApiServer) -> Iterator[str]:
    """Install the policy after two fleets of a namespace declared one device; yields the namespace."""
    name = "admission-before"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for fleet in ("north", "south"):
        create(cluster, sensors(fleet, name, "s-1", **node_ports(grpc=30001)))
    manifests = policies("--set", "operator.clusterWide=true", "--set", "admission.shared=Deny")
    for manifest in manifests:
        create(cluster, manifest)
    create_compared(cluster, sensors("first", name, "s-0"))
    create_compared(cluster, cameras("first", name, "c-0"))
    yield name
    for manifest in manifests:
        cluster.request("DELETE", path_of(manifest))


@pytest.mark.apiserver
@pytest.mark.usefixtures("denying")
@pytest.mark.parametrize("version", API_VERSIONS)
def test_a_fleet_with_a_device_of_another_one_is_refused_by_name(
    cluster: ApiServer, namespace: str, version: str
) -> None:
    create_compared(cluster, sensors("hall", namespace, "s-1", "s-2", "s-3"))
    message = refusal(cluster, sensors("yard", namespace, "s-3", "s-4", version=version))
    assert message.endswith(
        "denied request: s-3 is also declared by SensorFleet hall: two fleets would watch one device, and it could "
        "confirm its own alarm. Remove it from one of them."
    )
    assert "s-1 and 1 more are also declared by SensorFleet hall" in refusal(
        cluster, sensors("yard", namespace, "s-1", "s-2", version=version)
    )
    assert not refusal(cluster, sensors("yard", namespace, "s-4", version=version))


CASES = {
    "another device": (("hall", sensors, "s-1", {}), ("yard", sensors, "s-2", {})),
    "one device": (("hall", sensors, "s-1", {}), ("yard", sensors, "s-1", {})),
    "one camera": (("hall", cameras, "s-1", {}), ("yard", cameras, "s-1", {})),
    "a camera with a sensor's id": (("hall", sensors, "s-1", {}), ("yard", cameras, "s-1", {})),
    "one port": (
        ("hall", sensors, "s-1", node_ports(grpc=30041)), ("yard", sensors, "s-2", node_ports(tcp=30041)),
    ),
    "a sensors' port for cameras": (
        ("hall", sensors, "s-1", node_ports(http=30041)), ("yard", cameras, "s-2", node_ports(grpc=30041)),
    ),
    "other ports": (
        ("hall", sensors, "s-1", node_ports(grpc=30041)), ("yard", sensors, "s-2", node_ports(grpc=30042)),
    ),
    "the last shard's port": (
        ("hall", sensors, "s-1", {"shards": 3, **node_ports(shards=30045)}),
        ("yard", cameras, "s-2", node_ports(grpc=30047)),
    ),
    "the port behind the last shard's": (
        ("hall", sensors, "s-1", {"shards": 3, **node_ports(shards=30045)}),
        ("yard", cameras, "s-2", node_ports(grpc=30048)),
    ),
    "ranges of shards that overlap": (
        ("hall", sensors, "s-1", {"shards": 3, **node_ports(shards=30045)}),
        ("yard", sensors, "s-2", {"shards": 3, **node_ports(shards=30043)}),
    ),
    "a port that is not exposed": (
        ("hall", sensors, "s-1", node_ports(grpc=30041)),
        ("yard", sensors, "s-2", {"expose": {"type": "LoadBalancer", "ports": {"grpc": 30041}}}),
    ),
}  # fmt: skip


@pytest.mark.apiserver
@pytest.mark.usefixtures("denying")
@pytest.mark.parametrize("fleets", CASES.values(), ids=CASES)
def test_the_policy_refuses_what_the_operator_would_report(cluster: ApiServer, namespace: str, fleets: Any) -> None:
    first, second = (build(name, namespace, device, **spec) for name, build, device, spec in fleets)
    claims = Claims()
    for manifest in (first, second):
        fleet = parse_fleet(manifest)
        reported = claims.note(fleet.key, claims_of(fleet, [device.id for device in fleet.devices], fleet.spec.shards))
    create_compared(cluster, first)
    message = refusal(cluster, second)
    assert bool(message) == bool(reported), message
    if message:
        assert f"also declared by {first['kind']} hall: " in message


@pytest.mark.apiserver
def test_fleets_that_shared_something_before_stay_editable(cluster: ApiServer, denying: str, namespace: str) -> None:
    path = path_of(sensors("north", denying))
    cluster.merge(path, {"metadata": {"labels": {"site": "north"}}, "spec": {"shards": 2}})
    more = [{"id": device, "zone": "hall"} for device in ("s-1", "s-2")]
    cluster.merge(path, {"spec": {"sensors": more}})
    create_compared(cluster, sensors("east", denying, "s-9"))
    with pytest.raises(ApiError, match="s-9 is also declared by SensorFleet east"):
        cluster.merge(path, {"spec": {"sensors": [*more, {"id": "s-9", "zone": "hall"}]}})
    cluster.merge(path, {"spec": {"sensors": more[1:]}})
    with pytest.raises(ApiError, match="s-1 is also declared by SensorFleet south"):
        cluster.merge(path, {"spec": {"sensors": more}})
    # Copies of a manifest in several namespaces are usual.
    assert not refusal(cluster, sensors("north", namespace, "s-1"))


@pytest.mark.apiserver
@pytest.mark.usefixtures("denying")
def test_the_device_of_a_fleet_that_is_being_deleted_is_free(cluster: ApiServer, namespace: str) -> None:
    leaving = sensors("hall", namespace, "s-1")
    leaving["metadata"]["finalizers"] = ["example.com/waits"]
    create_compared(cluster, {**leaving})
    cluster.request("DELETE", path_of(leaving))
    wait_for(lambda: not refusal(cluster, sensors("yard", namespace, "s-1")), "the device to be free")
    cluster.merge(path_of(leaving), {"metadata": {"finalizers": None}})


@pytest.mark.apiserver
@pytest.mark.usefixtures("denying")
@pytest.mark.parametrize(("number", "compared"), [(500, True), (600, False)])
def test_a_fleet_that_is_too_large_to_compare_is_admitted(
    cluster: ApiServer, namespace: str, number: int, compared: bool
) -> None:
    ids = [f"sensor-{index:05}" for index in range(number)]
    create(cluster, sensors("hall", namespace, *ids))
    wait_for(lambda: refusal(cluster, sensors("probe", namespace, ids[-1])), "a comparison")
    assert bool(refusal(cluster, sensors("yard", namespace, *ids))) == compared


@pytest.mark.apiserver
@pytest.mark.usefixtures("denying")
def test_a_warning_admits_the_fleet(cluster: ApiServer, namespace: str) -> None:
    create_compared(cluster, sensors("hall", namespace, "s-1"))
    *_, binding = policies("--set", "operator.clusterWide=true", "--set", "admission.shared=Warn")
    yard = sensors("yard", namespace, "s-1")
    cluster.merge(path_of(binding), binding)
    try:
        wait_for(lambda: not refusal(cluster, yard), "the binding to change")
        cluster.warnings.clear()
        create(cluster, yard)
        (warning,) = cluster.warnings
        assert "s-1 is also declared by SensorFleet hall: two fleets would watch one device" in warning
    finally:
        cluster.merge(path_of(binding), {"spec": {"validationActions": ["Deny"]}})


def test_only_the_namespaces_of_the_operator_are_checked() -> None:
    assert policies() == []
    for values, names in (((), [NAMESPACE]), (("--set", "operator.namespaces={north,south}"), ["north", "south"])):
        *_, binding = policies("--set", "admission.shared=Deny", *values)
        (selected,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert selected["values"] == names
    *_, binding = policies("--set", "admission.shared=Deny", "--set", "operator.clusterWide=true")
    assert "matchResources" not in binding["spec"]


def test_another_reaction_is_refused() -> None:
    refused = template("--set", "admission.shared=Audit")
    assert refused.returncode != 0
    assert "shared" in refused.stderr
