"""The chart refuses values that a hub would not start with: an upgrade ends the old hub first."""

import json
from argparse import ArgumentParser
from typing import Any

import pytest
import yaml
from harness.cluster.chart import render, template

from embereye.addons.archive.commands import recover
from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.webhooks.options import parse_webhooks
from embereye_cli.processes.hub import add_arguments, addons, broker_options, provider_options


def webhook(**fields: Any) -> tuple[str, ...]:
    return ("--set-json", f"hub.webhooks={json.dumps([{'name': 'pager', 'url': 'https://pager.example', **fields}])}")


def values(*pairs: str) -> tuple[str, ...]:
    return tuple(argument for pair in pairs for argument in ("--set", pair))


PROVIDER = ("hub.oidc.issuer=https://accounts.example", "hub.oidc.clientId=embereye")
NORTH = tuple(pair.replace("hub.", "hubs.north.hub.", 1) for pair in PROVIDER)
TWICE = [{"name": "pager", "url": f"https://pager.example/{number}"} for number in range(2)]


def start(manifests: list[dict[str, Any]]) -> None:
    """Parse the arguments of all hubs as they do at their start; an exception would end a hub."""
    parser = ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    for manifest in manifests:
        if manifest["kind"] == "Deployment" and manifest["metadata"]["name"].endswith("-hub"):
            options = parser.parse_args(manifest["spec"]["template"]["spec"]["containers"][0]["args"][1:])
            for read in (broker_options, provider_options, addons):
                read(options)
            AllowedHosts(options.allowed_host)
        if manifest["kind"] == "ConfigMap" and "webhooks.json" in manifest["data"]:
            parse_webhooks(json.loads(manifest["data"]["webhooks.json"]))


@pytest.mark.parametrize(
    "odd",
    [
        values(*PROVIDER),
        values(*NORTH, "hub.oidc.roles.admin={wardens}"),
        values("hub.oidc.issuer=https://accounts.example/?tenant=a", PROVIDER[1], "hub.oidc.roles.admin={wardens}"),
        values("hub.oidc.issuer=https:///a", PROVIDER[1], "hub.oidc.roles.admin={wardens}"),
        ("--set-json", f"hub.webhooks={json.dumps(TWICE)}"),
        webhook(url="https://ada:word@pager.example/"),
        webhook(url="https:///fire"),
        webhook(url="https://pager.example:https/"),
        webhook(url="https://pager.example:70000/"),
        webhook(allow=["pager.example"]),
        values("hub.basePath=fire"),
        values("hub.basePath=/a//b"),
        values("hub.basePath=/a/../b"),
        values("hub.basePath=/v1/fire"),
        values("hub.mqtt.broker=mqtt://broker.example:70000"),
        values("hub.mqtt.broker=mqtt://:1883"),
        values("hub.mqtt.broker=mqtt://fd00::7"),
        values("hub.nats.servers={nats://nats.example:70000}"),
        values("hub.nats.servers={nats://a.example,tls://b.example}"),
        values("hub.tls.enabled=true", "hub.tls.names={*}"),
        values("hub.tls.enabled=true", "hub.tls.names={*fire.example}"),
    ],
    ids=" ".join,
)
def test_values_that_would_end_a_hub_are_refused(odd: tuple[str, ...]) -> None:
    result = template(*odd)
    if result.returncode == 0:
        start([manifest for manifest in yaml.load_all(result.stdout, yaml.CSafeLoader) if manifest])


@pytest.mark.parametrize(
    "usual",
    [
        values(*PROVIDER, "hub.oidc.roles.viewer={all staff}"),
        values("hub.oidc.issuer=https://login.example/a/v2.0", PROVIDER[1], "hub.oidc.roles.admin={wardens}"),
        webhook(url="http://[fd00::7]:9093/api/v2/alerts", allow=["127.0.0.0/8", "10.0.0.7", "fd00::/8", "::1"]),
        webhook(url="https://pager.example?key=a@b:c#d"),
        values("hub.mqtt.broker=mqtts://[fd00::7]:8884"),
        values("hub.tls.enabled=true", "hub.tls.names={*.fire.example,10.0.0.7,fd00::7}"),
        values("hub.basePath=/fire/north.2/"),
    ],
    ids=" ".join,
)
def test_usual_values_are_accepted(usual: tuple[str, ...]) -> None:
    start(render(*usual))


def test_a_new_hub_first_restores_a_backup_from_its_bucket() -> None:
    archive = ("hub.archive.config.bucket=fire-evidence", "hub.archive.credentials.existingSecret=s3")

    def init_containers(*pairs: str) -> list[dict[str, Any]]:
        (hub,) = (each for each in render(*values(*archive, *pairs)) if each["kind"] == "Deployment"
                  and each["metadata"]["name"].endswith("-hub"))  # fmt: skip
        pod = hub["spec"]["template"]["spec"]
        containers: list[dict[str, Any]] = pod.get("initContainers", [])
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert all(mount["name"] in volumes for each in containers for mount in each["volumeMounts"])
        return containers

    assert init_containers() == []
    parser = ArgumentParser(exit_on_error=False)
    recover.add_arguments(parser)
    for backup, name in (("newest", None), ("2026-11-29T03-00-00Z", "2026-11-29T03-00-00Z")):
        (container,) = init_containers(f"hub.archive.restore={backup}", "hub.database.dsnSecret.name=dsn")
        assert container["args"][:2] == ["hub", "recover"]
        options = parser.parse_args(container["args"][2:])
        assert (options.backup, options.if_empty, options.give_up) == (name, True, 60.0)
        assert options.database == "@/etc/embereye/database/dsn"


def test_a_hub_that_only_restores_uploads_nothing() -> None:
    archive = ("hub.archive.config.bucket=fire-evidence", "hub.archive.restore=newest")

    def arguments(*pairs: str) -> tuple[list[str], list[str]]:
        (hub,) = (each for each in render(*values(*archive, *pairs)) if each["kind"] == "Deployment"
                  and each["metadata"]["name"].endswith("-hub"))  # fmt: skip
        pod = hub["spec"]["template"]["spec"]
        return pod["initContainers"][0]["args"], pod["containers"][0]["args"]

    option = "--archive=/etc/embereye/addons/archive.yaml"
    for pairs, expected in (((), [True, True]), (("hub.archive.restoreOnly=true",), [True, False])):
        assert [option in words for words in arguments(*pairs)] == expected
    refused = template(*values(archive[0], "hub.archive.restoreOnly=true"))
    assert (refused.returncode != 0, "names no backup" in refused.stderr) == (True, True)
