"""Children of a fleet, without a runtime."""

import base64
import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embereye.shard.assignment import load
from embereye.units import SECOND
from embereye.v1.shard_pb2 import ClientCertificates, Peer
from embereye.v1.types_pb2 import Device
from embereye_operator.api.fleets import Fleet, FleetError, parse_fleet
from embereye_operator.api.names import LABEL_SHARD
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.exposure import read_exposure
from embereye_operator.decide.manifests import config_map
from embereye_operator.decide.manifests.children import build_children
from embereye_operator.decide.manifests.config_map import PLAIN_PLACEMENT, build_placement, placement_size
from embereye_operator.decide.manifests.container import PLACEMENT_FOLDER
from embereye_operator.decide.manifests.deployment import ABSENCES, build_deployment
from embereye_operator.decide.manifests.names import served_names
from embereye_operator.decide.manifests.services import build_fleet_service, build_service, peer_address
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.manifests.volumes import credential_volumes
from embereye_operator.decide.placement.assignments import (
    build_assignments,
    build_device,
    decode,
    encode,
    located,
    next_epoch,
)
from embereye_operator.decide.placement.placement import place
from embereye_operator.decide.placement.record import PlacementRecord, read_record
from embereye_operator.runtime.local import liveness

from ...api.test_schema import manifest
from ...fakes import SETTINGS


def fleet(**spec: Any) -> Fleet:
    sensors = [{"id": f"s-{number}", "zone": "hall"} for number in range(5)]
    return parse_fleet(manifest(spec={"sensors": sensors, **spec}, uid="u"))


def assigned(owner: Fleet, count: int = 2, epoch: int = 1) -> Any:
    devices = [build_device(device, owner) for device in owner.devices]
    members = {name: peer_address(owner, name) for name in (owner.names.shard(index) for index in range(count))}
    placement = place([device.id for device in devices], list(members), {})
    return build_assignments(owner, devices, placement, members=members, others=[], epoch=epoch), placement


def built(owner: Fleet, settings: Settings = SETTINGS, **options: Any) -> list[Manifest]:
    assignments, placement = assigned(owner)
    return build_children(
        owner, settings, assignments=assignments,
        record=PlacementRecord(1, placement, tuple(assignments)).to_manifest(),
        shards=list(assignments), **options,
    )  # fmt: skip


def test_equal_fleets_give_equal_manifests() -> None:
    assert built(fleet()) == built(fleet())


def test_services_of_shards_are_annotated_for_prometheus_on_request() -> None:
    annotated = build_service(fleet(), "hall-sensors-0", scraped=True)["metadata"]["annotations"]
    assert annotated == {
        "prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": "9100",
    }  # fmt: skip
    assert "annotations" not in build_service(fleet(), "hall-sensors-0")["metadata"]


