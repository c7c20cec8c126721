"""A hub whose database is damaged, gone or not its own: it continues with what can be read, and reports the loss."""

import asyncio
import contextlib
import random
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.hub.database import ReloadRequiredError
from embereye.hub.databases import losses, salvage, schema
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.events import EVENTS
from embereye.hub.tables.evidence import EVIDENCE
from embereye.hub.tables.transaction import Transaction
from embereye.levels import ZoneState
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub

from .running import running
from .test_databases import events, report

ADMIN = Principal("ada", Role.ADMIN, "ada")
PAGE = 4_096
DRAW = random.Random(7)


def zero_first_page(data: bytes) -> bytes:
    return bytes(PAGE) + data[PAGE:]


def garble_first_page(data: bytes) -> bytes:
    return DRAW.randbytes(PAGE) + data[PAGE:]


def garble_behind_header(data: bytes) -> bytes:
    return data[:100] + DRAW.randbytes(PAGE - 100) + data[PAGE:]


def garble_schema_leaf(data: bytes) -> bytes:
    start = data.index(b"CREATE TABLE events") // PAGE * PAGE
    return data[:start] + DRAW.randbytes(PAGE) + data[start + PAGE :]


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_within_a_page(data: bytes) -> bytes:
    return data[: len(data) * 9 // 10 // PAGE * PAGE + 7]


def write_random_bytes(_: bytes) -> bytes:
    return DRAW.randbytes(20)


def write_text(_: bytes) -> bytes:
    return b"shopping: milk, bread, batteries\n" * 500


def zero_everything(data: bytes) -> bytes:
    return bytes(len(data))


def set_unlikely_version(data: bytes) -> bytes:
    return data[:60] + b"\x7f\x01\x02\x03" + data[64:]


def garble_pages(data: bytes, pages: list[int]) -> bytes:
    changed = bytearray(data)
    for page in pages:
        changed[(page - 1) * PAGE : page * PAGE] = DRAW.randbytes(PAGE)
    return bytes(changed)


# Each with True if at least a part of the rows can be salvaged.
DAMAGES: dict[Callable[[bytes], bytes], bool] = {
    zero_first_page: True,
    garble_first_page: True,
    garble_behind_header: True,
    garble_schema_leaf: True,
    set_unlikely_version: True,
    cut_in_half: True,
    cut_within_a_page: True,
    write_random_bytes: False,
    write_text: False,
    zero_everything: False,
}


async def fill(folder: Path) -> None:
    """Run a hub with an alarm in hall, a token, and a history of some hundred pages."""
    async with running(Stored(folder)) as hub:
        await hub.access.create_token(ADMIN, "pager", Role.VIEWER)
        durable = list[str]()
        for number in range(400):
            hub.inbox.admit(report(f"report-{number}", f"hall-{number % 40}"), durable.append)
        await eventually(lambda: len(durable) == 400)


def damage_file(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    file = folder / "hub.sqlite"
    damaged = damage(file.read_bytes())
    with file.open("r+b") as opened:  # the same file, not a new one
        opened.write(damaged)
        opened.truncate()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_hub_with_a_damaged_database_continues_and_reports_the_loss(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    await fill(tmp_path)
    damage_file(tmp_path, damage)
    damaged, durable = (tmp_path / "hub.sqlite").read_bytes(), list[str]()
    async with running(Stored(tmp_path)) as hub:
        hub.inbox.admit(report("later", "attic"), durable.append)
        await eventually(lambda: durable == ["later"])
        assert {zone.name: zone.state for zone in hub.zones.messages()}["attic"] == ZoneState.ALARM.wire
        assert hub.database_losses == 1
        assert "hub.sqlite.damaged-" in hub.database_loss
        assert "database-losses.txt" in hub.database_loss
        assert [entry.action for entry in await hub.history.audit(0, 99)].count("database damaged") == 1
        salvaged = {zone.name for zone in hub.zones.messages()} - {"attic"}
        assert bool(salvaged) == DAMAGES[damage]
        assert hub.feed.latest > 400, "cursors that clients know are not used again"
    (aside,) = tmp_path.glob("hub.sqlite.damaged-*Z")
    assert aside.read_bytes() == damaged
    assert not list(tmp_path.glob("hub.sqlite.[is]*")), "drafts remain"


@pytest.mark.parametrize("damage", [zero_first_page, garble_first_page, garble_behind_header, garble_schema_leaf])
async def test_damage_of_the_schema_alone_loses_no_row(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    await fill(tmp_path)
    stored = Stored(tmp_path)
    tables = {
        name: stored.query(f"SELECT * FROM {name}") for name in ("zones", "evidence", "events", "alarms", "tokens")
    }
    assert all(tables.values())
    damage_file(tmp_path, damage)
    stored.open().close()
    assert {name: stored.query(f"SELECT * FROM {name}") for name in tables} == tables


async def test_rows_in_the_log_of_a_killed_hub_are_salvaged_too(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    await fill(tmp_path)
    store = Stored(tmp_path).open()
    store.commit(Transaction({EVIDENCE: {"in the log": 1}}))
    for suffix in ("", "-wal"):  # the files as a power cut leaves them
        (folder / f"hub.sqlite{suffix}").write_bytes((tmp_path / f"hub.sqlite{suffix}").read_bytes())
    store.close()
    damage_file(folder, cut_in_half)
    (folder / "hub.sqlite-wal").rename(folder / "log")
    salvage._apply_log(folder / "log", folder / "hub.sqlite")
    Stored(folder).open().close()
    assert ("in the log",) in Stored(folder).query("SELECT id FROM evidence")


def garble_log(data: bytes, place: int) -> bytes:
    return data[:place] + DRAW.randbytes(40) + data[place + 40 :]


LOGS: dict[str, Callable[[bytes], bytes]] = {
    "header": lambda data: garble_log(data, 0),
    "size of pages": lambda data: garble_log(data, 8),
    "first frame": lambda data: garble_log(data, 32),
    "page": lambda data: garble_log(data, 32 + 24 + 1_000),
    "salts": lambda data: garble_log(data, 32 + 24 + PAGE + 8),
    "zeros": lambda data: bytes(PAGE) + data[PAGE:],
}


@pytest.mark.parametrize("name", LOGS)
def test_a_damaged_log_is_reported_and_later_transactions_are_salvaged(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    store = Stored(tmp_path).open()
    for number in range(100):
        store.commit(Transaction({EVIDENCE: {f"report-{number:03}": 1}}))
    (folder / "hub.sqlite").write_bytes((tmp_path / "hub.sqlite").read_bytes())
    log = (tmp_path / "hub.sqlite-wal").read_bytes()
    (folder / "hub.sqlite-wal").write_bytes(LOGS[name](log))
    store.close()
    Stored(folder).open().close()
    assert ("report-099",) in Stored(folder).query("SELECT id FROM evidence")
    assert "write-ahead log" in losses.read_losses(folder)[0]


@pytest.mark.parametrize("cut", [0, 1, 5_000, 3 * (24 + PAGE)])
def test_a_log_that_a_power_cut_left_unfinished_is_no_damage(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    store = Stored(tmp_path).open()
    for number in range(20):
        store.commit(Transaction({EVIDENCE: {f"report-{number:03}": 1}}))
    (folder / "hub.sqlite").write_bytes((tmp_path / "hub.sqlite").read_bytes())
    log = (tmp_path / "hub.sqlite-wal").read_bytes()
    (folder / "hub.sqlite-wal").write_bytes(log[: len(log) - cut] + DRAW.randbytes(min(cut, 100)))
    store.close()
    Stored(folder).open().close()
    assert losses.read_losses(folder) == []
    assert ("report-010",) in Stored(folder).query("SELECT id FROM evidence")


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_folder_in_the_place_of_a_log_is_set_aside(tmp_path: Path, suffix: str) -> None:
    store = Stored(tmp_path).open()
    store.commit(Transaction({EVIDENCE: {"report": 1}}))
    store.close()
    (tmp_path / f"hub.sqlite{suffix}").unlink(missing_ok=True)
    (tmp_path / f"hub.sqlite{suffix}").mkdir()
    opened = Stored(tmp_path).open()
    assert not opened.failing
    opened.close()
    assert f"hub.sqlite{suffix} is not a file" in losses.read_losses(tmp_path)[0]
    assert Stored(tmp_path).query("SELECT id FROM evidence") == [("report",)]


@pytest.mark.parametrize("remains", [False, True])
def test_the_log_of_a_database_that_is_gone_is_salvaged(tmp_path: Path, *, remains: bool) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    store = Stored(tmp_path).open()
    store.commit(Transaction({EVIDENCE: {"in the log": 1}}))
    (folder / "hub.sqlite-wal").write_bytes((tmp_path / "hub.sqlite-wal").read_bytes())
    if remains:
        (folder / "hub.sqlite").touch()
    store.close()
    Stored(folder).open().close()
    assert Stored(folder).query("SELECT id FROM evidence") == [("in the log",)]
    assert "its log remains" in losses.read_losses(folder)[0]


def test_rows_on_both_sides_of_each_damaged_page_are_salvaged(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    store = stored.open()
    store.commit(Transaction({EVENTS: events(*range(1, 5_001)), EVIDENCE: {f"id-{n:05}": n for n in range(5_000)}}))
    store.close()

    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        pages = [start for start in range(0, len(data), PAGE) if data[start] == 0x0D and b"hall" in data[start:][:PAGE]]
        for start in pages[len(pages) // 4 :: len(pages) // 4][:3]:
            changed[start : start + PAGE] = bytes(PAGE)
        return bytes(changed)

    damage_file(tmp_path, damage)
    salvage.replace_damaged(tmp_path / "hub.sqlite", "a test damaged it")
    assert stored.query("SELECT COUNT(*) FROM evidence") == [(5_000,)]
    ((count,),) = stored.query("SELECT COUNT(*) FROM events")
    assert 4_000 < count < 5_000
    assert "not all rows of events" in losses.read_losses(tmp_path)[0]


def test_another_programs_database_is_set_aside(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite")) as other:
        other.execute("CREATE TABLE events (title TEXT)")
    store = Stored(tmp_path).open()
    store.commit(Transaction({EVENTS: events(1)}))
    assert not store.failing
    store.close()
    assert "another program's database" in losses.read_losses(tmp_path)[0]


def test_a_folder_in_the_place_of_the_database_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "hub.sqlite").mkdir()
    Stored(tmp_path).open().close()
    assert "it is not a file" in losses.read_losses(tmp_path)[0]


async def test_damage_that_a_running_hub_meets_loses_nothing_it_knows(tmp_path: Path) -> None:
    await fill(tmp_path)
    threads = Stored(tmp_path).threads()
    hub, durable = Hub(threads, retention_ns=3600 * SECOND), list[str]()
    await hub.open()
    running_hub = asyncio.ensure_future(hub.run())
    hub.inbox.admit(report("before", "attic"), durable.append)
    await eventually(lambda: durable == ["before"])
    zones = {zone.name: zone.state for zone in hub.zones.messages()}
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT rootpage FROM sqlite_schema WHERE name IN ('zones', 'evidence')"
        roots = [root for (root,) in db.execute(query)]
        damage_file(tmp_path, lambda data: garble_pages(data, roots))
        db.execute("INSERT INTO forgotten VALUES ('default/sensors/none')")  # makes the hub read its pages again
    hub.inbox.admit(report("after", "cellar"), durable.append)
    with pytest.raises(ReloadRequiredError, match="was damaged and replaced"):
        await asyncio.wait_for(running_hub, 30)
    assert durable == ["before", "after"]
    await threads.close()
    async with running(Stored(tmp_path)) as again:
        assert {zone.name: zone.state for zone in again.zones.messages()} == {**zones, "cellar": ZoneState.ALARM.wire}
        assert [token.name for token in again.access.tokens()] == ["pager"]
        assert again.database_losses == 1


async def test_damage_that_loading_meets_is_replaced_before_the_hub_serves(tmp_path: Path) -> None:
    await fill(tmp_path)
    roots = Stored(tmp_path).query("SELECT rootpage FROM sqlite_schema WHERE name = 'tokens'")
    damage_file(tmp_path, lambda data: garble_pages(data, [root for (root,) in roots]))
    threads = Stored(tmp_path).threads()
    with pytest.raises(ReloadRequiredError, match="was damaged and replaced"):
        await Hub(threads, retention_ns=3600 * SECOND).open()
    await threads.close()
    async with running(Stored(tmp_path)) as hub:
        assert len(hub.zones.messages()) == 40
        assert hub.database_losses == 1


def prevent_salvage(folder: Path) -> None:
    """Set as many damaged databases aside as may be there."""
    for number in range(salvage.MAX_ASIDE):
        (folder / f"hub.sqlite.damaged-{number}Z").touch()


def allow_salvage(folder: Path) -> None:
    """Remove what `prevent_salvage` made."""
    for path in folder.glob("hub.sqlite.damaged-?Z"):
        path.unlink()


async def test_a_database_that_cannot_be_replaced_is_named_and_the_hub_watches(tmp_path: Path) -> None:
    await fill(tmp_path)
    prevent_salvage(tmp_path)
    damage_file(tmp_path, zero_first_page)
    threads = Stored(tmp_path).threads()
    hub, durable = Hub(threads, retention_ns=3600 * SECOND), list[str]()
    await hub.open()
    running_hub = asyncio.ensure_future(hub.run())
    hub.inbox.admit(report("seen", "attic"), durable.append)
    await eventually(hub.zones.messages)
    assert "are set aside already" in hub.committer.failing
    allow_salvage(tmp_path)
    with contextlib.suppress(ReloadRequiredError):
        await asyncio.wait_for(running_hub, 20)
    await threads.close()
    async with running(Stored(tmp_path)) as again:
        assert len(again.zones.messages()) == 40
        assert again.database_losses == 1


def leaf_pages(folder: Path, table: str) -> list[int]:
    """The pages that hold the rows of `table`, in order; its root must be an interior page."""
    ((root,),) = Stored(folder).query(f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")
    page = (folder / "hub.sqlite").read_bytes()[(root - 1) * PAGE : root * PAGE]
    assert page[0] in {2, 5}, "all rows are in the root"
    cells = struct.unpack(f">{int.from_bytes(page[3:5])}H", page[12 : 12 + 2 * int.from_bytes(page[3:5])])
    return [*(int.from_bytes(page[at : at + 4]) for at in cells), int.from_bytes(page[8:12])]


async def test_rows_that_only_salvage_can_read_survive_a_hub_that_had_to_wait_for_it(tmp_path: Path) -> None:
    await fill(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    second = leaf_pages(tmp_path, "zones")[1]
    damage_file(tmp_path, lambda data: garble_pages(data, [second]))
    prevent_salvage(tmp_path)
    threads = Stored(tmp_path).threads()
    hub = Hub(threads, retention_ns=3600 * SECOND)
    await hub.open()
    seen = {zone.name for zone in hub.zones.messages()}
    running_hub = asyncio.ensure_future(hub.run())
    hub.inbox.admit(report("seen", "attic"), lambda _: None)
    await eventually(lambda: "attic" in {zone.name for zone in hub.zones.messages()})
    allow_salvage(tmp_path)
    with pytest.raises(ReloadRequiredError):
        await asyncio.wait_for(running_hub, 60)
    await threads.close()
    async with running(Stored(tmp_path)) as again:
        salvaged = {zone.name for zone in again.zones.messages()}
    assert seen < salvaged
    assert len(salvaged) > 20


def test_a_newer_versions_database_is_not_mistaken_for_damage(tmp_path: Path) -> None:
    Stored(tmp_path).open().close()
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite")) as newer:
        newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(UserError, match="newer version"):
        Stored(tmp_path).open()
    assert not losses.read_losses(tmp_path)


def evidence(name: str) -> EvidenceItem:
    item = report(name)
    item.fleet = "default/sensors/hall"
    return item


def shown_loss(hub: HubProcess) -> str:
    zones = hub.get("/v1/zones")
    assert isinstance(zones, dict)
    return str(zones["databaseLoss"])


def shown_actions(hub: HubProcess) -> list[str]:
    audit = hub.get("/v1/audit")
    assert isinstance(audit, dict)
    return [entry["action"] for entry in audit["entries"]]


async def acknowledge(hub: HubProcess, *names: str) -> None:
    """Report `names` and wait until the hub has acknowledged all of them."""

    async with hub.channel(hub.control) as link:
        hello = ShardHello(fleet="default/sensors/hall", shard="hall-0", epoch=1)
        requests = [ReportRequest(hello=hello), *(ReportRequest(evidence=evidence(name)) for name in names)]
        call = EvidenceStub(link).Report(wait_for_ready=True)
        for request in requests:
            await call.write(request)
        missing = set(names)
        while missing:
            response = await asyncio.wait_for(call.read(), 20)
            assert isinstance(response, ReportResponse)
            missing -= set(response.acknowledged)
        call.cancel()


@pytest.mark.parametrize(
    "loss", ["text", pytest.param("removed", marks=pytest.mark.slow), pytest.param("empty", marks=pytest.mark.slow)]
)
async def test_a_hub_process_without_its_database_reports_the_loss(
    tmp_path: Path, make_hub: Callable[[Stored], HubProcess], loss: str
) -> None:
    stored = Stored(tmp_path)
    hub = make_hub(stored)
    file = tmp_path / "hub.sqlite"
    hub.start()
    await hub.ready()
    await acknowledge(hub, *(f"alarm-{number}" for number in range(20)))
    assert shown_loss(hub) == ""
    hub.kill()
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    if loss != "removed":
        file.write_text("" if loss == "empty" else "shopping: milk\n")
    for _ in range(2):  # the fault lasts
        hub.start()
        await hub.ready()
        assert "database-losses.txt" in shown_loss(hub)
        assert "embereye_hub_database_losses 1.0" in str(hub.get("/metrics"))
        assert shown_actions(hub).count(f"database {'damaged' if loss == 'text' else 'lost'}") == 1
        hub.kill()
    hub.start()
    await hub.ready()
    await acknowledge(hub, "fire")
    (tmp_path / losses.FILE).unlink()
    await eventually(lambda: shown_loss(hub) == "")


async def test_a_hub_reports_an_empty_postgresql_in_place_of_its_database(
    stored: Stored, make_hub: Callable[[Stored], HubProcess]
) -> None:
    hub = make_hub(stored)
    hub.start()
    await hub.ready()
    assert shown_loss(hub) == ""
    hub.kill()
    if stored.server:
        stored.server.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public", stored.database)
    else:
        (stored.folder / "hub.sqlite").unlink()
    hub.start()
    await hub.ready()
    assert "is gone or empty" in shown_loss(hub)
