"""`helm upgrade --reuse-values` uses the values of an earlier chart, which lack new values."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.cluster.chart import CHART, KUBERNETES, helm
from jsonschema import Draft7Validator

DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
FREE = {"labels", "annotations", "instanceSelector", "resources"}  # users remove their entries with null
EVERYTHING = (
    "--set", "logFormat=json", "--set", "tracing.endpoint=http://collector:4317", "--set", "monitoring.enabled=true",
    "--set", "monitoring.grafanaAlerts.enabled=true", "--set", "operator.scalingTrace.enabled=true",
    "--set", "identity.issuerRef.name=internal", "--set", "hub.database.dsnSecret.name=dsn",
    "--set", "hub.associations.enabled=true", "--set", "hub.tls.enabled=true", "--set", "hub.tls.names={fire.example}",
    "--set", "hub.mqtt.broker=mqtt://broker.example", "--set", "hub.nats.servers={nats://nats.example}",
    "--set", "hub.oidc.issuer=https://accounts.example", "--set", "hub.oidc.clientId=embereye",
    "--set", "hub.oidc.roles.admin={wardens}",
    "--set-json", "hubs.shared={}", "--api-versions", "grafana.integreatly.org/v1beta1",
)  # fmt: skip


def needed(values: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all values that are not empty."""
    for key, value in values.items():
        if value and key not in FREE:
            yield (*above, key)
            if isinstance(value, dict):
                yield from needed(value, *above, key)


def without(path: tuple[str, ...]) -> dict[str, Any]:
    values = copy.deepcopy(DEFAULTS)
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return values


def emptied(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` without the entries that users can remove."""
    return {
        key: {} if key in FREE else emptied(value) if isinstance(value, dict) else value
        for key, value in values.items()
    }


def without_empty_ones(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: without_empty_ones(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value and key not in FREE
    }


def rendered(folder: Path, values: dict[str, Any], *arguments: str) -> list[dict[str, Any]] | str:
    """Render a chart that has these values only; return the manifests, or Helm's refusal."""
    chart = folder / "embereye"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    (chart / "values.yaml").write_text(yaml.safe_dump(values))
    done = helm("template", "embereye", str(chart), "--kube-version", KUBERNETES, *arguments)
    if done.returncode:
        return done.stderr
    manifests = [manifest for manifest in yaml.load_all(done.stdout, yaml.CSafeLoader) if manifest]
    # A Secret's content is random.
    return [{**m, "data": None} if m["kind"] == "Secret" else m for m in manifests]


@pytest.mark.parametrize("path", list(needed(DEFAULTS)), ids=".".join)
def test_a_value_with_a_default_is_required(path: tuple[str, ...]) -> None:
    assert SCHEMA.is_valid(DEFAULTS)
    assert not SCHEMA.is_valid(without(path))


def test_helm_names_the_missing_value(tmp_path: Path) -> None:
    for path in (("selfTest",), ("hub", "nats"), ("operator", "rollout", "haltOn")):
        refusal = rendered(tmp_path, without(path))
        assert isinstance(refusal, str)
        place = "".join(f"/{key}" for key in path[:-1])
        assert f"at '{place}': missing property '{path[-1]}'" in refusal


@pytest.mark.parametrize("arguments", [(), EVERYTHING], ids=["defaults", "everything"])
def test_a_value_that_is_empty_by_default_can_be_missing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    whole = rendered(tmp_path, emptied(DEFAULTS), *arguments)
    assert not isinstance(whole, str), whole
    assert rendered(tmp_path, without_empty_ones(DEFAULTS), *arguments) == whole
