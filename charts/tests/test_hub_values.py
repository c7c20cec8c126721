"""The chart refuses values that a hub would not start with: an upgrade ends the old hub first."""

import json
from argparse import ArgumentParser
from typing import Any

import pytest
import yaml
from harness.cluster.chart import render, template

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
