"""Backup, restore and migration: the copied history equals the original."""

import asyncio
import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.hub.actions import Action
from embereye.hub.databases import postgres as module
from embereye.hub.databases import schema
from embereye.hub.databases.transfer import AHEAD
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.units import DAY, SECOND
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device
from embereye_cli.main import main

from ..running import running

FLEET = "default/sensors/hall"
ADA = Principal("Ada", Role.OPERATOR, "Ada")


async def burn(stored: Stored, zones: int = 3) -> None:
    """Store fires, an acknowledgement, a roster and a token."""
    async with running(stored, DAY) as hub:
        devices = [Device(id=f"s-{number}", zone=f"zone {number}") for number in range(zones)]
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=3, deadline_ns=90 * SECOND, devices=devices))
        for device in devices:
            hub.inbox.admit(
                EvidenceItem(
                    id=device.id, episode=device.id, fleet=FLEET, device=device.id, zone=device.zone,
                    kind=Kind.SMOKE.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, since_ns=time.time_ns(),
                    until_ns=time.time_ns(), snapshot=b"\xff\xd8" + bytes(500),
                ),
                lambda _: None,
            )  # fmt: skip
        await hub.committer.flush(10)
        await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "zone 1", note="on my way, Grüße")
        await hub.access.create_token(ADA, "console", Role.VIEWER)


async def everything(stored: Stored) -> dict[str, Any]:
    """Everything that people can query from a hub on `stored`."""
    async with running(stored, DAY) as hub:
        events = await hub.history.events(0, 1000)
        zones = sorted(hub.zones.messages(), key=lambda zone: zone.name)
        return {
            "latest": hub.feed.latest,
            "events": [event.SerializeToString(deterministic=True) for event in events],
            "zones": [(zone.name, zone.alarm, zone.state, zone.why, zone.declared) for zone in zones],
            "pictures": [await hub.history.picture(event.alarm, "s-0", Kind.SMOKE) for event in events],
            "episodes": [await hub.history.episodes(event.alarm) for event in events],
            "audit": await hub.history.audit(0, 100),
            "tokens": hub.access.tokens(),
        }


def location_options(stored: Stored) -> list[str]:
    return ["--database", stored.address] if stored.address else ["--data", str(stored.folder)]


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stored]:
    """Another database of each kind."""
    folder = tmp_path / "other"
    folder.mkdir()
    if request.param == "sqlite":
        yield Stored(folder)
        return
    server: Postgres = request.getfixturevalue("postgres")
    stored = Stored.in_postgres(folder, server)
    yield stored
    server.drop_database(stored.database)


async def test_a_restored_backup_has_the_same_history(
    stored: Stored, other: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await burn(stored)
    before = await everything(stored)
    file = tmp_path / "backup"
    assert main(["hub", "backup", *location_options(stored), str(file)]) == 0
    assert "identical" in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600
    assert main(["hub", "restore", *location_options(other), str(file)]) == 0
    assert await everything(other) == {**before, "latest": before["latest"] + AHEAD}
    assert len(before["events"]) >= 4
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup"]
    # A client with a cursor from after the backup still gets the next event.
    async with running(other, DAY) as hub:
        with hub.feed.subscribe(before["latest"] + 5) as subscription:
            event = await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "zone 2")
            assert [entry.event for entry in await subscription.next()] == [event]
    assert event.cursor == before["latest"] + AHEAD + 1


async def test_a_backup_from_before_a_new_table_is_restored(stored: Stored, other: Stored, tmp_path: Path) -> None:
    await burn(stored)
    before = await everything(stored)
    file = tmp_path / "backup"
    assert main(["hub", "backup", *location_options(stored), str(file)]) == 0
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute(f"DROP TABLE {schema.table_names()[-1]}")
    assert main(["hub", "restore", *location_options(other), str(file)]) == 0
    assert await everything(other) == {**before, "latest": before["latest"] + AHEAD}


