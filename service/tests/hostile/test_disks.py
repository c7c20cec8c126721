"""Disks that are full, cannot be written, or hand back garbage: what can be done goes on, and the rest is told."""

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
from harness.machine.disk import Disk, can_mount, mounted_disk

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel

from .site import ALARM_SECONDS, CALM, HOST, SMOKE, Site, until


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    """Four megabytes, mounted where the hub of `site` keeps its data."""
    if not can_mount():
        pytest.skip("a file system of its own takes root, unshare and nsenter")
    async with contextlib.AsyncExitStack() as stack:
        try:
            found = await stack.enter_async_context(mounted_disk(tmp_path / "hub", 4))
        except RuntimeError as error:
            pytest.skip(str(error))
        yield found


async def serving(site: Site) -> bool:
    async with channel(site.hub) as link:
        answer = await health_pb2_grpc.HealthStub(link).Check(health_pb2.HealthCheckRequest(), timeout=30)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def zone_state(site: Site, zone: str) -> str:
    zones = (await site.get("/v1/zones"))["zones"]
    return next((str(one["state"]) for one in zones if one["name"] == zone), "")


async def failing(site: Site) -> str:
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
        return str((await site.get("/v1/zones"))["failing"])
    return ""


async def watch(site: Site) -> asyncio.subprocess.Process:
    """`embereye alarms watch` at the hub, once it has shown the zones."""
    watching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "alarms", "--hub", site.hub, "--token", f"@{site.folder / 'admin-token'}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert watching.stdout
    assert (await watching.stdout.readline()).startswith(b"Zone")
    return watching


async def said(watching: asyncio.subprocess.Process, word: str) -> list[str]:
    """What it says to its standard error from now on, up to the line with `word`."""
    lines = list[str]()
    assert watching.stderr
    while line := (await watching.stderr.readline()).decode().strip():
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(f"it ended without a word of {word!r}: {lines}")


async def test_a_hub_whose_disk_is_full_lives_shows_the_fire_and_loses_nothing_of_it(site: Site, disk: Disk) -> None:
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

    await until(seen, "the fire is seen", ALARM_SECONDS)
    await until(lambda: failing(site), "the hub says that it cannot write", ALARM_SECONDS)
    told = await said(watching, "ALARM")
    assert told[-1].endswith(" (not stored yet)")
    assert "ALARM default/first: " in told[-1]
    if not any("cannot write" in line for line in told):
        told = await said(watching, "cannot write")
    assert (
        "embereye: the hub cannot write its database: database or disk is full; events are published now, and "
        "once more when it is stored"
    ) in told
    await asyncio.sleep(1)
    assert site.read("/healthz") == "ok\n"
    assert await serving(site)
    assert await site.metric("shard-0", "embereye_shard_hub_connected") == 1
    assert await site.metric("shard-0", "embereye_shard_evidence_spooled") > 0, "nothing is acknowledged"
    assert await site.metric("shard-0", "embereye_shard_degraded") == 1
    refusal = f"hub {HOST}:{site.ports['hub'][3]} acknowledges no reports: the hub cannot write its database: database"
    assert site.log("shard-0").count(refusal) == 1, "the shard knows why, and says so once"
    await site.covered(["first", "second"])
    second.line = SMOKE
    disk.free()
    for zone in ("first", "second"):
        await site.alarmed(zone)
        assert len(await site.alarms(zone)) == 1
    assert not await failing(site)
    assert not await site.metric("shard-0", "embereye_shard_degraded")
    assert (await said(watching, "again"))[-1].startswith("embereye: the hub can write its database again")
    watching.terminate()
    await watching.wait()
    assert site.running("hub")


@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("fault", ["full", "read-only"])
async def test_a_hub_that_is_started_on_a_disk_it_cannot_write_serves_what_it_holds_and_goes_on_once_it_can(
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
    await until(lambda: failing(site), "the hub serves and says that it cannot write")
    kept = await site.history()
    assert kept == history
    after.line = SMOKE

    async def seen() -> bool:
        return await zone_state(site, "after") == "ZONE_STATE_ALARM"

    await until(seen, "the fire is seen", ALARM_SECONDS)
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
async def test_a_hub_whose_database_is_removed_under_it_begins_anew_and_acknowledges_nothing_that_is_lost(
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

    async def anew() -> bool:
        return "reloading: " in site.log("hub") and await _spooled(site) == 0

    await until(anew, "it begins anew, and has what the shard saw")
    site.end("shard-0", signal.SIGKILL)
    shutil.rmtree(site.data["shard-0"])
    site.end("hub", signal.SIGKILL)
    site.start("hub")
    await site.alarmed("first")
    assert len(await site.alarms("first")) == 1


@pytest.mark.parametrize("damage", ["garbled", "truncated"])
async def test_a_shard_whose_spool_is_damaged_reports_all_the_same_and_says_what_it_lost(
    site: Site, damage: str
) -> None:
    site.start("hub")
    site.assign("shard-0", "before", "after")
    site.start("shard-0")
    before, after = site.speaker("shard-0", "before"), site.speaker("shard-0", "after")
    await site.covered(["before", "after"])
    site.end("hub", signal.SIGKILL)
    before.line = SMOKE
    await until(lambda: _spooled(site), "reports wait for the hub")
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
    told = "was damaged" in site.log("shard-0")
    assert told == (await site.metric("shard-0", "embereye_shard_degraded") == 1)
    assert told or damage == "truncated", "what is cut off may leave a database of fewer reports"


async def _spooled(site: Site) -> bool:
    return await site.metric("shard-0", "embereye_shard_evidence_spooled") > 0


async def test_rows_that_cannot_be_read_stop_nothing(site: Site) -> None:
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
async def test_a_shard_that_is_to_go_waits_for_its_hub_and_says_what_is_lost_when_that_takes_too_long(
    site: Site, linger: float
) -> None:
    site.start("hub")
    site.assign("shard-0", "gone")
    site.start("shard-0", "--linger", str(linger))
    gone = site.speaker("shard-0", "gone")
    await site.covered(["gone"])
    site.end("hub", signal.SIGKILL)
    gone.line = SMOKE
    await until(lambda: _spooled(site), "reports wait for the hub")
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


async def test_a_shard_that_is_to_go_gives_what_it_saw_to_another_while_the_hub_is_away(site: Site) -> None:
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
    await until(lambda: _spooled(site), "reports wait for the hub")
    assert await asyncio.to_thread(site.end, "shard-0") == 0
    assert "shard-1 has taken over all reports: this shard ends" in site.log("shard-0")
    site.end("shard-1", signal.SIGKILL)
    site.start("shard-1")  # what it took over is on its disk
    site.start("hub")
    await site.covered(["stays"], 60)
    await site.alarmed("gone")
    assert len(await site.alarms("gone")) == 1


async def test_a_shard_whose_peers_take_nothing_over_waits_for_its_hub_all_the_same(site: Site) -> None:
    site.start("hub")
    site.ports["shard-1"] = free_ports(4)  # where nobody listens
    site.assign("shard-0", "gone", peers=["shard-1"])
    site.start("shard-0", "--linger", "60")
    gone = site.speaker("shard-0", "gone")
    await site.covered(["gone"])
    site.end("hub", signal.SIGKILL)
    gone.line = SMOKE
    await until(lambda: _spooled(site), "reports wait for the hub")
    process = site.processes["shard-0"]
    process.send_signal(signal.SIGTERM)
    await asyncio.sleep(3)
    assert site.running("shard-0")
    site.start("hub")
    assert await asyncio.to_thread(process.wait, 60) == 0
    await site.alarmed("gone")
