"""Faults on one machine: each does harm for a while and repairs it, alone or paired with another.

A fault is an asynchronous context manager over a `LocalSite`: entering does the harm, leaving repairs it. Instantaneous
harm notes its time in `site.struck`, from which recovery counts. `FAULTS` lists all, each with the longest gap that
a working sensor may have, the alerts that must fire, and those that may. `matrix.py` makes them and judges the effect.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from harness.machine.local_site import HOST, START_SECONDS, LocalSite
from harness.machine.phones import Phones
from harness.matrix.edits import DEFINITIONS, edits
from harness.matrix.fault import HOLD_SECONDS, Fault
from harness.matrix.rules import BURNS, DARK, HUB_GONE, MOVED, OPERATOR_GONE, SHARD_GONE
from harness.records.probers import is_admitted


def _kill(site: LocalSite, *words: str) -> None:
    pids = site.pids(*words)
    if not pids:
        raise RuntimeError(f"there is no process of {' '.join(words)} to be killed")
    site.struck = time.monotonic()
    os.kill(pids[0], signal.SIGKILL)


@asynccontextmanager
async def sensor_shard_killed(site: LocalSite) -> AsyncIterator[None]:
    """Kill a sensor shard, as the kernel does when memory runs out."""
    _kill(site, "shard", "sensor")
    yield


@asynccontextmanager
async def camera_shard_killed(site: LocalSite) -> AsyncIterator[None]:
    """Kill the camera shard and its decoders."""
    _kill(site, "shard", "camera")
    yield


@asynccontextmanager
async def hub_killed(site: LocalSite) -> AsyncIterator[None]:
    """Kill the hub."""
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
    """Freeze a sensor shard for a while."""
    async with _frozen(site.pids("shard", "sensor")[:1]):
        yield


@asynccontextmanager
async def sensor_shard_hung(site: LocalSite) -> AsyncIterator[None]:
    """Freeze a sensor shard until its supervisor notices and ends it."""
    pid = site.pids("shard", "sensor")[0]
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + HUNG_SECONDS
    while os.path.exists(f"/proc/{pid}/exe"):  # noqa: PTH110
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGCONT)
            raise AssertionError(f"a shard that was frozen for {HUNG_SECONDS:g} s was not ended")
        await asyncio.sleep(0.05)
    site.struck = time.monotonic()
    yield


@asynccontextmanager
async def hub_frozen(site: LocalSite) -> AsyncIterator[None]:
    """Freeze the hub for a while."""
    async with _frozen(site.pids("hub", "--data")):
        yield


@asynccontextmanager
async def operator_frozen(site: LocalSite) -> AsyncIterator[None]:
    """Freeze the operator for a while during a hand-over."""
    site.write_manifest(3 if site.shards == 2 else 2)
    await asyncio.sleep(1.0)
    async with _frozen([site.operator]):
        yield


@asynccontextmanager
async def operator_killed(site: LocalSite) -> AsyncIterator[None]:
    """Kill the operator during a hand-over. Its processes end with it, and everything is started again."""
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
    """Change the number of shards: a planned move, for comparison."""
    site.struck = time.monotonic()
    site.write_manifest(3 if site.shards == 2 else 2)
    yield


@asynccontextmanager
async def disk_full(site: LocalSite) -> AsyncIterator[None]:
    """Fill the disk of the hub and the spools, and free it again."""
    if site.disk is None:
        raise RuntimeError("mounting a disk needs root")
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
    """Send `lines` again and again on a separate connection."""

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
    """Let a declared sensor send as fast as possible."""
    line = b"#Sensorvictim:ADC1=280,ADC2=1300,ADC3=400!\r\n"
    async with _sending(site, line * 500, 0.0):
        yield


@asynccontextmanager
async def sensor_duplicated(site: LocalSite) -> AsyncIterator[None]:
    """Let a second device claim the id of a connected sensor."""
    async with _sending(site, b"#serialno:victim!\r\n#Sensor:ADC1=290,ADC2=1310,ADC3=410!\r\n", 0.1):
        yield


@asynccontextmanager
async def sensor_lies(site: LocalSite) -> AsyncIterator[None]:
    """Let a declared sensor send impossible values and garbage."""
    nonsense = b"#Sensorvictim:ADC1=-1e308,ADC2=nan,ADC3=99999999!\r\n#framevictim:ZZ!\r\n\xff\x00#!#!!\r\n"
    async with _sending(site, nonsense, 0.02):
        yield


@asynccontextmanager
async def sensor_silent(site: LocalSite) -> AsyncIterator[None]:
    """Let a sensor stay connected without sending."""
    site.texts["victim"].silent = True
    try:
        yield
    finally:
        site.texts["victim"].silent = False


def camera_with(**attributes: float) -> Callable[[LocalSite], AbstractAsyncContextManager[None]]:
    """Build a fault that sets attributes of a camera."""

    @asynccontextmanager
    async def do(site: LocalSite) -> AsyncIterator[None]:
        camera = site.cameras[0]
        before = {name: getattr(camera, name) for name in attributes}
        vars(camera).update(attributes)
        try:
            yield
        finally:
            vars(camera).update(before)

    return do


@asynccontextmanager
async def scaled_far(site: LocalSite) -> AsyncIterator[None]:
    """Scale to eight sensor shards, and back to two as soon as they run."""
    site.write_manifest(8)
    deadline = time.monotonic() + START_SECONDS
    while len(site.pids("shard", "sensor")) < 8 and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    await asyncio.sleep(HOLD_SECONDS)
    try:
        yield
    finally:
        site.write_manifest(2)


@asynccontextmanager
async def fields_edited(site: LocalSite) -> AsyncIterator[None]:
    """Change every field of both fleets that has a default, one after the other, and change it back."""
    todo = [(kind, *edit) for kind in DEFINITIONS for edit in edits(kind)]
    try:
        for kind, field, spec in todo:
            site.diary.note_change("edit", f"{field} of the {kind}")
            site.edited = {kind: spec}
            site.write_manifest(site.shards)
            await asyncio.sleep(EDIT_SECONDS)
        yield
    finally:
        site.edited = {}
        site.write_manifest(site.shards)


@asynccontextmanager
async def credentials_rotated(site: LocalSite) -> AsyncIterator[None]:
    """Replace the devices' token and the admin's while work continues, as docs/how-to/security.md describes."""
    before, after = site.device_token, secrets.token_urlsafe()
    home = f"{HOST}:{site.ports['grpc']}"
    site.write_tokens(before, after)
    await asyncio.sleep(READ_SECONDS)
    site.show_token(after)
    site.change_admin_token()
    await asyncio.sleep(READ_SECONDS)
    site.write_tokens(after)
    yield
    if await is_admitted(home, before) or not await is_admitted(home, after):
        raise AssertionError("the removed token is admitted, or the new one is not")


def _phones(site: LocalSite) -> Phones:
    if site.phones is None:
        raise RuntimeError("the hub of this site notifies nobody")
    return site.phones


@asynccontextmanager
async def provider_down(site: LocalSite) -> AsyncIterator[None]:
    """Stop the provider of the first phone."""
    phones = _phones(site)
    await phones.close()
    try:
        yield
    finally:
        await phones.open()


def provider_with(**attributes: bool) -> Callable[[LocalSite], AbstractAsyncContextManager[None]]:
    """Build a fault that sets attributes of the first phone's provider."""

    @asynccontextmanager
    async def do(site: LocalSite) -> AsyncIterator[None]:
        vars(_phones(site)).update(attributes)
        try:
            yield
        finally:
            _phones(site).mend()

    return do


