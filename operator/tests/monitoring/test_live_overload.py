"""A real Prometheus and overloaded sites: the series of overload alerts exist."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from embereye.camera.decode.pool import decoder_count
from embereye.process.addresses import free_ports

from .site import Prometheus, Site, running_prometheus, running_site, until
from .test_live import NEEDS, hurried, stopped

pytestmark = pytest.mark.slow

# Two fleets with queues of ten packets, and one with a single shard and too many cameras to decode.
FLEETS = """
apiVersion: embereye.dev/v1alpha1
kind: SensorFleet
metadata: {{name: compacting}}
spec:
  sensors: [{{id: s-1, zone: hall}}]
  listen: {{tcp: {tcp}, grpc: {grpc}}}
  queue: {{capacity: 10, overflow: compact}}
---
apiVersion: embereye.dev/v1alpha1
kind: SensorFleet
metadata: {{name: dropping}}
spec:
  sensors: [{{id: s-1, zone: stairs}}]
  listen: {{tcp: {drop}, grpc: {drop_grpc}}}
  queue: {{capacity: 10, overflow: dropOldest}}
---
apiVersion: embereye.dev/v1alpha1
kind: CameraFleet
metadata: {{name: yard}}
spec:
  cameras:
{cameras}
  fps: {{target: 60, min: 60}}
  autoscaling: {{mode: embedded, minShards: 1, maxShards: 1}}
  listen: {{grpc: {push}}}
"""
CAMERA = '    - {{id: camera-{number}, zone: yard, source: "http://127.0.0.1:{port}/camera-{number}.mjpg"}}'
CAMERAS = 12 * decoder_count(os.cpu_count())  # a decoder can handle only a few of them at 60 frames/s
SECONDS = 100.0  # until an alert must fire or resolve


@contextmanager
def simulated(*options: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "embereye_cli", "simulate", *options], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    names = ("tcp", "grpc", "drop", "drop_grpc", "push", "camera")
    return dict(zip(names, free_ports(len(names)), strict=True))


@pytest.fixture(scope="module")
def site(ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cameras = "\n".join(CAMERA.format(number=number + 1, port=ports["camera"]) for number in range(CAMERAS))
    fleets = FLEETS.format(**ports, cameras=cameras).replace("{", "{{").replace("}", "}}")
    with running_site(tmp_path_factory.mktemp("overload"), fleets, processes=5) as site:
        yield site


@pytest.fixture(scope="module")
def prometheus(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    rules = yaml.safe_dump(hurried()).replace("[5m]", "[15s]")  # otherwise nothing would resolve during a test
    (folder / "rules.yaml").write_text(rules)
    with running_prometheus(folder, site.data / "prometheus-targets.json", folder / "rules.yaml") as prometheus:
        until(lambda: len(prometheus.query("up == 1")) == 5)
        yield prometheus


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fleet", "alert"), [("tcp", "EmberEyeCompacting"), ("drop", "EmberEyeSensorsShedding")])
def test_a_sensor_that_floods_its_queue_fires_an_alert_that_resolves(
    prometheus: Prometheus, ports: dict[str, int], fleet: str, alert: str
) -> None:
    # Quiet packets fit into any queue: only readings of a fire exceed ten packets at a time.
    flood = ("--devices", "s-1=hall", "--rate", "2000", "--frame-rate", "0", "--fire", "at=1,for=600,device=s-1")
    with simulated("sensors", "--target", f"127.0.0.1:{ports[fleet]}", *flood):
        until(lambda: alert in prometheus.firing(), SECONDS)
        reason = '{reason="compacted"}' if fleet == "tcp" else '{reason!="compacted"}'
        selector = f"embereye_sensor_shed_total{reason}"
        assert selector in NEEDS
        assert prometheus.query(selector)
    until(lambda: alert not in prometheus.firing(), SECONDS)


@pytest.mark.timeout(400)
def test_too_many_cameras_fire_an_alert_that_resolves(
    site: Site, prometheus: Prometheus, ports: dict[str, int]
) -> None:
    # Not EmberEyeFleetAtMaximum: it needs nine tenths of a core, which a busy machine does not give the shard.
    alerts = {"EmberEyeDecodingSaturated", "EmberEyeCamerasShedding"}
    at = f"127.0.0.1:{ports['camera']}"
    with simulated("cameras", "--listen", at, "--count", str(CAMERAS), "--fps", "60", "--size", "1920x1080"):
        until(lambda: alerts <= prometheus.firing(), SECONDS)
        assert prometheus.query('embereye_camera_frames_shed_total{reason=~"overload|superseded"}')
        # Decoders that are repeatedly suspended make frames wait.
        deadline = time.monotonic() + SECONDS
        while "EmberEyeFramesOld" not in prometheus.firing() and time.monotonic() < deadline:
            with stopped(site.processes("embereye.camera.decode.process")):
                time.sleep(2.0)  # after five they would be replaced
            time.sleep(0.1)
        assert "EmberEyeFramesOld" in prometheus.firing()
        # A shard reserves room for an absent camera: only the remedy in the message resolves the refusals.
        manifests = site.data.parent / "fleets.yaml"
        manifests.write_text(manifests.read_text().replace("min: 60", "min: 1"))
        until(lambda: "EmberEyeDecodingSaturated" not in prometheus.firing(), SECONDS)
    until(lambda: not (alerts | {"EmberEyeFramesOld"}) & prometheus.firing(), SECONDS)
