"""Disks that are full, read-only or damaged: processes continue as far as possible, and report the rest."""

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import urllib.error
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually
from harness.machine.disk import Disk, can_mount, mounted_disk

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel

from .site import ALARM_SECONDS, CALM, HOST, SMOKE, Site


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    """Four megabytes, mounted where the hub of `site` stores its data."""
    if not can_mount():
        pytest.skip("a separate file system needs root, unshare and nsenter")
    async with contextlib.AsyncExitStack() as stack:
        try:
            mounted = await stack.enter_async_context(mounted_disk(tmp_path / "hub", 4))
        except RuntimeError as error:
            pytest.skip(str(error))
        yield mounted


async def serving(site: Site) -> bool:
    async with channel(site.hub) as link:
        answer = await health_pb2_grpc.HealthStub(link).Check(health_pb2.HealthCheckRequest(), timeout=30)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def zone_state(site: Site, zone: str) -> str:
    zones = (await site.get("/v1/zones"))["zones"]
    return next((str(entry["state"]) for entry in zones if entry["name"] == zone), "")


async def failing(site: Site) -> str:
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
        return str((await site.get("/v1/zones"))["failing"])
    return ""


async def watch(site: Site) -> asyncio.subprocess.Process:
    """Start `embereye alarms` at the hub; return it once it has shown the zones."""
    watching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "alarms", "--hub", site.hub, "--token", f"@{site.folder / 'admin-token'}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert watching.stdout
    assert (await watching.stdout.readline()).startswith(b"Zone")
    return watching


async def error_lines(watching: asyncio.subprocess.Process, word: str) -> list[str]:
    """Read its standard error up to the line with `word`."""
    lines = list[str]()
    assert watching.stderr
    while line := (await watching.stderr.readline()).decode().strip():
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(f"it ended without {word!r}: {lines}")


async def test_a_hub_with_a_full_disk_shows_the_fire_and_loses_nothing(site: Site, disk: Disk) -> None:
    site.prefix = disk.prefix
    site.start("hub")
    site.assign("shard-0", "first", "second")
    site.start("shard-0")
    first, second = site.speaker("shard-0", "first"), site.speaker("shard-0", "second")
    await site.covered(["first", "second"])
    watching = await watch(site)
    disk.fill()
    first.line = SMOKE

    async def seen() -> bool:
        return await zone_state(site, "first") == "ZONE_STATE_ALARM"

    await eventually(seen, goal="the fire is seen", seconds=ALARM_SECONDS)
    await eventually(lambda: failing(site), goal="the hub says that it cannot write", seconds=ALARM_SECONDS)
    lines = await error_lines(watching, "ALARM")
    assert lines[-1].endswith(" (not stored yet)")
    assert "ALARM default/first: " in lines[-1]
    if not any("cannot write" in line for line in lines):
        lines = await error_lines(watching, "cannot write")
    assert (
        "embereye: the hub cannot write its database: database or disk is full; events are published now, and "
        "again when they are stored"
    ) in lines
    await asyncio.sleep(1)
    assert site.read("/healthz") == "ok\n"
    assert await serving(site)
    assert await site.metric("shard-0", "embereye_shard_hub_connected") == 1
    assert await site.metric("shard-0", "embereye_shard_evidence_spooled") > 0, "nothing is acknowledged"
    assert await site.metric("shard-0", "embereye_shard_degraded") == 1
    refusal = f"hub {HOST}:{site.ports['hub'][3]} acknowledges no reports: the hub cannot write its database: database"
    assert site.log("shard-0").count(refusal) == 1, "the shard reports the reason once"
    await site.covered(["first", "second"])
    second.line = SMOKE
    disk.free()
    for zone in ("first", "second"):
        await site.alarmed(zone)
        assert len(await site.alarms(zone)) == 1
    assert not await failing(site)
    assert not await site.metric("shard-0", "embereye_shard_degraded")
    assert (await error_lines(watching, "again"))[-1].startswith("embereye: the hub can write its database again")
    watching.terminate()
    await watching.wait()
    assert site.running("hub")


