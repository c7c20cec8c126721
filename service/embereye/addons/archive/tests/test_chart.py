"""Archive: the values of the chart restore a backup before the hub starts."""

from argparse import ArgumentParser
from typing import Any

import pytest
from harness.cluster.chart import render, template
from harness.need import HELM

from embereye.addons.archive.commands import make, recover

pytestmark = pytest.mark.needs(HELM)


def values(*pairs: str) -> tuple[str, ...]:
    return tuple(argument for pair in pairs for argument in ("--set", pair))


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


@pytest.mark.parametrize(
    ("pairs", "console", "trusted"),
    [
        ((), "http://embereye-hub.embereye.svc:8080", ""),
        (("hub.basePath=/fire", "hub.service.httpPort=80"), "http://embereye-hub.embereye.svc:80/fire", ""),
        (("hub.tls.enabled=true",), "https://embereye-hub.embereye.svc:8080", "/etc/embereye/hub/trusted.crt"),
    ],
)
def test_the_pod_for_backups_runs_the_command_with_what_it_needs(
    pairs: tuple[str, ...], console: str, trusted: str
) -> None:
    manifests = render(*values(*pairs, "networkPolicy.people[0].namespaceSelector.matchLabels.team=fire"))
    (template,) = (each["template"] for each in manifests if each["kind"] == "PodTemplate")
    (container,) = template["spec"]["containers"]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    parser = ArgumentParser(exit_on_error=False)
    make.add_arguments(parser)
    options = parser.parse_args([*container["args"][2:], "--archive=x", "--clips"])
    assert (container["args"][:2], options.console, options.ca or "") == (["backup", "make"], console, trusted)
    (policy,) = (each["spec"] for each in manifests if each["kind"] == "NetworkPolicy"
                 and each["metadata"]["name"] == "embereye-hub")  # fmt: skip
    peers = [peer for rule in policy["ingress"] if {"port": "http", "protocol": "TCP"} in rule["ports"]
             for peer in rule["from"] if peer.keys() == {"podSelector"}]  # fmt: skip
    assert any(
        peer["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items() for peer in peers
    ), "the hub admits it"


def test_a_claim_is_mounted_for_uploads_and_for_a_restore() -> None:
    archive = ("hub.archive.config.folder=/backups", "hub.archive.claim=share", "hub.archive.restore=newest")
    (hub,) = (each for each in render(*values(*archive)) if each["kind"] == "Deployment"
              and each["metadata"]["name"].endswith("-hub"))  # fmt: skip
    pod = hub["spec"]["template"]["spec"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "archive-claim")
    assert volume["persistentVolumeClaim"] == {"claimName": "share"}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert {"archive-claim": "/backups"}.items() <= {
            mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]
        }.items()
