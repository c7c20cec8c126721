"""NATS: the values of the chart and the variables that become options of the hub."""

from argparse import ArgumentParser
from pathlib import Path

import pytest
from harness.cluster.chart import NAMESPACE, render

from embereye.addons.nats.hub import OPTIONS, bus_options

VALUES = (
    "--set", "hub.nats.servers={tls://nats-0.example:5000,tls://nats-1.example}", "--set", "hub.nats.copies=3",
    "--set", "hub.nats.credentials.existingSecret=login", "--set", "hub.nats.tls.existingSecret=nats-tls",
    "--set", "hub.replicas=2", "--set", "hub.database.dsnSecret.name=dsn", "--set", "hub.persistence.enabled=false",
)  # fmt: skip


def test_the_hub_gets_its_nats_and_a_standby_that_accepts_evidence_is_ready() -> None:
    manifests = render(*VALUES)
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    parser = ArgumentParser()
    OPTIONS.add_to(parser)
    words = [argument for argument in container["args"] if argument.startswith("--nats")]
    options = bus_options(parser.parse_args(words))
    assert options is not None
    assert list(options.servers) == ["tls://nats-0.example:5000", "tls://nats-1.example:4222"]
    assert (options.stream, options.copies) == (f"{NAMESPACE}_embereye-hub", 3)
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert (options.credentials, options.certificates) == (mounts["nats-credentials"], mounts["nats-tls"])
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if volume["name"].startswith("nats-")}
    assert {name: secret["secretName"] for name, secret in secrets.items()} == {
        "nats-credentials": "login", "nats-tls": "nats-tls",
    }  # fmt: skip
    assert all(secret["optional"] for secret in secrets.values())
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert "nats" not in str([m for m in render() if m["kind"] == "Deployment"])


def test_the_usual_addresses_of_servers_are_accepted() -> None:
    (hub,) = (
        m
        for m in render("--set", "hub.nats.servers={tls://nats_0.example:65535,tls://10.0.0.7}")
        if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub")
    )
    parser = ArgumentParser()
    OPTIONS.add_to(parser)
    words = [word for word in hub["spec"]["template"]["spec"]["containers"][0]["args"] if word.startswith("--nats")]
    options = bus_options(parser.parse_args(words))
    assert options is not None
    assert options.servers == ["tls://nats_0.example:65535", "tls://10.0.0.7:4222"]


def test_a_malformed_variable_is_refused_with_its_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEREYE_NATS_COPIES", "soon")
    parser = ArgumentParser(prog="embereye hub")
    OPTIONS.add_to(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "--nats-copies: " in capsys.readouterr().err