def test_shards_trace_to_the_operators_endpoint_or_not_at_all() -> None:
    def endpoints(settings: Settings) -> set[str]:
        deployments = [child for child in built(fleet(), settings) if child["kind"] == "Deployment"]
        assert deployments
        return {
            entry["value"]
            for child in deployments
            for entry in child["spec"]["template"]["spec"]["containers"][0]["env"]
            if entry["name"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
        }

    assert endpoints(replace(SETTINGS, tracing="http://collector:4317")) == {"http://collector:4317"}
    assert endpoints(SETTINGS) == set()


@pytest.mark.parametrize(
    ("decoding", "expected"), [({}, None), ({"hardware": "none"}, None), ({"hardware": "nvdec"}, "nvdec")]
)
def test_shards_decode_with_the_requested_hardware(decoding: dict[str, str], expected: str | None) -> None:
    cameras = parse_fleet(manifest("CameraFleet", {"decoding": decoding}, uid="u"))
    deployment = next(child for child in built(cameras) if child["kind"] == "Deployment")
    environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    variables = {entry["name"]: entry["value"] for entry in environment if "value" in entry}
    assert variables.get("EMBEREYE_HARDWARE_DECODING") == expected


def test_every_assignment_has_the_canarys_interval() -> None:
    assignments, _ = assigned(fleet(canary={"interval": "30s"}))
    assert {(entry.canary.interval_ns, entry.canary.within_ns) for entry in assignments.values()} == {
        (30 * SECOND, 10 * SECOND)
    }
    off, _ = assigned(fleet(canary={"interval": "0s"}))
    assert {entry.canary.interval_ns for entry in off.values()} == {0}


def test_each_device_is_in_one_assignment_and_elsewhere_in_the_others() -> None:
    bare, placement = assigned(fleet(), count=3)
    assignments = {name: located(entry, placement) for name, entry in bare.items()}
    for device in ("s-0", "s-1", "s-2", "s-3", "s-4"):
        owners = [name for name, entry in assignments.items() if device in {owned.id for owned in entry.devices}]
        assert len(owners) == 1
        for name, entry in assignments.items():
            assert (device in entry.elsewhere) is (name not in owners)
    assert {peer.grpc for peer in assignments["hall-sensors-0"].peers} == {
        "hall-sensors-1.default.svc:50051",
        "hall-sensors-2.default.svc:50051",
    }


def test_an_assignment_survives_a_round_trip() -> None:
    assignments, _ = assigned(fleet())
    for assignment in assignments.values():
        assert decode(encode(assignment)) == assignment
    assert decode("nonsense") is None


def written(files: Manifest, folder: Path) -> Path:
    """Write the placement ConfigMap as it is mounted."""
    for name, text in (files.get("data") or {}).items():
        (folder / name).write_text(text)
    for name, content in (files.get("binaryData") or {}).items():
        (folder / name).write_bytes(base64.b64decode(content))
    return folder


@pytest.mark.parametrize("limit", [0, PLAIN_PLACEMENT])
def test_shards_and_the_next_leader_read_the_decisions_from_the_files(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_map, "PLAIN_PLACEMENT", limit)
    owner = fleet()
    assignments, placement = assigned(owner, count=3, epoch=7)
    record = PlacementRecord(7, placement, tuple(assignments), tuple(assignments), assignments=assignments)
    files = build_placement(owner, assignments=assignments, record=record.to_manifest())
    assert ("data" in files) is (limit > 0)
    assert read_record(owner, files) == record
    for name, assignment in assignments.items():
        assert load(written(files, tmp_path) / f"{name}.json") == located(assignment, placement)


def test_ten_thousand_devices_on_twenty_shards_fit_into_a_config_map(tmp_path: Path) -> None:
    owner = fleet()
    ids = [f"building-{n % 40:02}.floor-{n % 17:02}.sensor-{n:05}" for n in range(10_000)]
    devices = [
        Device(id=name, zone=name[:20], location=f"room {n % 300}, left of door {n}") for n, name in enumerate(ids)
    ]
    members = {owner.names.shard(index): Peer(shard=owner.names.shard(index)) for index in range(20)}
    placement = place(ids, list(members), {})
    assignments = build_assignments(owner, devices, placement, members=members, others=[], epoch=3)
    record = PlacementRecord(3, placement, tuple(members), tuple(members)).to_manifest()
    files = build_placement(owner, assignments=assignments, record=record)
    assert placement_size(files) < 500_000
    read = load(written(files, tmp_path) / "hall-sensors-7.json")
    assert read is not None
    assert (len(read.devices), len(read.elsewhere)) == (500, 9_500)
    assert read_record(owner, files).devices == placement


def test_a_corrupt_packed_file_is_left_out() -> None:
    broken = {"binaryData": {"placement.json.gz": "bm8gZ3ppcA==", "hall-sensors-0.json.gz": "Zm9v"}}
    assert read_record(fleet(), broken) == PlacementRecord()


class TestEpoch:
    def test_stays_while_nothing_changes(self) -> None:
        stored, _ = assigned(fleet(), epoch=7)
        wanted, _ = assigned(fleet(), epoch=0)
        assert next_epoch(wanted, stored, 7) == 7

    def test_starts_at_one(self) -> None:
        wanted, _ = assigned(fleet(), epoch=0)
        assert next_epoch(wanted, {}, 0) == 1

    def test_grows_with_a_setting(self) -> None:
        stored, _ = assigned(fleet(), epoch=7)
        wanted, _ = assigned(fleet(deadline="6s"), epoch=0)
        assert next_epoch(wanted, stored, 7) == 8

    def test_grows_if_two_shards_with_the_same_device_swap_roles(self) -> None:
        stored, _ = assigned(fleet(), epoch=7)
        assert next_epoch(assigned(fleet())[0], stored, 7, moved=True) == 8

    def test_exceeds_every_known_epoch(self) -> None:
        stored, _ = assigned(fleet(), epoch=7)
        assert next_epoch(assigned(fleet())[0], stored, 12) == 13

    def test_grows_if_a_record_is_corrupt(self) -> None:
        stored, _ = assigned(fleet(), epoch=7)
        assert next_epoch(assigned(fleet())[0], {**stored, "hall-sensors-1": None}, 7) == 8


def test_pods_are_restricted() -> None:
    pod = build_deployment(fleet(), "hall-sensors-0", SETTINGS)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]


