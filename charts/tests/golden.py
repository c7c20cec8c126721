"""Renders the chart with its main values into committed files: changes of a template show as changes of these.

`make golden` writes them.
"""

from pathlib import Path
from typing import Any

import yaml
from harness.cluster.chart import render

FOLDER = Path(__file__).parent / "golden"
MONITORING = ("--set", "monitoring.enabled=true", "--set", "monitoring.labels.release=kube-prometheus-stack")
VALUES = {
    "defaults": (),
    "cluster-wide": ("--set", "operator.clusterWide=true"),
    "postgres": (
        "--set",
        "hub.replicas=2",
        "--set",
        "hub.database.dsnSecret.name=hub-database",
        "--set",
        "hub.persistence.existingClaim=history",
    ),
    "monitoring": MONITORING,
    "tls": ("--set", "hub.tls.enabled=true", "--set", "hub.tls.names={fire.example.com,10.0.0.5}"),
    "tls-secret": (
        "--set",
        "hub.tls.enabled=true",
        "--set",
        "hub.tls.existingSecret=fire-tls",
        "--set",
        "hub.tls.names={fire.example.com}",
    ),
    "mqtt": (
        "--set",
        "hub.mqtt.broker=mqtts://broker.example",
        "--set",
        "hub.mqtt.credentials.existingSecret=login",
        "--set",
        "hub.mqtt.tls.existingSecret=broker-tls",
    ),
    "nats": (
        "--set",
        "hub.replicas=2",
        "--set",
        "hub.database.dsnSecret.name=hub-database",
        "--set",
        "hub.persistence.enabled=false",
        "--set",
        "hub.nats.servers={tls://nats-0.example,tls://nats-1.example}",
        "--set",
        "hub.nats.credentials.existingSecret=login",
        "--set",
        "hub.nats.tls.existingSecret=nats-tls",
    ),
    "annotations": ("--set", "monitoring.enabled=true", "--set", "monitoring.scrape=annotations"),
}


def golden(values: tuple[str, ...]) -> str:
    """Render manifests without schemas, rules and dashboards, which are made elsewhere, and without random values."""
    return yaml.safe_dump_all([_shortened(manifest) for manifest in render(*values)], sort_keys=True, width=120)


def _shortened(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["kind"] in {"CustomResourceDefinition", "PrometheusRule"}:
        return {**manifest, "spec": "..."}
    if manifest["kind"] in {"ConfigMap", "Secret"}:
        return {**manifest, "data": dict.fromkeys(manifest.get("data", ()), "...")}
    return manifest


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, values in VALUES.items():
        (FOLDER / f"{name}.yaml").write_text(golden(values))
