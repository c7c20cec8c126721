"""Run fleets on a real kube-apiserver and etcd, and operators with simulated shards.

A `Site` creates fleets in one namespace and starts operators as processes of `simulated.py`. Two files steer what the
shards of these operators do: names of dead shards, and the cores of work that fleets have. Progress is read from the
operator's metrics. There is no garbage collector here, so `delete` also removes the fleets' children.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError

from embereye.process.addresses import free_port
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.usage import cpu_seconds, resident_mb
from embereye_operator.api.crds import build_crd
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.shared import API_VERSION
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, FLEETS

NAMESPACE = "default"
LISTED = 2_000  # devices in a ConfigMap
COVERED = 'embereye_fleet_condition{condition="Covered"'


@contextlib.contextmanager
def api_server(kubeconfig: Path | None) -> Iterator[Path]:
    """Start a temporary API server with the fleets' CRDs, or use the named one; yield its kubeconfig."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    try:
        from harness.servers.apiserver import install_crds, run_api_server
    except ImportError as error:
        raise UserError("no source tree to start an API server from. Set --kubeconfig.") from error
    with run_api_server() as server:
        install_crds(server, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        yield server.kubeconfig


@dataclass
class Operator:
    """A running operator with simulated shards."""

    process: subprocess.Popen[bytes]
    port: int
    dead: Path  # a file with the names of shards that do not answer

    def metrics(self) -> str:
        """All of its metrics; '' if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
                return str(response.read().decode())
        except OSError:
            return ""

    def is_well(self) -> bool:
        """True if its liveness probe succeeds."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=3):
                return True
        except OSError:
            return False

    def value(self, name: str) -> float:
        """The sum of the series whose lines start with `name`."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.metrics().splitlines() if line.startswith(name))

    def is_covering(self, fleets: int) -> bool:
        """True if it reports `fleets` fleets or more, and all of them as covered."""
        lines = [line for line in self.metrics().splitlines() if line.startswith(COVERED)]
        return len(lines) >= fleets and all(line.endswith(" 1.0") for line in lines)

    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_seconds(self.process.pid)

    def resident(self) -> float:
        """Its memory in MB."""
        return resident_mb(self.process.pid)


def fleet_manifest(
    name: str, shards: int = 1, devices: int = 4, autoscaling: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A SensorFleet's manifest."""
    return {
        "apiVersion": API_VERSION,
        "kind": "SensorFleet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "sensors": [{"id": f"s-{index}", "zone": "hall"} for index in range(devices)],
            "shards": shards,
            "autoscaling": autoscaling or {"mode": "none"},
        },
    }


class Site:
    """The fleets on one API server, in one namespace, and the operators there."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._folder = Path(tempfile.mkdtemp(prefix="embereye-bench-"))
        self.work = self._folder / "cores"  # of work that fleets have, if it is not almost none

    @contextlib.contextmanager
    def operator(self, *options: str, **variables: str) -> Iterator[Operator]:
        """Run an operator during the block."""
        port = free_port()
        dead = self._folder / f"dead-{port}"
        dead.touch()
        command = [sys.executable, "-m", "embereye_bench.operator.simulated", "--image=bench", "--hub=127.0.0.1:9",
                   f"--health-port={port}", "--namespace", NAMESPACE, *options]  # fmt: skip
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "EMBEREYE_DEAD_SHARDS": str(dead),
            "EMBEREYE_SIMULATED_CORES": str(self.work),
            **variables,
        }
        with (self._folder / f"operator-{port}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield Operator(process, port, dead)
        finally:
            process.kill()
            process.wait()

    def wait(self, done: Callable[[], bool], limit: float, subject: str) -> float:
        """Wait until `done`, and return the seconds it took; UserError if it takes more than `limit`."""
        started = time.monotonic()
        while not done():
            if time.monotonic() - started > limit:
                raise UserError(f"{subject}: not within {limit:g} s. See the logs in {self._folder}.")
            time.sleep(0.1)
        return time.monotonic() - started

    def plugin(self, *arguments: str) -> tuple[str, float]:
        """Run `kubectl embereye`; return its output, and its duration in seconds."""
        started = time.monotonic()
        completed = subprocess.run(
            [sys.executable, "-m", "embereye_cli.plugin", *arguments, "--namespace", NAMESPACE],
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return completed.stdout, time.monotonic() - started

    def client(self) -> AsyncClient:
        """A new client; the caller closes it."""
        return AsyncClient(config=KubeConfig.from_file(str(self._kubeconfig)).get())

    async def create(self, fleets: Sequence[dict[str, Any]]) -> None:
        """Declare `fleets`."""
        client = self.client()
        kind: Any = FLEETS["SensorFleet"]
        for fleet in fleets:
            await client.create(kind.from_dict(fleet))
        await client.close()

    async def create_listed(self, name: str, shards: int, devices: int) -> None:
        """Declare a fleet of many devices, ten in a zone, by ConfigMaps."""
        declared = [{"id": f"s-{index:05}", "zone": f"z-{index // 10}"} for index in range(devices)]
        client, kind = self.client(), CHILDREN["ConfigMap"]
        lists: list[dict[str, Any]] = []
        for first in range(0, devices, LISTED):
            metadata = {"name": f"{name}-{len(lists)}", "namespace": NAMESPACE}
            data = {"sensors": json.dumps(declared[first : first + LISTED])}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            await client.apply(kind.from_dict(manifest), field_manager="bench", force=True)
            lists.append({"configMapRef": {"name": metadata["name"]}})
        await client.close()
        fleet = fleet_manifest(name, shards, devices=0)
        fleet["spec"]["sensorsFrom"] = lists
        await self.create([fleet])

    async def delete(self) -> None:
        """Delete all fleets and their children: there is no garbage collector here."""
        client = self.client()
        for kind in (FLEETS["SensorFleet"], *(CHILDREN[name] for name in ("Deployment", "Service", "ConfigMap"))):
            with contextlib.suppress(ApiError):
                listed: Any = client.list(kind, namespace=NAMESPACE)
                for manifest in [manifest async for manifest in listed]:
                    labels = manifest["metadata"].get("labels") or {}
                    if kind is FLEETS["SensorFleet"] or "embereye.dev/fleet" in labels:
                        await client.delete(kind, manifest["metadata"]["name"], namespace=NAMESPACE)
        await client.close()

    async def stored_kb(self, name: str) -> tuple[float, float]:
        """The sizes of a fleet's placement and of its status, in kB."""
        client = self.client()
        placement: Any = await client.get(CHILDREN["ConfigMap"], f"{name}-sensors-placement", namespace=NAMESPACE)
        fleet: Any = await client.get(FLEETS["SensorFleet"], name, namespace=NAMESPACE)
        await client.close()
        return len(json.dumps(placement)) / 1000, len(json.dumps(fleet["status"])) / 1000