@pytest.mark.parametrize("user", [SETTINGS.user, 1001, None])
def test_pods_run_as_the_declared_user_or_the_clusters(user: int | None) -> None:
    pod = build_deployment(fleet(), "hall-sensors-0", replace(SETTINGS, user=user))["spec"]["template"]["spec"]
    inner = pod["containers"][0]["securityContext"]
    users = [
        part[key] for part in (pod["securityContext"], inner) for key in ("runAsUser", "runAsGroup") if key in part
    ]
    assert [*users, pod["securityContext"].get("fsGroup")] == [user] * (len(users) + 1)
    assert len(users) == (0 if user is None else 4)
    assert inner["runAsNonRoot"]


def test_a_shard_has_time_to_drain() -> None:
    pod = build_deployment(fleet(), "hall-sensors-0", SETTINGS)["spec"]["template"]["spec"]
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    environment = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    assert pod["terminationGracePeriodSeconds"] >= (
        sleep + 2 + 5 + float(environment["EMBEREYE_LINGER"]) + float(environment["EMBEREYE_SUCCESSOR"])
    )


def test_a_shards_assignment_is_in_the_mounted_placement() -> None:
    config_map, deployment = built(fleet())[0], build_deployment(fleet(), "hall-sensors-0", SETTINGS)
    pod = deployment["spec"]["template"]["spec"]
    environment = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    assert environment["EMBEREYE_ASSIGNMENT"] == f"{PLACEMENT_FOLDER}/hall-sensors-0.json"
    assert "hall-sensors-0.json" in config_map["data"]
    assert pod["volumes"][0]["configMap"]["name"] == config_map["metadata"]["name"]
    assert environment["EMBEREYE_FLEET"] == "default/sensors/hall"


