"""Runbooks: one for each alert, and every command in them works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.cluster.chart import render
from harness.eventually import wait_for
from harness.need import HELM, KUBECTL, ROOT, program
from harness.servers.apiserver import ApiServer, install_crds, path_of

from embereye_cli.main import command_of
from embereye_operator.monitoring.alerts import ALERTS

from ..site import Site

FOLDER = ROOT / "docs/runbooks"
FILES = [*FOLDER.glob("EmberEye*.md"), *(ROOT / "service/embereye/addons").glob("*/runbooks/*.md")]
PLACES = {path.stem: path.parent for path in sorted(FILES)}
PAGES = {name: (folder / f"{name}.md").read_text() for name, folder in PLACES.items()}
every_page = pytest.mark.parametrize("name", PAGES)
SECTIONS = ["## Why it matters", "## How to check", "## How to fix"]


def blocks(language: str) -> dict[str, list[str]]:
    """Every code block of a language, with the pages that contain it."""
    pages: dict[str, list[str]] = {}
    for name, text in PAGES.items():
        for block in re.findall(rf"```{language}\n(.*?)\n```", text, re.DOTALL):
            pages.setdefault(block, []).append(name)
    return pages


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert set(PAGES) == {alert.name for alert in ALERTS}


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"\]\((\w+)\.md\)", (FOLDER / "index.md").read_text())
    assert sorted(listed) == sorted(name for name, folder in PLACES.items() if folder == FOLDER)


@every_page
def test_a_page_has_a_meaning_a_reason_and_steps(name: str) -> None:
    text = PAGES[name]
    assert text.startswith(f"# {name}\n")
    assert re.findall("^## .*", text, re.MULTILINE) == SECTIONS
    for _, section in zip(SECTIONS, re.split("^## .*\n", text, flags=re.MULTILINE)[1:], strict=True):
        assert len(section.strip()) > 20
    assert "```" in text.partition("## How to check")[2], "nothing to check with"


@every_page
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGES[name]):
        assert (PLACES[name] / target).resolve().exists(), target


def monitoring_crds() -> list[Any]:
    """Minimal CRDs of the Prometheus Operator's kinds."""
    crds = []
    for kind in ("PodMonitor", "PrometheusRule"):
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        crds.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{plural}.monitoring.coreos.com",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
                },
                "spec": {
                    "group": "monitoring.coreos.com",
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                    "versions": [
                        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
                    ],
                },
            }
        )
    return crds


def remove_crds(cluster: ApiServer) -> None:
    """Delete the CRDs: other tests of this API server create some of the same name."""
    for crd in monitoring_crds():
        cluster.request("DELETE", path_of(crd))
        wait_for(lambda crd=crd: cluster.get(path_of(crd)) is None, "the CRD's end")


def install_release(cluster: ApiServer, namespace: str) -> None:
    """Create the objects of a release, in a namespace for this test."""
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    install_crds(cluster, monitoring_crds())
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
             "metadata": {"name": "embereye-operator", "namespace": "embereye"}}  # fmt: skip
    wanted = [m for m in render("--set", "monitoring.enabled=true") if m["kind"] in
              {"Service", "ServiceAccount", "Deployment", "PodMonitor", "PrometheusRule"}]  # fmt: skip
    for manifest in [lease, *wanted]:
        manifest["metadata"]["namespace"] = namespace
        path = f"{path_of(manifest)}?fieldManager=helm&force=true"
        cluster.request("PATCH", path, manifest, "application/apply-patch+yaml")


@pytest.mark.apiserver
@pytest.mark.needs(KUBECTL)
@pytest.mark.needs(HELM)
def test_every_command_of_the_pages_works(site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    release = f"{site.namespace}-release"
    request.addfinalizer(lambda: remove_crds(site.cluster))
    install_release(site.cluster, release)
    plugin = tmp_path / "kubectl-embereye"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m embereye_cli.plugin "$@"\n')
    plugin.chmod(0o755)
    environment = {
        **os.environ, "KUBECONFIG": str(site.cluster.kubeconfig), "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip
    commands = {block: pages[0] for block, pages in blocks("sh").items()}
    commands |= {
        command: name for name, text in PAGES.items() for command in re.findall(r"`(kubectl [^`]+)`", text)
    }  # fmt: skip
    assert len(commands) > 15
    failed = {}
    for command, name in commands.items():
        # The site that is there has one fleet, hall, and no kubelet: its pods have no logs.
        text = command.replace("-n site", f"-n {site.namespace}").replace("-n embereye", f"-n {release}")
        words = shlex.split(text.replace("yard-cameras", "hall-sensors").replace("yard", "hall"))
        if words[0] == "embereye":  # it talks to a device outside the cluster
            assert command_of(words[1:]), f"{name}: {command}"
            continue
        assert words[0] == "kubectl", f"{name}: {command}"
        words[0] = str(program("kubectl"))
        if "logs" in words:
            at = words.index("logs")
            words[at : at + 3] = ["get", words[at + 1]]
        if "exec" in words:
            at = words.index("exec")
            words[at:] = ["get", words[at + 1]]
        result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
        if result.returncode:
            failed[command] = f"{name}: {result.stderr}"
    assert not failed