@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("fault", ["full", "read-only"])
async def test_a_hub_started_on_an_unwritable_disk_serves_its_data_and_recovers(
    site: Site, disk: Disk, fault: str, ended: signal.Signals
) -> None:
    site.prefix = disk.prefix
    site.start("hub")
    site.assign("shard-0", "before", "after")
    site.start("shard-0")
    before, after = site.speaker("shard-0", "before"), site.speaker("shard-0", "after")
    await site.covered(["before", "after"])
    before.line = SMOKE
    await site.alarmed("before")
    history = await site.history()
    site.end("hub", ended)
    if fault == "full":
        disk.fill()
    else:
        disk.remount("ro")
    site.start("hub")
    await eventually(lambda: failing(site), goal="the hub serves and says that it cannot write")
    served = await site.history()
    assert served == history
    after.line = SMOKE

    async def seen() -> bool:
        return await zone_state(site, "after") == "ZONE_STATE_ALARM"

    await eventually(seen, goal="the fire is seen", seconds=ALARM_SECONDS)
    assert site.running("hub")
    if fault == "full":
        disk.free()
    else:
        disk.remount("rw")
    await site.alarmed("after")
    assert not await failing(site)
    after_all = await site.history()
    assert after_all[: len(history)] == history
    assert len(await site.alarms("after")) == 1


REMOVALS: dict[str, Callable[[Path], object]] = {
    "database": lambda folder: (folder / "hub.sqlite").unlink(),
    "log": lambda folder: (folder / "hub.sqlite-wal").unlink(),
    "folder": shutil.rmtree,
    "replaced": lambda folder: (folder.parent / "backup.sqlite").replace(folder / "hub.sqlite"),
}


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
async def test_a_hub_whose_database_is_removed_reloads_and_loses_no_report(
    site: Site, remove: Callable[[Path], object]
) -> None:
    site.start("hub")
    site.assign("shard-0", "first", "second")
    site.start("shard-0")
    first = site.speaker("shard-0", "first")
    site.speaker("shard-0", "second")
    await site.covered(["first", "second"])
    with (
        contextlib.closing(sqlite3.connect(site.data["hub"] / "hub.sqlite")) as database,
        contextlib.closing(sqlite3.connect(site.folder / "backup.sqlite")) as backup,
    ):
        database.backup(backup)
    remove(site.data["hub"])
    first.line = SMOKE

    async def reloaded() -> bool:
        return "reloading: " in site.log("hub") and await _spooled(site) == 0

    await eventually(reloaded, goal="it reloads, and has the shard's reports")
    site.end("shard-0", signal.SIGKILL)
    shutil.rmtree(site.data["shard-0"])
    site.end("hub", signal.SIGKILL)
    site.start("hub")
    await site.alarmed("first")
    assert len(await site.alarms("first")) == 1


