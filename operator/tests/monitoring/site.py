"""A whole site on this machine: `embereye up` with simulated devices, and a real Prometheus if it is installed."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.eventually import wait_for
from harness.need import PROMETHEUS

from embereye.process.addresses import free_ports

FLEETS = """
apiVersion: embereye.dev/v1alpha1
kind: SensorFleet
metadata: {{name: hall, annotations: {{embereye.dev/simulate: "true"}}}}
spec:
  sensors:
    - {{id: s-1, zone: hall}}
    - {{id: s-2, zone: stairs}}
  listen: {{tcp: {tcp}, grpc: {grpc}}}
  telemetry: {{archive: true}}
---
apiVersion: embereye.dev/v1alpha1
kind: CameraFleet
metadata: {{name: yard, annotations: {{embereye.dev/simulate: "true"}}}}
spec:
  cameras:
    - {{id: c-1, zone: hall, source: "http://127.0.0.1:{camera}/c-1.mjpg"}}
  listen: {{grpc: {push}}}
"""
START_SECONDS = 60.0


def until(condition: Callable[[], Any], seconds: float = START_SECONDS) -> Any:
    """Return the first true result of `condition`, which may fail to connect; AssertionError after `seconds`."""

    def result() -> Any:
        with contextlib.suppress(OSError):
            return condition()

    return wait_for(result, condition, seconds)


@dataclass
class Site:
    process: "subprocess.Popen[str]"
    data: Path
    endpoints: dict[str, Any]

    def processes(self, words: str) -> list[int]:
        """Return the ids of the site's processes, at any depth, whose command contains `words`."""
        ids, seen = [], [self.process.pid]
        for number in seen:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                for task in Path(f"/proc/{number}/task").iterdir():
                    seen += map(int, (task / "children").read_text().split())
                command = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if number != self.process.pid and words in command:
                    ids.append(number)
        return ids

    def targets(self) -> list[dict[str, Any]]:
        return json.loads((self.data / "prometheus-targets.json").read_text())

    def scraped(self) -> dict[str, str]:
        """Return each process' metrics by its job, or by its fleet's kind if it is a shard."""
        pages = {}
        for group in self.targets():
            name = group["labels"].get("kind", group["labels"]["job"])
            with urllib.request.urlopen(f"http://{group['targets'][0]}/metrics", timeout=10) as answer:
                pages[name] = answer.read().decode()
        return pages


@contextlib.contextmanager
def running_site(folder: Path, fleets: str = FLEETS, processes: int = 4) -> Iterator[Site]:
    """Run `embereye up` with `fleets`; yields once it lists this number of `processes` for Prometheus."""
    tcp, grpc, push, camera, console, hub = free_ports(6)
    manifests, data = folder / "fleets.yaml", folder / "data"
    manifests.write_text(fleets.format(tcp=tcp, grpc=grpc, push=push, camera=camera))
    command = [sys.executable, "-m", "embereye_cli", "up", "--json", "--data", str(data),
               "--console-port", str(console), "--hub-port", str(hub), str(manifests)]  # fmt: skip
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, (folder / "up.log").read_text()
        site = Site(process, data, json.loads(line))
        until(lambda: len(site.targets()) == processes)
        yield site
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout
        process.stdout.close()


@dataclass
class Prometheus:
    """The HTTP API of a real Prometheus."""

    address: str

    def get(self, path: str, **query: str) -> Any:
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        result = self.get("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}


@contextlib.contextmanager
def running_prometheus(folder: Path, targets: Path, rules: Path | None = None) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `targets` every second; skip the test if it is not installed."""
    PROMETHEUS.require()
    (port,) = free_ports(1)
    config = folder / "prometheus.yaml"
    jobs = [{"job_name": "embereye", "honor_labels": True,
             "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]}]  # fmt: skip
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "scrape_configs": jobs,
                "rule_files": [str(rules)] if rules else [],
            }
        )
    )
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        until(lambda: urllib.request.urlopen(f"{prometheus.address}/-/ready", timeout=1).status == 200)
        yield prometheus
    finally:
        process.terminate()
        process.wait(30)
