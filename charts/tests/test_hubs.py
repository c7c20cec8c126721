"""Hubs of tenants: the objects of each, and the settings that none inherits from another."""

import json
from typing import Any

import pytest
from harness.cluster.chart import CHART, KUBERNETES, NAMESPACE, helm, render, template

from embereye.hub.mqtt.entities import Topics
from embereye.hub.mqtt.options import read_broker
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.hubs import NamedHub, choose_hub, parse_hubs

TENANTS = (
    "--set", "hubs.north.namespaces={north,annex}", "--set", "hubs.north.hub.retention=30d",
    "--set", "hubs.north.hub.persistence.enabled=false", "--set-json", "hubs.shared={}",
)  # fmt: skip
# Settings of the release's hub that no other hub inherits.
UNSHARED = (
    "--set", "hub.adminToken.existingSecret=the-admins", "--set", "hub.database.dsnSecret.name=the-database",
    "--set", "hub.persistence.existingClaim=the-volume", "--set", "hub.allowedHosts={the-name.example}",
    "--set", "hub.tls.enabled=true", "--set", "hub.tls.existingSecret=the-certificate",
    "--set", "hub.tls.names={the-name.example}", "--set", "hub.webhooks[0].name=the-pager",
    "--set", "hub.webhooks[0].url=https://the-pager.example", "--set", "hub.oidc.issuer=https://the-provider.example",
    "--set", "hub.oidc.clientId=the-client", "--set", "hub.oidc.roles.admin={the-wardens}",
    "--set", "hub.extraArgs={--log-format=json}",
    "--set", "hub.mqtt.broker=mqtts://the-broker.example", "--set", "hub.mqtt.credentials.existingSecret=the-login",
    "--set", "hub.actuators.config.actuators[0].name=the-damper", "--set", "hub.modbus.config.panels[0].name=the-relay",
    "--set", "hub.dc09.config.stations[0].name=the-station", "--set", "hub.archive.config.bucket=the-bucket",
    "--set", "hub.profiles.config.profiles[0].name=the-welding",
    "--set", "hub.selftest.config.tests[0].name=the-lamp", "--set", "hub.statements.site=the-site",
)  # fmt: skip


def objects(*values: str) -> dict[tuple[str, str], Any]:
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in render(*values)}


