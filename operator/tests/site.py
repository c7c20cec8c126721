"""One fleet on a real API server, looked after by an operator process whose shards are simulated."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from harness.servers.apiserver import ApiServer, path_of

from .faulty import FaultyServer
from .processes.test_operator import children, create, names, sensor_fleet


class Site:
    """A namespace with one fleet, an operator whose shards are simulated, and a faulty server between."""

    def __init__(self, cluster: ApiServer, namespace: str, proxy: FaultyServer, log: Path, port: int) -> None:
        self.cluster, self.namespace, self.proxy, self.log, self.port = cluster, namespace, proxy, log, port
        self.fleet = path_of(create(cluster, sensor_fleet(namespace, shards=2, autoscaling={"mode": "none"})))

    def covered(self, shards: int) -> bool:
        """Whether all is as declared: the children, one owner a device, and the status."""
        found = children(self.cluster, self.namespace)
        fleet = self.cluster.get(self.fleet)
        told = fleet.get("status") or {}
        if told.get("observedGeneration") != fleet["metadata"]["generation"] or told.get("readyShards") != shards:
            return False
        # Which of them go is the operator's choice, and their Services are kept.
        shard_names = {name for kind, name in found if kind == "Deployment"}
        others = {key for key in found if key[0] not in {"Deployment", "Service"}}
        if ("ConfigMap", "hall-sensors-placement") not in found:
            return False  # it was deleted, and is not back
        data = found["ConfigMap", "hall-sensors-placement"]["data"]
        assignments = [json.loads(text) for name, text in data.items() if name != "placement.json"]
        owned = sorted(device["id"] for entry in assignments for device in entry.get("devices", []))
        conditions = {entry["type"]: entry["status"] for entry in told["conditions"]}
        return (
            conditions["Covered"] == "True"
            and conditions["Progressing"] == "False"
            and owned == ["s-0", "s-1", "s-2", "s-3"]
            and {entry["shard"] for entry in assignments} == shard_names
            and len(shard_names) == shards
            and others == {key for key in names(1) if key[0] not in {"Deployment", "Service"}}
        )

    def scale(self, shards: int) -> None:
        self.cluster.merge(f"{self.fleet}/scale", {"spec": {"replicas": shards}})

    def heals(self, shards: int, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not self.covered(shards):
            assert time.monotonic() < deadline, (
                f"{shards} shards: {sorted(children(self.cluster, self.namespace))} {self.told()}"
            )
            time.sleep(0.1)

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of each, as the fleet says."""
        told = (self.cluster.get(self.fleet) or {}).get("status") or {}
        return {entry["type"]: (entry["status"], entry["reason"]) for entry in told.get("conditions", ())}

    def events(self, reason: str) -> list[Any]:
        listed = self.cluster.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [event for event in listed if event["reason"] == reason]

    def metric(self, name: str, **labels: str) -> float | None:
        """The fleet's sample; None where there is none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [line for line in lines if line.startswith(f"{name}{{") and all(part in line for part in wanted)]
        return float(found[0].rsplit(" ", 1)[1]) if found else None

    def told(self) -> Any:
        return (self.cluster.get(self.fleet) or {}).get("status"), self.log.read_text()[-1500:]

    def warnings(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line for line in lines if " WARNING " in line or " ERROR " in line]
