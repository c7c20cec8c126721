"""Floods of raw HTTP/2 frames before any token: memory stays bounded, and alarms arrive meanwhile."""

import asyncio
from pathlib import Path

import pytest
from harness.eventually import eventually

from embereye.units import MIB

from .flood import WAYS
from .site import SMOKE, Site
from .test_strangers import _resident

CONNECTIONS = 8
MOST = 100  # MiB that a process may grow
SECONDS = 2.0
# Most ways never acknowledge the server's settings, without which gRPC's core limits no headers.
ACKNOWLEDGED = ("bomb", "continuation", "entries", "data")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "acknowledged"), [*((way, False) for way in WAYS), *((way, True) for way in ACKNOWLEDGED)]
)
async def test_a_flood_of_frames_takes_bounded_memory_and_delays_no_alarm(
    site: Site, way: str, *, acknowledged: bool
) -> None:
    honest = await site.honest()
    before = {name: _resident(site, name) for name in ("hub", "shard-0")}
    peaks, arguments = dict(before), ["0"] if acknowledged else []
    for name in before:
        port = str(site.ports[name][0])
        site.launch(f"flood-{name}", str(Path(__file__).with_name("flood.py")), port, way, str(CONNECTIONS), *arguments)
    await eventually(lambda: all("bytes sent" in site.log(f"flood-{name}") for name in before), 60)
    deadline = asyncio.get_running_loop().time() + SECONDS
    honest.line = SMOKE
    while asyncio.get_running_loop().time() < deadline:
        peaks = {name: max(peaks[name], _resident(site, name)) for name in before}
        await asyncio.sleep(0.1)
    await site.alarmed("honest")
    grown = {name: (peaks[name] - before[name]) // MIB for name in before}
    assert all(size < MOST for size in grown.values()), grown