async def test_the_rest_of_a_killed_backup_is_replaced(tmp_path: Path) -> None:
    stored, place = Stored(tmp_path / "hub"), tmp_path / "backups"
    for folder in (stored.folder, place):
        folder.mkdir()
    await burn(stored)
    for suffix in ("", "-wal", "-shm"):
        (place / f".backup.partial{suffix}").write_bytes(b"half of it")
    assert main(["hub", "backup", *location_options(stored), str(place / "backup")]) == 0
    assert [path.name for path in place.iterdir()] == ["backup"]


async def test_a_moved_history_is_the_same(stored: Stored, other: Stored) -> None:
    await burn(stored)
    before = await everything(stored)
    to = other.address or str(other.folder)
    assert main(["hub", "migrate", *location_options(stored), "--to", to]) == 0
    assert await everything(other) == before
    assert await everything(stored) == before, "the original is unchanged"


async def test_a_backup_of_a_running_hub_shows_one_moment(stored: Stored, tmp_path: Path) -> None:
    await burn(stored)
    async with running(stored, DAY) as hub:
        backup = asyncio.ensure_future(
            asyncio.to_thread(main, ["hub", "backup", *location_options(stored), str(tmp_path / "b")])
        )
        tests = 0
        while not backup.done():
            await hub.actions.perform(Action.TEST, ADA, "default", "zone 0")
            tests += 1
        assert await backup == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "b")) as database:
        cursors = [row[0] for row in database.execute("SELECT cursor FROM events ORDER BY cursor")]
        (acts,) = database.execute("SELECT COUNT(*) FROM audit WHERE action IN ('test', 'acknowledge')").fetchone()
    assert cursors == list(range(1, len(cursors) + 1))
    assert len(cursors) - acts == 3, "every action has its event"


