"""The Helm chart, rendered and judged without a cluster."""

import copy
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "embereye"
RELEASE = NAMESPACE = "embereye"
KUBERNETES = "1.34.0"


@cache
def helm_program() -> Path:
    """Helm; built where Go is there, the test is skipped where it is not."""
    found = subprocess.run([ROOT / "e2e" / "cluster" / "binaries", "helm"], capture_output=True, text=True, check=False)
    if found.returncode:
        reason = found.stderr.strip().splitlines()[-1] if found.stderr.strip() else "e2e/cluster/binaries failed"
        if shutil.which("go") is None:
            pytest.skip(reason)
        pytest.fail(f"e2e/cluster/binaries: {found.stderr.strip()}")
    return Path(found.stdout.strip().splitlines()[-1]) / "helm"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; the caller looks at how it ended."""
    return subprocess.run([helm_program(), *arguments], capture_output=True, text=True, check=False, timeout=60)


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`helm template` with more arguments; without a cluster, helm has to be told which Kubernetes to think of."""
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *arguments)


def render(*arguments: str) -> list[dict[str, Any]]:
    """The manifests that these arguments make."""
    return copy.deepcopy(_rendered(arguments))


@cache
def _rendered(arguments: tuple[str, ...]) -> list[dict[str, Any]]:
    result = template(*arguments)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.load_all(result.stdout, yaml.CSafeLoader) if document]