def arguments(manifests: dict[tuple[str, str], Any], name: str) -> list[str]:
    words: list[str] = manifests["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["args"]
    return words


def declared(manifests: dict[tuple[str, str], Any]) -> tuple[NamedHub, ...]:
    """The hubs in the operator's arguments."""
    (text,) = [word for word in arguments(manifests, "embereye-operator") if word.startswith("--hubs=")]
    return parse_hubs(text.removeprefix("--hubs="))


def test_each_hub_has_all_objects_of_a_hub_and_the_operator_knows_it() -> None:
    manifests = objects(*TENANTS)
    address = f"embereye-{{}}-hub-control.{NAMESPACE}.svc:50053"
    assert declared(manifests) == (
        NamedHub("north", address.format("north"), "embereye-north-hub", ("north", "annex")),
        NamedHub("shared", address.format("shared"), "embereye-shared-hub"),
    )
    kinds = {kind for kind, name in manifests if name == "embereye-hub"}
    assert {kind for kind, name in manifests if name == "embereye-shared-hub"} == kinds
    assert {kind for kind, name in manifests if name == "embereye-north-hub"} == kinds - {"PersistentVolumeClaim"}
    for name in ("north", "shared"):
        assert ("Secret", f"embereye-{name}-hub-admin") in manifests
    assert "--retention=30d" in arguments(manifests, "embereye-north-hub")
    assert "--retention=90d" in arguments(manifests, "embereye-shared-hub")
    assert "--namespace=north,annex" in arguments(manifests, "embereye-north-hub")
    assert not any(word.startswith("--namespace") for word in arguments(manifests, "embereye-shared-hub"))


def test_the_operator_can_write_the_certificate_of_each_hub() -> None:
    rules = objects(*TENANTS)["Role", "embereye-operator-release"]["rules"]
    named = {name for rule in rules for name in rule.get("resourceNames", ())}
    assert named >= {"embereye-hub-identity", "embereye-north-hub-identity", "embereye-shared-hub-identity"}


def test_no_selector_matches_pods_of_another_hub() -> None:
    manifests = objects(*TENANTS, "--set", "monitoring.enabled=true")
    pods = {
        name: manifest["spec"]["template"]["metadata"]["labels"]
        for (kind, name), manifest in manifests.items()
        if kind == "Deployment"
    }
    for (kind, name), manifest in manifests.items():
        if kind == "Service":
            selector = manifest["spec"]["selector"]
        elif kind in {"NetworkPolicy", "PodMonitor"} and not name.endswith("shards"):
            selector = (manifest["spec"].get("podSelector") or manifest["spec"].get("selector"))["matchLabels"]
        else:
            continue
        chosen = [pod for pod, labels in pods.items() if selector.items() <= labels.items()]
        assert chosen == [name.removesuffix("-control")]


def test_settings_that_tenants_must_not_share_belong_to_the_releases_hub_only() -> None:
    manifests = objects(*UNSHARED, *TENANTS)
    for name in ("embereye-north-hub", "embereye-shared-hub"):
        text = json.dumps([manifest for (_, key), manifest in manifests.items() if key.startswith(name)])
        assert "the-" not in text
        assert "--log-format" not in text
    assert "the-database" in json.dumps(manifests["Deployment", "embereye-hub"])
    # TLS is enabled as for the release's hub, with a certificate by the operator.
    north, shared = declared(manifests)
    assert "embereye-north-hub.embereye.svc" in north.names
    assert not set(north.names) & set(shared.names) - {"localhost", "127.0.0.1", "::1"}


@pytest.mark.parametrize(
    "settings",
    [
        (
            "hub.nats.servers={tls://the-nats.example}", "hub.nats.credentials.existingSecret=the-login",
            "hub.nats.tls.existingSecret=the-authority", "hub.nats.copies=3",
            "hubs.north.hub.nats.servers={nats://nats.north}",
        ),
        (
            "hub.oidc.issuer=https://the-provider.example", "hub.oidc.clientId=the-client",
            "hub.oidc.clientSecret.existingSecret=the-secret", "hub.oidc.roles.admin={the-wardens}",
            "hubs.north.hub.oidc.issuer=https://north.example", "hubs.north.hub.oidc.clientId=console",
            "hubs.north.hub.oidc.roles.viewer={staff}",
        ),
        (
            "hub.mqtt.broker=mqtts://the-broker.example", "hub.mqtt.credentials.existingSecret=the-login",
            "hub.mqtt.tls.existingSecret=the-authority", "hubs.north.hub.mqtt.broker=mqtt://broker.north",
        ),
    ],
    ids=["NATS", "an identity provider", "a broker"],
)  # fmt: skip
def test_a_tenants_setting_inherits_nothing_from_that_of_the_release(settings: tuple[str, ...]) -> None:
    manifests = objects(*(argument for value in settings for argument in ("--set", value)), *TENANTS)
    text = json.dumps([manifest for (_, name), manifest in manifests.items() if name.startswith("embereye-north-hub")])
    assert "the-" not in text
    assert "the-" in json.dumps(manifests["Deployment", "embereye-hub"])


def test_hubs_at_the_same_broker_have_separate_topics_and_client_ids() -> None:
    broker = "mqtt://broker.example"
    manifests = objects("--set", f"hub.mqtt.broker={broker}", "--set", f"hubs.north.hub.mqtt.broker={broker}", *TENANTS)
    prefixes = []
    for name in ("embereye-hub", "embereye-north-hub"):
        words = arguments(manifests, name)
        assert f"--mqtt-broker={broker}" in words
        prefixes += [word.removeprefix("--mqtt-prefix=") for word in words if word.startswith("--mqtt-prefix=")]
    release, north = (read_broker(broker, prefix=prefix) for prefix in prefixes)
    assert release.client != north.client, "each would end the connection of the other"
    assert not set(Topics(release).filters) & set(Topics(north).filters), "each removes outdated topics of its prefix"


@pytest.mark.parametrize(
    ("watched", "place", "hub"),
    [
        ("operator.namespaces={north,annex,south}", "south", "embereye"),
        ("operator.namespaces={annex,north}", "annex", "embereye-north"),
        ("operator.clusterWide=true", NAMESPACE, "embereye"),
    ],
)
def test_the_self_test_calls_the_hub_that_its_fleet_reports_to(watched: str, place: str, hub: str) -> None:
    tls = ("--set", "hubs.north.hub.tls.existingSecret=north-tls", "--set", "hubs.north.hub.tls.names={north.example}")
    values = (*TENANTS, "--set", watched, "--set", "hub.tls.enabled=true", *tls)
    manifests = objects(*values)
    pod = manifests["Pod", "embereye-self-test"]["spec"]
    words = pod["containers"][0]["args"]
    assert f"--namespace={place}" in words
    assert f"--hub={hub}-hub.{NAMESPACE}.svc:50052" in words
    assert ("--server-name=north.example" in words) == (hub != "embereye")
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == [
        f"{hub}-hub-admin", "embereye-hub-identity" if hub == "embereye" else "north-tls",
    ]  # fmt: skip
    for kind in ("Role", "RoleBinding"):
        assert manifests[kind, f"embereye-tester-{NAMESPACE}"]["metadata"]["namespace"] == place
    fleet = {"metadata": {"name": "embereye-self-test", "namespace": place}, "spec": {}}
    parsed = parse_fleet({"apiVersion": "embereye.dev/v1alpha1", "kind": "SensorFleet", **fleet})
    assert choose_hub(parsed, NamedHub("", "", "embereye-hub"), declared(manifests)).process == f"{hub}-hub"


def test_without_further_hubs_the_operator_gets_no_such_argument() -> None:
    assert not any(word.startswith("--hubs") for word in arguments(objects(), "embereye-operator"))


def test_a_name_too_long_together_with_the_releases_is_refused() -> None:
    release = "embereye-of-the-western-site"
    refused = helm(
        "template", release, str(CHART), "--kube-version", KUBERNETES, "--set-json", "hubs.a-very-long-name={}"
    )
    assert refused.returncode
    assert "Choose a shorter name" in refused.stderr


def test_hubs_that_would_upload_to_the_same_place_are_refused() -> None:
    bucket = "archive.config.bucket=fire-evidence"
    both = ("--set", f"hub.{bucket}", "--set", f"hubs.north.hub.{bucket}")
    refused = template(*both)
    assert (refused.returncode != 0, "Give each a separate prefix" in refused.stderr) == (True, True)
    assert objects(*both, "--set", "hubs.north.hub.archive.config.prefix=north")
    folder, claim = "archive.config.folder=/backups", "archive.claim"
    folders = ("--set", f"hub.{folder}", "--set", f"hubs.north.hub.{folder}", "--set", f"hub.{claim}=one")
    assert "in the folder one /backups" in template(*folders, "--set", f"hubs.north.hub.{claim}=one").stderr
    assert objects(*folders, "--set", f"hubs.north.hub.{claim}=two")
