"""Hubs of tenants: what the chart gives each, and what none has from another."""

import json
from typing import Any

import pytest
from harness.cluster.chart import CHART, KUBERNETES, NAMESPACE, helm, render

from embereye.hub.mqtt.entities import Topics
from embereye.hub.mqtt.options import read_broker
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.hubs import NamedHub, choose_hub, parse_hubs

TENANTS = (
    "--set", "hubs.north.namespaces={north,annex}", "--set", "hubs.north.hub.retention=30d",
    "--set", "hubs.north.hub.persistence.enabled=false", "--set-json", "hubs.shared={}",
)  # fmt: skip
# What the release's own hub has, and no other is to have.
OWN = (
    "--set", "hub.adminToken.existingSecret=the-admins", "--set", "hub.database.dsnSecret.name=the-database",
    "--set", "hub.persistence.existingClaim=the-volume", "--set", "hub.allowedHosts={the-name.example}",
    "--set", "hub.tls.enabled=true", "--set", "hub.tls.existingSecret=the-certificate",
    "--set", "hub.tls.names={the-name.example}", "--set", "hub.webhooks[0].name=the-pager",
    "--set", "hub.webhooks[0].url=https://the-pager.example", "--set", "hub.oidc.issuer=https://the-provider.example",
    "--set", "hub.oidc.clientId=the-client", "--set", "hub.oidc.roles.admin={the-wardens}",
    "--set", "hub.extraArgs={--log-format=json}",
    "--set", "hub.mqtt.broker=mqtts://the-broker.example", "--set", "hub.mqtt.credentials.existingSecret=the-login",
)  # fmt: skip


def objects(*values: str) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): one for one in render(*values)}