@asynccontextmanager
async def name_gone(site: LocalSite) -> AsyncIterator[None]:
    """Let the name of the first phone's provider resolve no more."""
    _phones(site).know_name(known=False)
    try:
        yield
    finally:
        _phones(site).know_name()


PROVIDER = "the provider of the first phone"
UNREACHED = frozenset({"RouteFailing"})
HUNG_SECONDS = 60.0  # time limit for a hanging process to be ended
READ_SECONDS = 3.0  # time in which hub and shards read changed files
HOUR = 3600.0
EDIT_SECONDS = 0.4  # between two edits
FAULTS: dict[str, Fault[LocalSite]] = {
    fault.name: fault
    for fault in (
        Fault("planned move", "the number of sensor shards is changed", 1.5, scaled, at_once=True,
              besides=MOVED, planned=True),
        Fault("scaled far", "the fleet is scaled to eight sensor shards, and back to two", 1.5, scaled_far,
              besides=frozenset({"FleetNotReady", "ScalingStuck", "ShardDown", "EventLoopSlow"}), planned=True),
        Fault("fields edited", "every field of both fleets that has a default is changed, and changed back", 1.5,
              fields_edited, planned=True),
        Fault("credentials rotated", "the devices' token and the administrator's are replaced", 1.5,
              credentials_rotated, planned=True),
        Fault("shard killed", "a sensor shard is killed (-9)", 10.0, sensor_shard_killed, at_once=True,
              besides=SHARD_GONE),
        Fault("shard frozen", "a sensor shard is frozen (SIGSTOP) and continues", 10.0, sensor_shard_frozen,
              duration=8.0,
              alerts=frozenset({"ShardDown"}), besides=SHARD_GONE),
        Fault("shard hung", "a sensor shard is frozen (SIGSTOP) until its supervisor ends it", 45.0,
              sensor_shard_hung, at_once=True, alerts=frozenset({"ShardDown"}),
              besides=SHARD_GONE | {"FleetNotReady", "ScalingBlind"}),
        Fault("camera shard killed", "the camera shard is killed (-9)", 1.5, camera_shard_killed, at_once=True,
              besides=SHARD_GONE),
        Fault("hub killed", "the hub is killed (-9)", 1.5, hub_killed, at_once=True, besides=HUB_GONE),
        Fault("hub frozen", "the hub is frozen (SIGSTOP) and continues", 1.5, hub_frozen, duration=8.0,
              alerts=frozenset({"HubDown"}), besides=HUB_GONE | {"EvidenceWaiting"}),
        Fault("operator frozen", "the operator is frozen (SIGSTOP) during a hand-over", 1.5, operator_frozen,
              duration=10.0, alerts=frozenset({"OperatorAbsent"}), besides=OPERATOR_GONE | MOVED),
        Fault("operator killed", "operator, hub and shards are killed (-9) during a hand-over, and started again", 45.0,
              operator_killed, at_once=True, besides=SHARD_GONE | HUB_GONE | OPERATOR_GONE),
        Fault("disk full", "the disk of the hub's history and the spools is full", 1.5, disk_full, duration=14.0,
              alerts=frozenset({"DiskFilling", "HubStoreFailing"}),
              besides=frozenset({"EvidenceWaiting", "FleetDegraded"})),  # shards have evidence in memory only
        Fault("clock ahead", "the wall clock of every process is set an hour ahead", 1.5, clock_stepped(HOUR)),
        Fault("clock back", "the wall clock of every process is set an hour back", 1.5, clock_stepped(-HOUR)),
        Fault("provider down", f"{PROVIDER} is down", 1.5, provider_down, duration=14.0, alerts=UNREACHED,
              takes="provider"),
        Fault("provider slow", f"{PROVIDER} does not answer", 1.5, provider_with(is_slow=True), duration=14.0,
              alerts=UNREACHED, takes="provider"),
        Fault("provider refusing", f"{PROVIDER} answers 503", 1.5, provider_with(is_refusing=True), duration=14.0,
              alerts=UNREACHED, takes="provider"),
        Fault("name gone", f"the name of {PROVIDER} does not resolve", 1.5, name_gone, duration=14.0,
              alerts=UNREACHED, takes="provider"),
        Fault("sensor floods", "a declared sensor sends as fast as it can", 1.5, sensor_floods, duration=14.0,
              besides=frozenset({"SensorsShedding", "Compacting", "EventLoopSlow", "FleetAtMaximum"})),
        Fault("sensor duplicated", "a second device claims the id of a connected sensor", 1.5, sensor_duplicated),
        Fault("sensor lies", "a sensor sends impossible values and garbage", 1.5, sensor_lies),
        Fault("sensor silent", "a sensor stays connected and sends nothing", 1.5, sensor_silent, duration=12.0,
              alerts=DARK, besides=BURNS),
        Fault("camera frozen", "a camera repeats one picture", 1.5, camera_with(frozen=True), duration=25.0,
              alerts=DARK, besides=BURNS),
        Fault("camera covered", "a camera's lens is covered", 1.5, camera_with(covered=True), duration=12.0,
              alerts=DARK, besides=BURNS),
        Fault("camera silent", "a camera stays connected and sends nothing", 1.5, camera_with(silent=True),
              duration=12.0,
              alerts=DARK, besides=BURNS),
        Fault("camera floods", "a camera sends fifty times too many pictures", 1.5,
              camera_with(speed=50.0), duration=12.0, besides=frozenset({"CamerasShedding", "EventLoopSlow"})),
    )
}  # fmt: skip
