"""The Helm chart, rendered without a cluster."""

import copy
import subprocess
from functools import cache
from typing import Any

import yaml

from harness.need import HELM, ROOT, program

CHART = ROOT / "charts" / "embereye"
RELEASE = NAMESPACE = "embereye"
KUBERNETES = "1.34.0"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm. The caller checks the exit code."""
    HELM.require()
    command = [str(program("helm")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `helm template` with more arguments, for a fixed Kubernetes version because there is no cluster."""
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *arguments)


def render(*arguments: str) -> list[dict[str, Any]]:
    """Render the manifests for these arguments."""
    return copy.deepcopy(_rendered(arguments))


def operators_rights(*arguments: str) -> list[dict[str, Any]]:
    """Render the manifests that grant rights to the operator."""
    component = "app.kubernetes.io/component"
    return [
        manifest
        for manifest in render(*arguments)
        if "rbac" in manifest["apiVersion"] and manifest["metadata"]["labels"][component] == "operator"
    ]


@cache
def _rendered(arguments: tuple[str, ...]) -> list[dict[str, Any]]:
    result = template(*arguments)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.load_all(result.stdout, yaml.CSafeLoader) if document]