async def test_a_database_with_a_history_is_overwritten_only_on_request(
    stored: Stored, other: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await burn(stored)
    await burn(other, zones=2)
    before, replaced = await everything(stored), await everything(other)
    file = tmp_path / "backup"
    assert main(["hub", "backup", *location_options(stored), str(file)]) == 0
    assert main(["hub", "backup", *location_options(stored), str(file)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["hub", "restore", *location_options(other), str(file)]) == 2
    assert "contains a history already" in capsys.readouterr().err
    assert await everything(other) == replaced
    assert main(["hub", "restore", *location_options(other), str(file), "--replace"]) == 0
    assert await everything(other) == {**before, "latest": before["latest"] + AHEAD}


async def test_replacing_a_large_history_exceeds_no_statement_timeout(
    stored_in_postgres: Stored, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await burn(stored_in_postgres)
    before = await everything(stored_in_postgres)
    assert main(["hub", "backup", *location_options(stored_in_postgres), str(tmp_path / "backup")]) == 0
    for statement in (
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(4); RETURN NULL; END'",
        # Simulates millions of rows, each of which DELETE has to read.
        "CREATE TRIGGER slow AFTER DELETE ON events FOR EACH STATEMENT EXECUTE FUNCTION slowly()",
    ):
        postgres.execute(statement, stored_in_postgres.database)
    monkeypatch.setattr(module, "SERVER", module.SERVER.replace("'15s'", "'3s'"))
    assert main(["hub", "restore", *location_options(stored_in_postgres), str(tmp_path / "backup"), "--replace"]) == 0
    assert await everything(stored_in_postgres) == {**before, "latest": before["latest"] + AHEAD}


async def test_the_database_of_a_running_hub_is_neither_restored_nor_moved(
    stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from embereye.hub.databases import postgres as module

    monkeypatch.setattr(module, "OWNER_SECONDS", 0.2)
    file = tmp_path / "backup"
    async with running(stored, DAY):
        assert await asyncio.to_thread(main, ["hub", "backup", *location_options(stored), str(file)]) == 0
        assert await asyncio.to_thread(main, ["hub", "restore", *location_options(stored), str(file)]) == 2
        assert "in use by another hub" in capsys.readouterr().err
        to = ["--to", str(tmp_path / "to")]
        assert await asyncio.to_thread(main, ["hub", "migrate", *location_options(stored), *to]) == 2
        assert "in use by another hub" in capsys.readouterr().err


async def test_other_users_cannot_read_a_restored_or_moved_history(tmp_path: Path) -> None:
    stored, new, moved, file = Stored(tmp_path), tmp_path / "new", tmp_path / "moved", tmp_path / "backup"
    await burn(stored)
    assert main(["hub", "backup", *location_options(stored), str(file)]) == 0
    assert main(["hub", "restore", "--data", str(new), str(file)]) == 0
    assert main(["hub", "migrate", *location_options(stored), "--to", str(moved)]) == 0
    assert [(folder / "hub.sqlite").stat().st_mode & 0o007 for folder in (new, moved)] == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
async def test_a_history_restored_by_root_belongs_to_the_hubs_user(tmp_path: Path) -> None:
    stored, new, file = Stored(tmp_path), tmp_path / "new", tmp_path / "backup"
    await burn(stored)
    new.mkdir()
    os.chown(new, 12345, 12346)
    assert main(["hub", "backup", *location_options(stored), str(file)]) == 0
    assert main(["hub", "restore", "--data", str(new), str(file)]) == 0
    status = (new / "hub.sqlite").stat()
    assert (status.st_uid, status.st_gid) == (12345, 12346)


async def test_a_mistyped_folder_replaces_no_history(
    stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await burn(stored)
    before, mistyped = await everything(stored), tmp_path / "mistyped"
    to = stored.address or str(stored.folder)
    assert main(["hub", "migrate", "--data", str(mistyped), "--to", to, "--replace"]) == 5
    assert "hub.sqlite does not exist. Name the data folder of a hub" in capsys.readouterr().err
    assert not mistyped.exists()
    assert await everything(stored) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["backup", "file"], "--data or --database is missing"),
        (["backup", "--data", "nowhere", "file"], "nowhere/hub.sqlite does not exist"),
        (["restore", "--data", ".", "nowhere"], "nowhere does not exist"),
        (["restore", "--data", "here", "garbage"], "garbage cannot be read as a hub's database"),
        (["restore", "--data", "here", "empty"], "empty cannot be read as a hub's database: it has none of its tables"),
        (["migrate", "--data", "here", "--to", "here"], "--to names the database that the history is in already"),
        (["migrate", "--data", "here", "--to", "./here/"], "--to names the database that the history is in already"),
        (["backup", "--database", "postgresql://u:word@127.0.0.1:1/x", "file"], "cannot be reached"),
    ],
)
def test_an_impossible_transfer_is_refused_in_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    Path("garbage").write_bytes(bytes(5000) + b"garbage")
    Path("empty").touch()
    assert main(["hub", *words]) == (5 if "does not exist" in sentence else 2)
    error = capsys.readouterr().err
    assert sentence in error
    assert "word" not in error
    assert not Path("file").exists()


async def test_command_line_options_take_precedence_over_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    named, other, file = Stored(tmp_path / "named"), Stored(tmp_path / "other"), str(tmp_path / "file")
    await burn(named)
    away = "postgresql://u:word@127.0.0.1:1/x"
    monkeypatch.setenv("EMBEREYE_DATA", str(other.folder))
    monkeypatch.setenv("EMBEREYE_DATABASE", away)
    assert main(["hub", "backup", *location_options(named), file]) == 0
    assert main(["hub", "restore", *location_options(named), file, "--replace"]) == 0
    assert main(["hub", "migrate", *location_options(named), "--to", str(other.folder)]) == 0
    assert (other.folder / "hub.sqlite").exists()
    # With only --database, migrate moves from there into the folder of the variable.
    assert main(["hub", "migrate", "--database", away, "--to", str(other.folder)]) == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert main(["hub", "backup", file + "2"]) == 2
    assert "cannot be reached" in capsys.readouterr().err, "a hub with both variables has its rows there"


def test_an_unwritable_backup_file_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unlink(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "unlink", unlink)
    assert main(["hub", "backup", "--data", str(tmp_path), str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"embereye: {tmp_path / 'file'} cannot be written: Read-only file system\n"