def arguments(found: dict[tuple[str, str], Any], name: str) -> list[str]:
    given: list[str] = found["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["args"]
    return given


def declared(found: dict[tuple[str, str], Any]) -> tuple[NamedHub, ...]:
    """What the operator is told."""
    (text,) = [word for word in arguments(found, "embereye-operator") if word.startswith("--hubs=")]
    return parse_hubs(text.removeprefix("--hubs="))


def test_each_has_all_that_a_hub_has_and_the_operator_is_told_of_it() -> None:
    found = objects(*TENANTS)
    address = f"embereye-{{}}-hub-control.{NAMESPACE}.svc:50053"
    assert declared(found) == (
        NamedHub("north", address.format("north"), "embereye-north-hub", ("north", "annex")),
        NamedHub("shared", address.format("shared"), "embereye-shared-hub"),
    )
    kinds = {kind for kind, name in found if name == "embereye-hub"}
    assert {kind for kind, name in found if name == "embereye-shared-hub"} == kinds
    assert {kind for kind, name in found if name == "embereye-north-hub"} == kinds - {"PersistentVolumeClaim"}
    for name in ("north", "shared"):
        assert ("Secret", f"embereye-{name}-hub-admin") in found
    assert "--retention=30d" in arguments(found, "embereye-north-hub")
    assert "--retention=90d" in arguments(found, "embereye-shared-hub")
    assert "--namespace=north,annex" in arguments(found, "embereye-north-hub")
    assert not any(word.startswith("--namespace") for word in arguments(found, "embereye-shared-hub"))


def test_the_operator_may_write_the_certificate_of_each() -> None:
    rules = objects(*TENANTS)["Role", "embereye-operator-release"]["rules"]
    named = {name for rule in rules for name in rule.get("resourceNames", ())}
    assert named >= {"embereye-hub-identity", "embereye-north-hub-identity", "embereye-shared-hub-identity"}


def test_no_services_pods_are_another_hubs() -> None:
    found = objects(*TENANTS, "--set", "monitoring.enabled=true")
    pods = {
        name: one["spec"]["template"]["metadata"]["labels"]
        for (kind, name), one in found.items()
        if kind == "Deployment"
    }
    for (kind, name), one in found.items():
        if kind == "Service":
            selector = one["spec"]["selector"]
        elif kind in {"NetworkPolicy", "PodMonitor"} and not name.endswith("shards"):
            selector = (one["spec"].get("podSelector") or one["spec"].get("selector"))["matchLabels"]
        else:
            continue
        chosen = [pod for pod, labels in pods.items() if selector.items() <= labels.items()]
        assert chosen == [name.removesuffix("-control")]


def test_what_tenants_must_not_share_is_the_own_hubs_alone() -> None:
    found = objects(*OWN, *TENANTS)
    for name in ("embereye-north-hub", "embereye-shared-hub"):
        text = json.dumps([one for (_, called), one in found.items() if called.startswith(name)])
        assert "the-" not in text
        assert "--log-format" not in text
    assert "the-database" in json.dumps(found["Deployment", "embereye-hub"])
    # TLS itself is like the own hub's, by a certificate of the operator's.
    north, shared = declared(found)
    assert "embereye-north-hub.embereye.svc" in north.names
    assert not set(north.names) & set(shared.names) - {"localhost", "127.0.0.1", "::1"}


@pytest.mark.parametrize(
    "own",
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
def test_a_tenants_own_takes_nothing_from_that_of_the_release(own: tuple[str, ...]) -> None:
    found = objects(*(argument for value in own for argument in ("--set", value)), *TENANTS)
    text = json.dumps([one for (_, called), one in found.items() if called.startswith("embereye-north-hub")])
    assert "the-" not in text
    assert "the-" in json.dumps(found["Deployment", "embereye-hub"])


def test_hubs_at_one_broker_have_topics_and_a_clients_id_of_their_own() -> None:
    broker = "mqtt://broker.example"
    found = objects("--set", f"hub.mqtt.broker={broker}", "--set", f"hubs.north.hub.mqtt.broker={broker}", *TENANTS)
    prefixes = []
    for name in ("embereye-hub", "embereye-north-hub"):
        told = arguments(found, name)
        assert f"--mqtt-broker={broker}" in told
        prefixes += [word.removeprefix("--mqtt-prefix=") for word in told if word.startswith("--mqtt-prefix=")]
    own, north = (read_broker(broker, prefix=prefix) for prefix in prefixes)
    assert own.client != north.client, "the broker would end the connection of one whenever the other dials"
    assert not set(Topics(own).filters) & set(Topics(north).filters), "each clears of what is retained all of its own"


@pytest.mark.parametrize(
    ("watched", "place", "hub"),
    [
        ("operator.namespaces={north,annex,south}", "south", "embereye"),
        ("operator.namespaces={annex,north}", "annex", "embereye-north"),
        ("operator.clusterWide=true", NAMESPACE, "embereye"),
    ],
)
def test_the_self_test_hears_the_hub_that_its_fleet_reports_to(watched: str, place: str, hub: str) -> None:
    tls = ("--set", "hubs.north.hub.tls.existingSecret=north-tls", "--set", "hubs.north.hub.tls.names={north.example}")
    values = (*TENANTS, "--set", watched, "--set", "hub.tls.enabled=true", *tls)
    found = objects(*values)
    pod = found["Pod", "embereye-self-test"]["spec"]
    told = pod["containers"][0]["args"]
    assert f"--namespace={place}" in told
    assert f"--hub={hub}-hub.{NAMESPACE}.svc:50052" in told
    assert ("--server-name=north.example" in told) == (hub != "embereye")
    assert [one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one] == [
        f"{hub}-hub-admin", "embereye-hub-identity" if hub == "embereye" else "north-tls",
    ]  # fmt: skip
    for kind in ("Role", "RoleBinding"):
        assert found[kind, "embereye-self-test"]["metadata"]["namespace"] == place
    fleet = {"metadata": {"name": "embereye-self-test", "namespace": place}, "spec": {}}
    parsed = parse_fleet({"apiVersion": "embereye.dev/v1alpha1", "kind": "SensorFleet", **fleet})
    assert choose_hub(parsed, NamedHub("", "", "embereye-hub"), declared(found)).process == f"{hub}-hub"


def test_without_any_nothing_is_said_of_them() -> None:
    assert not any(word.startswith("--hubs") for word in arguments(objects(), "embereye-operator"))


def test_a_name_that_is_too_long_with_the_releases_is_refused() -> None:
    release = "embereye-of-the-western-site"
    refused = helm(
        "template", release, str(CHART), "--kube-version", KUBERNETES, "--set-json", "hubs.a-very-long-name={}"
    )
    assert refused.returncode
    assert "choose a shorter name" in refused.stderr