@pytest.mark.parametrize("damage", ["garbled", "truncated"])
async def test_a_shard_with_a_damaged_spool_still_reports_and_names_its_losses(site: Site, damage: str) -> None:
    site.start("hub")
    site.assign("shard-0", "before", "after")
    site.start("shard-0")
    before, after = site.speaker("shard-0", "before"), site.speaker("shard-0", "after")
    await site.covered(["before", "after"])
    site.end("hub", signal.SIGKILL)
    before.line = SMOKE
    await eventually(lambda: _spooled(site), goal="reports wait for the hub")
    site.end("shard-0", signal.SIGKILL)
    for file in (site.data["shard-0"] / "shard-0.spool", site.data["shard-0"] / "shard-0.spool-wal"):
        if damage == "garbled":
            file.write_bytes(b"\xa5" * file.stat().st_size)
        else:
            os.truncate(file, file.stat().st_size // 2)
    before.line = CALM
    site.start("hub")
    site.start("shard-0")
    after.line = SMOKE
    await site.alarmed("after")
    await site.covered(["before", "after"])
    assert site.running("shard-0")
    is_reported = "was damaged" in site.log("shard-0")
    assert is_reported == (await site.metric("shard-0", "embereye_shard_degraded") == 1)
    assert is_reported or damage == "truncated", "a truncated database may have fewer reports"


async def _spooled(site: Site) -> bool:
    return await site.metric("shard-0", "embereye_shard_evidence_spooled") > 0


async def test_unreadable_rows_stop_nothing(site: Site) -> None:
    site.start("hub")
    site.assign("shard-0", "before", "after")
    site.start("shard-0")
    before, after = site.speaker("shard-0", "before"), site.speaker("shard-0", "after")
    await site.covered(["before", "after"])
    before.line = SMOKE
    await site.alarmed("before")
    site.end("hub")
    with contextlib.closing(sqlite3.connect(site.data["hub"] / "hub.sqlite")) as database:
        for table, column in (("zones", "state"), ("rosters", "roster"), ("ledgers", "ledger"), ("events", "event")):
            changed = database.execute(
                f"UPDATE {table} SET {column} = x'ff' WHERE rowid IN (SELECT rowid FROM {table} LIMIT 1)"
                if table == "events"
                else f"UPDATE {table} SET {column} = x'ff'"
            )
            assert changed.rowcount
        database.commit()
    site.start("hub")
    after.line = SMOKE
    await site.alarmed("after")
    await site.covered(["before", "after"])
    assert await site.metric("hub", "embereye_hub_rows_unreadable_total") >= 3


@pytest.mark.parametrize("linger", [30.0, 1.0])
async def test_a_terminating_shard_waits_for_its_hub_and_reports_losses_when_too_late(
    site: Site, linger: float
) -> None:
    site.start("hub")
    site.assign("shard-0", "gone")
    site.start("shard-0", "--linger", str(linger))
    gone = site.speaker("shard-0", "gone")
    await site.covered(["gone"])
    site.end("hub", signal.SIGKILL)
    gone.line = SMOKE
    await eventually(lambda: _spooled(site), goal="reports wait for the hub")
    process = site.processes["shard-0"]
    process.send_signal(signal.SIGTERM)
    if linger == 1.0:
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert "reports about gone are lost: the hub did not accept them in 1 s" in site.log("shard-0")
        return
    await asyncio.sleep(2)
    assert site.running("shard-0")
    assert await site.metric("shard-0", "embereye_shard_degraded") == 1
    site.start("hub")
    assert await asyncio.to_thread(process.wait, 60) == 0
    await site.alarmed("gone")
    assert len(await site.alarms("gone")) == 1


async def test_a_terminating_shard_hands_its_reports_to_a_peer_while_the_hub_is_down(site: Site) -> None:
    site.start("hub")
    site.assign("shard-1", "stays")
    site.start("shard-1")
    site.assign("shard-0", "gone", peers=["shard-1"])
    site.start("shard-0", "--linger", "60")
    gone = site.speaker("shard-0", "gone")
    site.speaker("shard-1", "stays")
    await site.covered(["gone", "stays"])
    site.end("hub", signal.SIGKILL)
    gone.line = SMOKE
    await eventually(lambda: _spooled(site), goal="reports wait for the hub")
    assert await asyncio.to_thread(site.end, "shard-0") == 0
    assert "shard-1 has taken over all reports: this shard ends" in site.log("shard-0")
    site.end("shard-1", signal.SIGKILL)
    site.start("shard-1")  # its disk has what it took over
    site.start("hub")
    await site.covered(["stays"], 60)
    await site.alarmed("gone")
    assert len(await site.alarms("gone")) == 1


async def test_a_shard_whose_peers_are_unreachable_waits_for_its_hub(site: Site) -> None:
    site.start("hub")
    site.ports["shard-1"] = free_ports(4)  # without a listener
    site.assign("shard-0", "gone", peers=["shard-1"])
    site.start("shard-0", "--linger", "60")
    gone = site.speaker("shard-0", "gone")
    await site.covered(["gone"])
    site.end("hub", signal.SIGKILL)
    gone.line = SMOKE
    await eventually(lambda: _spooled(site), goal="reports wait for the hub")
    process = site.processes["shard-0"]
    process.send_signal(signal.SIGTERM)
    await asyncio.sleep(3)
    assert site.running("shard-0")
    site.start("hub")
    assert await asyncio.to_thread(process.wait, 60) == 0
    await site.alarmed("gone")
