"""A fleet on a real API server, with an operator process whose shards are simulated."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, path_of

from .faulty import FaultyServer
from .processes.test_operator import children, create, names, sensor_fleet


class Site:
    """A namespace with a fleet, an operator with simulated shards, and a faulty server between them."""

    def __init__(self, cluster: ApiServer, namespace: str, proxy: FaultyServer, log: Path, port: int) -> None:
        self.cluster, self.namespace, self.proxy, self.log, self.port = cluster, namespace, proxy, log, port
        self.fleet = path_of(create(cluster, sensor_fleet(namespace, shards=2, autoscaling={"mode": "none"})))

    def covered(self, shards: int) -> bool:
        """True if everything is as declared: the children, one owner per device, and the status."""
        existing = children(self.cluster, self.namespace)
        fleet = self.cluster.get(self.fleet)
        fleet_status = fleet.get("status") or {}
        if (
            fleet_status.get("observedGeneration") != fleet["metadata"]["generation"]
            or fleet_status.get("readyShards") != shards
        ):
            return False
        # The operator chooses which of them leave, and their Services stay.
        shard_names = {name for kind, name in existing if kind == "Deployment"}
        other_children = {key for key in existing if key[0] not in {"Deployment", "Service"}}
        if ("ConfigMap", "hall-sensors-placement") not in existing:
            return False  # it was deleted and not created again
        data = existing["ConfigMap", "hall-sensors-placement"]["data"]
        assignments = [json.loads(text) for name, text in data.items() if name != "placement.json"]
        owned = sorted(device["id"] for entry in assignments for device in entry.get("devices", []))
        conditions = {entry["type"]: entry["status"] for entry in fleet_status["conditions"]}
        return (
            conditions["Covered"] == "True"
            and conditions["Progressing"] == "False"
            and owned == ["s-0", "s-1", "s-2", "s-3"]
            and {entry["shard"] for entry in assignments} == shard_names
            and len(shard_names) == shards
            and other_children == {key for key in names(1) if key[0] not in {"Deployment", "Service"}}
        )

    def scale(self, shards: int) -> None:
        self.cluster.merge(f"{self.fleet}/scale", {"spec": {"replicas": shards}})

    def wait_until_healed(self, shards: int, seconds: float = 90) -> None:
        wait_for(
            lambda: self.covered(shards),
            lambda: f"{shards} shards: {sorted(children(self.cluster, self.namespace))} {self.fleet_status()}",
            seconds,
        )

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Return status and reason of each condition."""
        fleet_status = (self.cluster.get(self.fleet) or {}).get("status") or {}
        return {entry["type"]: (entry["status"], entry["reason"]) for entry in fleet_status.get("conditions", ())}

    def events(self, reason: str) -> list[Any]:
        listed = self.cluster.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [event for event in listed if event["reason"] == reason]

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the fleet's sample; None if there is none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        samples = [line for line in lines if line.startswith(f"{name}{{") and all(part in line for part in wanted)]
        return float(samples[0].rsplit(" ", 1)[1]) if samples else None

    def fleet_status(self) -> Any:
        return (self.cluster.get(self.fleet) or {}).get("status"), self.log.read_text()[-1500:]

    def warnings(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line for line in lines if " WARNING " in line or " ERROR " in line]