@pytest.mark.parametrize(
    ("declared", "resources"),
    [
        ({}, {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}),
        ({"limits": {"memory": "64Mi"}}, {"requests": {"cpu": "50m"}, "limits": {"memory": "64Mi"}}),
        ({"requests": {"memory": "2Gi"}}, {"requests": {"cpu": "50m", "memory": "2Gi"}}),
        (
            {"limits": {"cpu": "2"}},
            {"requests": {"memory": "128Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        ),
    ],
)
def test_a_shard_is_never_best_effort_and_no_default_contradicts_the_spec(declared: Any, resources: Any) -> None:
    pod = build_deployment(fleet(template={"resources": declared}), "hall-sensors-0", SETTINGS)["spec"]["template"][
        "spec"
    ]
    assert pod["containers"][0]["resources"] == resources


@pytest.mark.parametrize("replaces", ["", "uid"])
@pytest.mark.parametrize("declared", [[], [{"topologyKey": "rack"}]])
def test_shards_are_spread_over_nodes_even_without_zones(declared: list[dict[str, str]], replaces: str) -> None:
    # A scheduler ignores all constraints on a node that lacks the label of any.
    spread_fleet = fleet(template={"topologySpread": declared})
    pod = build_deployment(spread_fleet, "hall-sensors-0", SETTINGS, (), replaces)["spec"]["template"]["spec"]
    keys = [spread["topologyKey"] for spread in pod["topologySpreadConstraints"]]
    assert keys == (["rack"] if declared else ["kubernetes.io/hostname"])
    terms = (
        pod.get("affinity", {}).get("podAntiAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
    )
    far = {(term["podAffinityTerm"]["topologyKey"], LABEL_SHARD in str(term["podAffinityTerm"])) for term in terms}
    assert (("topology.kubernetes.io/zone", False) in far) == (not declared)
    assert (("kubernetes.io/hostname", True) in far) == bool(replaces)


def test_the_template_reaches_the_pod() -> None:
    template = {
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
        "nodeSelector": {"site": "a"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "topologySpread": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
    }
    pod = build_deployment(fleet(template=template), "hall-sensors-0", SETTINGS)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == template["resources"]  # nothing in addition
    assert pod["nodeSelector"] == {"site": "a"}
    assert pod["tolerations"] == [{"key": "edge", "operator": "Exists"}, *ABSENCES]
    assert pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_pull_secrets_of_the_release_and_of_the_fleet_are_combined() -> None:
    settings = replace(SETTINGS, image_pull_secrets=("mirror", "registry"))

    def secrets(template: Any) -> list[str]:
        pod = build_deployment(fleet(template=template), "hall-sensors-0", settings)["spec"]["template"]["spec"]
        return [entry["name"] for entry in pod["imagePullSecrets"]]

    assert secrets({}) == ["mirror", "registry"]
    assert secrets({"imagePullSecrets": [{"name": "registry"}, {"name": "own"}]}) == ["registry", "own", "mirror"]


def test_shards_listen_on_every_address_by_default_and_do_not_roll_for_it() -> None:
    def listening(host: str, before: dict[str, str]) -> set[str]:
        deployments = [
            m for m in built(fleet(), replace(SETTINGS, host=host), hosts=before) if m["kind"] == "Deployment"
        ]
        containers = [m["spec"]["template"]["spec"]["containers"][0] for m in deployments]
        return {entry["value"] for c in containers for entry in c["env"] if entry["name"] == "EMBEREYE_HOST"}

    as_before = {fleet().names.shard(index): "0.0.0.0" for index in range(8)}
    assert listening("", {}) == {"[::]"}
    assert listening("", as_before) == {"0.0.0.0"}
    assert listening("10.0.0.1", as_before) == {"10.0.0.1"}


def test_a_changed_assignment_does_not_roll_pods() -> None:
    before, after = built(fleet()), built(fleet(deadline="9s"))
    assert before[0] != after[0]
    assert copy.deepcopy(before[1:]) == after[1:]


@pytest.mark.parametrize(
    "secrets",
    [
        ["cam.1", "cam-1"],
        [f"{'a' * 60}-1", f"{'a' * 60}-2", "a" * 51],
        [*(".".join(letters) for letters in ("ab", "a-b", "ab-")), "a-b", "a-b-", "a.b"],
        ["cam-1", "cam.1", credential_volumes(["cam-1", "cam.1"])["cam.1"].removeprefix("credentials-")],
    ],
)
def test_volume_names_of_secrets_are_unique_dns_labels(secrets: list[str]) -> None:
    names = credential_volumes(secrets)
    assert set(names) == set(secrets)
    assert len(set(names.values())) == len(set(secrets))
    assert all(re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names.values())
    pod = build_deployment(fleet(), "hall-sensors-0", SETTINGS, sorted(set(secrets)))["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert volumes.pop("identity") == "hall-sensors-0-identity"
    assert volumes == {volume: secret for secret, volume in names.items()}
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert all(mounts[f"/etc/embereye/credentials/{secret}"] == name for secret, name in names.items())


def test_a_volume_has_its_secrets_name_if_that_is_unique() -> None:
    assert credential_volumes(["lobby.cam", "yard"]) == {
        "lobby.cam": "credentials-lobby-cam",
        "yard": "credentials-yard",
    }


@pytest.mark.parametrize(
    ("name", "index"),
    [("hall-sensors-0", 0), ("hall-sensors-12", 12), ("hall-sensors", None), ("hall-sensors-x", None),
     ("hall-sensors-0-sensors-1", None), ("other-sensors-0", None)],
)  # fmt: skip
def test_a_shards_index_is_read_from_its_name(name: str, index: int | None) -> None:
    assert fleet().names.index(name) == index


def test_raw_readings_are_stored_on_request() -> None:
    def pod(**telemetry: Any) -> tuple[dict[str, str], list[Manifest], list[Manifest]]:
        spec = build_deployment(fleet(telemetry=telemetry), "hall-sensors-0", SETTINGS)["spec"]["template"]["spec"]
        [container] = spec["containers"]
        return (
            {variable["name"]: variable["value"] for variable in container["env"]},
            container["volumeMounts"],
            spec["volumes"],
        )

    environment, _, _ = pod()
    assert "EMBEREYE_TELEMETRY" not in environment
    environment, mounts, _ = pod(archive=True, size="2Gi")
    assert environment["EMBEREYE_TELEMETRY"] == "/var/lib/embereye/telemetry"
    assert environment["EMBEREYE_TELEMETRY_BYTES"] == str(2 * 1024**3)
    assert "telemetry" not in {mount["name"] for mount in mounts}
    _, mounts, volumes = pod(archive=True, claim="readings")
    assert {"name": "telemetry", "mountPath": "/var/lib/embereye/telemetry"} in mounts
    assert {"name": "telemetry", "persistentVolumeClaim": {"claimName": "readings"}} in volumes
    assert "telemetry" not in {mount["name"] for mount in pod(claim="readings")[1]}


TLS = {"tls": {"clients": {"caRef": {"name": "device-ca"}, "field": "dns", "match": "*.devices.example.org"}}}


@pytest.mark.parametrize("access", [None, TLS])
def test_a_working_shard_on_a_busy_node_is_not_restarted_for_a_late_answer(access: Any) -> None:
    """In a starved cluster, shards that detected within 2 s were restarted: three probes had no answer within 2 s."""
    children = built(fleet(access=access) if access else fleet())
    pod = next(child for child in children if child["kind"] == "Deployment")["spec"]["template"]["spec"]
    probe = pod["containers"][0]["livenessProbe"]
    times = probe["periodSeconds"], probe["timeoutSeconds"], probe["failureThreshold"]
    assert times == (liveness.PERIOD_SECONDS, liveness.TIMEOUT_SECONDS, liveness.FAILURES) == (10, 10, 3)


def test_a_fleet_with_tls_is_probed_without_it_and_has_its_certificates() -> None:
    for access, shown in (
        (TLS, "/etc/embereye/identity"),
        ({"tls": {**TLS["tls"], "secretRef": {"name": "hall-tls"}}}, "/etc/embereye/credentials/hall-tls"),
    ):
        owner = fleet(access=access, listen={"tls": 9002})
        children = built(owner)
        pod = next(child for child in children if child["kind"] == "Deployment")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        assert environment["EMBEREYE_TLS"] == shown
        assert environment["EMBEREYE_CLIENT_CA"] == "/etc/embereye/credentials/device-ca"
        assert environment["EMBEREYE_TLS_PORT"] == "9002"
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        mounted = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        assert mounted >= {"device-ca"}
        service = next(child for child in children if child["kind"] == "Service")
        ports = {port["name"]: port for port in service["spec"]["ports"]}
        assert (ports["tls"]["port"], ports["grpc"]["appProtocol"]) == (9002, "https")
    rules = assigned(fleet(access=TLS, listen={"tls": 9002}))[0]["hall-sensors-0"].sensor.access.certificates
    assert (rules.match, rules.field) == ("*.devices.example.org", ClientCertificates.FIELD_DNS)


def test_a_fleet_without_tls_has_an_unchanged_pod() -> None:
    deployment = next(child for child in built(fleet()) if child["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "TLS" not in str(container)
    assert "grpc" in container["readinessProbe"]


def test_text_over_tls_is_exposed_with_a_certificate_for_the_advertised_name() -> None:
    access = {"open": True, "tls": {"names": ["sensors.example.com"]}}
    expose = {"type": "NodePort", "advertisedHost": "fire.example.com", "ports": {"tls": 30902}}
    exposed = fleet(access=access, listen={"tls": 9002}, expose=expose)
    service = build_fleet_service(exposed)
    assert [(port["name"], port.get("nodePort")) for port in service["spec"]["ports"]] == [
        ("grpc", None), ("tcp", None), ("tls", 30902),
    ]  # fmt: skip
    exposure = read_exposure(exposed, {("Service", "hall-sensors"): service}, [], [])
    assert exposure
    assert [(known.protocol, known.address) for known in exposure.addresses] == [("tls", "fire.example.com:30902")]
    assert served_names(exposed) == ("fire.example.com", "sensors.example.com")


def test_readings_by_http_are_exposed_at_a_port_that_can_be_fixed() -> None:
    expose = {"type": "NodePort", "advertisedHost": "fire.example.com", "ports": {"http": 30080}}
    exposed = fleet(listen={"http": 9080}, expose=expose)
    exposure = read_exposure(exposed, {("Service", "hall-sensors"): build_fleet_service(exposed)}, [], [])
    assert exposure
    assert [(known.protocol, known.address) for known in exposure.addresses] == [("http", "fire.example.com:30080")]


def test_tls_behind_a_gateway_is_refused() -> None:
    gateway = {"type": "Gateway", "advertisedHost": "{name}.example.org", "gateway": {"name": "g"}}
    with pytest.raises(FleetError, match="a gateway ends TLS itself"):
        fleet(access=TLS, expose=gateway)
    assert fleet(access={"open": True}, expose=gateway)


@pytest.mark.parametrize(("number", "control"), [("10.0.0.7", "10.0.0.7:50055"), ("fd00::7", "[fd00::7]:50055")])
def test_only_our_processes_reach_a_shard_without_a_name(number: str, control: str) -> None:
    peer = peer_address(fleet(), "hall-sensors-0", number)
    assert peer.control == control
    assert peer.grpc == "hall-sensors-0.default.svc:50051"


def test_a_port_for_readings_by_http_is_open_everywhere_with_its_tokens() -> None:
    owner = fleet(listen={"http": 9080}, access={"tokensRef": {"name": "device-tokens"}})
    children = built(owner)
    container = next(
        child["spec"]["template"]["spec"] for child in children if child["kind"] == "Deployment"
    )["containers"][0]  # fmt: skip
    assert {"name": "http", "containerPort": 9080, "protocol": "TCP"} in container["ports"]
    assert {"name": "EMBEREYE_HTTP_PORT", "value": "9080"} in container["env"]
    services = [child["spec"]["ports"] for child in children if child["kind"] == "Service"]
    assert services
    for ports in [*services, build_fleet_service(owner)["spec"]["ports"]]:
        assert {"name": "http", "port": 9080, "targetPort": "http", "protocol": "TCP"} in ports
    for policy in (child for child in children if child["kind"] == "NetworkPolicy"):
        assert {"port": "http", "protocol": "TCP"} in policy["spec"]["ingress"][0]["ports"]
    volumes = str([child["spec"]["template"]["spec"]["volumes"] for child in children if child["kind"] == "Deployment"])
    assert "device-tokens" in volumes
