"""Faults that are made on one machine: each does harm for a while and mends it, alone or beside another."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from harness.machine.local_site import HOST, LocalSite
from harness.matrix.fault import Fault


def _kill(site: LocalSite, *words: str) -> None:
    pids = site.pids(*words)
    if not pids:
        raise RuntimeError(f"there is no process of {' '.join(words)} to be killed")
    site.struck = time.monotonic()
    os.kill(pids[0], signal.SIGKILL)


@asynccontextmanager
async def sensor_shard_killed(site: LocalSite) -> AsyncIterator[None]:
    """A sensor shard is killed, as for want of memory."""
    _kill(site, "shard", "sensor")
    yield


@asynccontextmanager
async def camera_shard_killed(site: LocalSite) -> AsyncIterator[None]:
    """The camera shard is killed, and its decoders with it."""
    _kill(site, "shard", "camera")
    yield


@asynccontextmanager
async def hub_killed(site: LocalSite) -> AsyncIterator[None]:
    """The hub is killed."""
    _kill(site, "hub", "--data")
    yield


@asynccontextmanager
async def _frozen(pids: Sequence[int]) -> AsyncIterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def sensor_shard_frozen(site: LocalSite) -> AsyncIterator[None]:
    """A sensor shard stands still, as when its machine does, and goes on."""
    async with _frozen(site.pids("shard", "sensor")[:1]):
        yield


@asynccontextmanager
async def hub_frozen(site: LocalSite) -> AsyncIterator[None]:
    """The hub stands still and goes on."""
    async with _frozen(site.pids("hub", "--data")):
        yield


@asynccontextmanager
async def operator_frozen(site: LocalSite) -> AsyncIterator[None]:
    """The operator stands still during a hand-over and goes on: one shard more was asked for."""
    site.write_manifest(3 if site.shards == 2 else 2)
    await asyncio.sleep(1.0)
    async with _frozen([site.operator]):
        yield


@asynccontextmanager
async def operator_killed(site: LocalSite) -> AsyncIterator[None]:
    """The operator is killed during a hand-over; what it supervises ends with it, and all is started again."""
    site.write_manifest(3 if site.shards == 2 else 2)
    await asyncio.sleep(1.0)
    tree = site.tree()
    site.struck = time.monotonic()
    os.kill(site.operator, signal.SIGKILL)
    deadline = time.monotonic() + 15
    while any(os.path.exists(f"/proc/{pid}/exe") for pid in tree) and time.monotonic() < deadline:  # noqa: PTH110
        await asyncio.sleep(0.05)
    await site.start()
    yield


@asynccontextmanager
async def scaled(site: LocalSite) -> AsyncIterator[None]:
    """A planned move, for comparison: another number of shards."""
    site.struck = time.monotonic()
    site.write_manifest(3 if site.shards == 2 else 2)
    yield


@asynccontextmanager
async def disk_full(site: LocalSite) -> AsyncIterator[None]:
    """Not a byte is left on the disk of hub and spools; then there is room again."""
    if site.disk is None:
        raise RuntimeError("a disk of the site's own takes root")
    site.disk.fill()
    try:
        yield
    finally:
        site.disk.free()


def clock_stepped(seconds: float) -> Callable[[LocalSite], AbstractAsyncContextManager[None]]:
    """The wall clock of all processes is set, and set back."""

    @asynccontextmanager
    async def step(site: LocalSite) -> AsyncIterator[None]:
        site.set_clock(seconds)
        try:
            yield
        finally:
            site.set_clock(0)

    return step


@asynccontextmanager
async def _sending(site: LocalSite, lines: bytes, pause: float) -> AsyncIterator[None]:
    """Somebody who sends `lines` over and over on a connection of his own."""

    async def send() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, site.ports["tcp"])
                try:
                    while not writer.is_closing():
                        writer.write(lines)
                        await writer.drain()
                        await asyncio.sleep(pause)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.1)

    task = asyncio.get_running_loop().create_task(send(), name="hostile-sender")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def sensor_floods(site: LocalSite) -> AsyncIterator[None]:
    """A declared sensor sends as much as it can."""
    line = b"#Sensorvictim:ADC1=280,ADC2=1300,ADC3=400!\r\n"
    async with _sending(site, line * 500, 0.0):
        yield


@asynccontextmanager
async def sensor_duplicated(site: LocalSite) -> AsyncIterator[None]:
    """A second device says that it is a sensor that is there."""
    async with _sending(site, b"#serialno:victim!\r\n#Sensor:ADC1=290,ADC2=1310,ADC3=410!\r\n", 0.1):
        yield


@asynccontextmanager
async def sensor_lies(site: LocalSite) -> AsyncIterator[None]:
    """A declared sensor sends what no sensor measures, and what is no line at all."""
    nonsense = b"#Sensorvictim:ADC1=-1e308,ADC2=nan,ADC3=99999999!\r\n#framevictim:ZZ!\r\n\xff\x00#!#!!\r\n"
    async with _sending(site, nonsense, 0.02):
        yield


@asynccontextmanager
async def camera_frozen(site: LocalSite) -> AsyncIterator[None]:
    """A camera shows one picture over and over."""
    for camera in site.cameras:
        camera.frozen = True
    try:
        yield
    finally:
        for camera in site.cameras:
            camera.frozen = False


HOUR = 3600.0
FAULTS: dict[str, Fault[LocalSite]] = {
    fault.name: fault
    for fault in (
        Fault("planned move", "the number of sensor shards is changed", 1.5, scaled, at_once=True),
        Fault("shard killed", "a sensor shard is killed (-9)", 10.0, sensor_shard_killed, at_once=True),
        Fault("shard frozen", "a sensor shard stands still (SIGSTOP) and goes on", 10.0, sensor_shard_frozen),
        Fault("camera shard killed", "the camera shard is killed (-9)", 1.5, camera_shard_killed, at_once=True),
        Fault("hub killed", "the hub is killed (-9)", 1.5, hub_killed, at_once=True),
        Fault("hub frozen", "the hub stands still (SIGSTOP) and goes on", 1.5, hub_frozen),
        Fault("operator frozen", "the operator stands still (SIGSTOP) during a hand-over", 1.5, operator_frozen),
        Fault("operator killed", "operator, hub and shards are killed (-9) during a hand-over, and started again", 45.0,
              operator_killed, at_once=True),
        Fault("disk full", "not a byte is left under the hub's history and the spools", 1.5, disk_full),
        Fault("clock ahead", "the wall clock of every process is set an hour ahead", 1.5, clock_stepped(HOUR)),
        Fault("clock back", "the wall clock of every process is set an hour back", 1.5, clock_stepped(-HOUR)),
        Fault("sensor floods", "a declared sensor sends as much as it can", 1.5, sensor_floods),
        Fault("sensor duplicated", "another device says that it is a sensor that is there", 1.5, sensor_duplicated),
        Fault("sensor lies", "a sensor sends what none measures, and no lines at all", 1.5, sensor_lies),
        Fault("camera frozen", "a camera shows one picture over and over", 1.5, camera_frozen),
    )
}  # fmt: skip
