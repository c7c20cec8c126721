"""A simulated fire among 6 cameras and 20 sensors that `embereye up` watches."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from embereye.process.addresses import free_ports
from harness.running_programs import start_up

BURNING = "hall-1"  # the second of three zones; it burns from the fifteenth second on
READY_SECONDS = 180
# Both kinds of devices.
FLEETS = """
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {{name: yard, annotations: {{embereye.dev/simulate: "true", embereye.dev/simulate-fire: "{fire}"}}}}
spec:
  cameras:
{cameras}
  deadline: 5s
  listen: {{grpc: {grpc}}}
  fps: {{target: 5, min: 1}}
  access: {{networks: [127.0.0.0/8]}}
---
apiVersion: embereye.dev/v1beta1
kind: SensorFleet
metadata: {{name: rooms, annotations: {{embereye.dev/simulate: "true", embereye.dev/simulate-fire: "{fire}"}}}}
spec:
  sensors:
{sensors}
  deadline: 10s
  listen: {{tcp: {tcp}, grpc: {ingest}}}
  access: {{networks: [127.0.0.0/8]}}
"""


@dataclass(frozen=True)
class BurningHouse:
    """A house that burns."""

    base: str  # the address of its console
    token: str  # the admin's
    manifest: Path
    cameras: str  # the address of its simulated cameras, such as CAMERAS/cam-0.mjpg


@contextlib.asynccontextmanager
async def burning_house(folder: Path) -> AsyncIterator[BurningHouse]:
    """Run `embereye up` with its files in `folder` during the block."""
    cameras, grpc, tcp, ingest, port, hub = free_ports(6)
    zones = [f"hall-{number % 3}" for number in range(20)]
    at = f"http://127.0.0.1:{cameras}"
    text = FLEETS.format(
        fire=f"at=15,for=600,zone={BURNING}", grpc=grpc, tcp=tcp, ingest=ingest,
        cameras="\n".join(f"    - {{id: cam-{n}, zone: {zones[n]}, source: '{at}/cam-{n}.mjpg'}}" for n in range(6)),
        sensors="\n".join(f"    - {{id: s-{n:02}, zone: {zones[n]}}}" for n in range(20)),
    )  # fmt: skip
    manifest = folder / "fleets.yaml"
    manifest.write_text(text)
    async with contextlib.AsyncExitStack() as stack:
        ready, token = await start_up(stack, folder / "data", port, hub, manifest, seconds=READY_SECONDS)
        yield BurningHouse(ready["console"].rstrip("/"), token, manifest, at)
