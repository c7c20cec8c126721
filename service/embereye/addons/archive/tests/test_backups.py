"""Backups of the hub's history in the bucket, and their way back into an empty place with `embereye hub recover`."""

import asyncio
import contextlib
import gzip
import io
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.in_process import report, running_hub, sign
from harness.stored import Stored

from embereye.addons.archive.backups import Backups
from embereye.addons.archive.copies import HistoryCopies, copy_history
from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.tables import ARCHIVED
from embereye.addons.archive.tests.buckets import MotoBucket, line_to, open_bucket
from embereye.addons.archive.tests.test_uploader import options_for, store_clip
from embereye.addons.archive.uploader import Uploader
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.transaction import Rows
from embereye_cli.main import main

CLIP = b"content of a clip"
ADMIN = Principal("Ada", Role.ADMIN, "")
COPY_SECONDS = 240.0  # a backup is made by a process of low priority


class TestedBackups(Addon):
    """The add-on with moto's header."""

    __test__ = False

    def __init__(self, options: ArchiveOptions, folder: Path) -> None:
        self._options, self._folder = options, folder

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        progress = Rows(ARCHIVED)
        hub.add_part(progress)
        uploader = Uploader(hub, clips, progress, self._options, open_bucket=open_bucket)
        backups = Backups(hub, progress, self._options, HistoryCopies(self._folder), open_bucket=open_bucket)
        return Parts(tasks={"archive": uploader.run, "backups": backups.run})


@contextlib.asynccontextmanager
async def backing_up(folder: Path, options: ArchiveOptions) -> AsyncIterator[tuple[Hub, Uploader, Backups]]:
    async with running_hub(folder / "hub", lambda: TestedBackups(options, folder / "hub")) as (hub, parts):
        uploader, backups = (parts.tasks[name].__self__ for name in ("archive", "backups"))  # type: ignore[attr-defined]
        yield hub, uploader, backups


def file_of(options: ArchiveOptions, folder: Path, **fields: str) -> Path:
    """The archive's file, with `fields` in addition."""
    file = folder / "archive.yaml"
    declared = {"bucket": options.bucket, "prefix": options.prefix, "endpoint": options.endpoint}
    file.write_text(yaml.safe_dump({**declared, "credentials": str(options.credentials), **fields}))
    return file


async def recover(archive: Path, *arguments: str, address: str = "") -> tuple[int, str]:
    """Run `embereye hub recover` in a thread; its exit code and what it printed."""
    place = ("--database", address) if address else ()
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        code = await asyncio.to_thread(main, ["hub", "recover", "--archive", str(archive), *arguments, *place])
    return code, printed.getvalue()


def backups_in(bucket: MotoBucket) -> list[str]:
    return [name for name in bucket.names if "/backups/" in name]


async def fill(bucket: MotoBucket, folder: Path) -> tuple[ArchiveOptions, str]:
    """Run a hub until its alarm, its token and its clip are in the bucket; the options, and the clip's name."""
    options = replace(options_for(bucket, folder), backup_seconds=0.5)
    (folder / "hub").mkdir()
    (folder / "hub" / "backup.sqlite").touch()  # a person's
    async with backing_up(folder, options) as (hub, uploader, backups):
        await eventually(lambda: "events" in uploader._progress)
        report(hub, sign())
        await hub.access.create_token(ADMIN, "pager", Role.VIEWER)
        digest = await store_clip(uploader._clips, CLIP)
        await eventually(lambda: any(digest in name for name in bucket.names) and uploader.waiting_events == 0)
        made = len(backups_in(bucket))
        await eventually(lambda: len(backups_in(bucket)) > made + 1, COPY_SECONDS)  # the first may have begun before
        await hub.committer.flush(30)
        assert not backups.failing
    assert [path.name for path in (folder / "hub").glob("*backup*")] == ["backup.sqlite"], "a person's file stays"
    return options, digest


async def test_a_lost_hub_is_restored_into_an_empty_place(
    bucket: MotoBucket, tmp_path: Path, stored: Stored, make_hub: Callable[..., HubProcess]
) -> None:
    (tmp_path / "lost").mkdir()
    options, digest = await fill(bucket, tmp_path / "lost")
    archive = file_of(options, tmp_path)
    code, text = await recover(archive, "--data", str(stored.folder), address=stored.address)
    assert code == 0, text
    assert "1 clip restored" in text
    lost = Stored(tmp_path / "lost" / "hub")
    assert await storing_times(stored.folder) == await storing_times(lost.folder)
    for statement in ("SELECT cursor, event FROM events ORDER BY cursor", "SELECT name, digest FROM tokens"):
        rows, restored = ([tuple(map(plain, row)) for row in place.query(statement)] for place in (lost, stored))
        assert rows
        assert restored == rows
    hub = make_hub(stored)
    hub.start()
    await hub.ready()
    (zone,) = hub.get("/v1/zones")["zones"]
    assert (zone["name"], zone["state"]) == ("hall", "ZONE_STATE_ALARM")
    assert any(file.read_bytes() == CLIP for file in (stored.folder / "clips").rglob(f"{digest}*"))
    code, text = await recover(archive, "--data", str(stored.folder), "--if-empty", address=stored.address)
    assert (code, "nothing was changed" in text) == (0, True), f"a replica that starts beside the hub: {text}"
    hub.kill()
    code, text = await recover(archive, "--data", str(stored.folder), address=stored.address)
    assert (code, "contains a history already" in text) == (2, True), text
    code, text = await recover(archive, "--data", str(stored.folder), "--if-empty", address=stored.address)
    assert (code, "nothing was changed" in text) == (0, True), text


async def test_a_backup_counts_even_if_old_ones_cannot_be_deleted(
    bucket: MotoBucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with line_to(bucket.port, refused=b"?delete") as port:
        options = options_for(bucket, tmp_path)
        options = replace(options, endpoint=f"http://127.0.0.1:{port}", timeout=5, backup_seconds=0.5, keep=1)
        (tmp_path / "hub").mkdir()
        async with backing_up(tmp_path, options) as (_, _, backups):
            await eventually(lambda: len(backups_in(bucket)) > 2, COPY_SECONDS)
            assert not backups.failing
    assert "old backups cannot be deleted" in caplog.text


async def storing_times(folder: Path) -> list[tuple[str, int]]:
    """The clips of a hub in the order in which it deletes them."""
    clips = ClipStore(folder / "clips")
    await clips.open()
    try:
        return [(clip.sha256, clip.kept_ns) for clip in await clips.received_since(0)]
    finally:
        await clips.close()


def plain(value: object) -> object:
    """A value as SQLite has it; PostgreSQL's bytes are a memoryview."""
    return bytes(value) if isinstance(value, memoryview) else value


async def test_a_process_makes_its_first_backup_at_once(
    bucket: MotoBucket, tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    name = f"plain-{bucket.name}"
    bucket.client.create_bucket(Bucket=name)  # without object lock, for which moto wants a header
    options = replace(options_for(bucket, tmp_path), bucket=name)
    archive = file_of(options, tmp_path, backupEvery="24h")
    hub = make_hub(Stored(tmp_path), "--archive", str(archive))
    hub.start()
    await hub.ready()
    await eventually(
        lambda: "Contents" in bucket.client.list_objects_v2(Bucket=name, Prefix="site-1/backups"),
        COPY_SECONDS,
    )
    text = str(hub.get("/metrics"))
    assert "embereye_hub_archive_backup_failing 0" in text
    code, listed = await recover(archive, "--list")
    assert (code, len(listed.splitlines()), " MB" in listed) == (0, 1, True), listed
    await eventually(lambda: "\nembereye_hub_archive_backup_age_seconds " in str(hub.get("/metrics")))
    assert "\nembereye_hub_archive_backup_bytes " in str(hub.get("/metrics"))


async def test_backups_that_fail_are_told_and_made_later(bucket: MotoBucket, tmp_path: Path) -> None:
    options = replace(options_for(bucket, tmp_path), backup_seconds=0.5)
    bucket.stop()
    async with backing_up(tmp_path, options) as (hub, _, backups):
        await eventually(lambda: bool(backups.failing), COPY_SECONDS)
        assert backups.overdue_ns > 0
        await hub.committer.flush(30)
    bucket.start()
    async with backing_up(tmp_path, options) as (_, _, backups):
        await eventually(lambda: len(backups_in(bucket)) > 0 and not backups.failing, COPY_SECONDS)


async def test_nothing_to_restore_and_damage_are_named(bucket: MotoBucket, tmp_path: Path) -> None:
    options = options_for(bucket, tmp_path)
    archive = file_of(options, tmp_path)
    place = ("--data", str(tmp_path / "new"))
    for words in (place, ("--list",)):
        code, text = await recover(archive, *words)
        assert (code, "the bucket has no backup" in text) == (5, True), text
    code, text = await recover(archive, *place, "--give-up", "1s")
    assert (code, "Nothing was restored, and the hub starts" in text) == (0, True), text
    away = "postgresql://u:word@127.0.0.1:1/x"
    code, text = await recover(archive, *place, "--if-empty", "--give-up", "1s", address=away)
    assert (code, "the hub starts" in text, "word" in text) == (0, True, False), text
    header = {"ChecksumAlgorithm": "SHA256"}
    for name, content in (("2026-01-01T00-00-00Z", b"text"), ("2026-01-02T00-00-00Z", gzip.compress(b"text"))):
        bucket.client.put_object(Bucket=bucket.name, Key=f"site-1/backups/{name}.sqlite.gz", Body=content, **header)
        code, text = await recover(archive, *place, "--backup", name)
        assert code == 2, text
        assert "Traceback" not in text
    code, text = await recover(archive, *place)
    assert (code, "the bucket has no backup that can be read" in text) == (2, True), text
    code, text = await recover(file_of(options, tmp_path, backupEvery="24h"), "--list")
    assert (code, "no backup was made after 2026-01-02T00-00-00Z" in text) == (1, True), text
    bucket.stop()
    code, text = await recover(archive, *place)
    assert (code, "cannot be read: it cannot be reached" in text) == (3, True), text
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith("recover-")]


async def backup_of_a_hub(folder: Path) -> Path:
    """The file of `embereye hub backup` of a hub with a token."""
    async with running_hub(folder) as (hub, _):
        await hub.access.create_token(ADMIN, "pager", Role.VIEWER)
        await hub.committer.flush(30)
    await copy_history(folder / "backup", folder, "")
    return folder / "backup"


def upload(bucket: MotoBucket, name: str, content: bytes, **more: object) -> None:
    key = f"site-1/{name}"
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=content, ChecksumAlgorithm="SHA256", **more)


def tokens(folder: Path) -> list[str]:
    return [str(name) for (name,) in Stored(folder).query("SELECT name FROM tokens")]


async def test_the_newest_backup_that_can_be_read_is_restored(bucket: MotoBucket, tmp_path: Path) -> None:
    packed, new = gzip.compress((await backup_of_a_hub(tmp_path / "lost")).read_bytes()), tmp_path / "new"
    upload(bucket, "backups/2026-01-01T00-00-00Z.sqlite.gz", packed)
    upload(bucket, "backups/2026-01-02T00-00-00Z.sqlite.gz", packed, StorageClass="GLACIER")
    upload(bucket, "backups/2026-01-03T00-00-00Z.sqlite.gz", packed[: len(packed) // 2])
    upload(bucket, "backups/2026-01-04T00-00-00Z.sqlite.gz", packed, Metadata={"sha256": "of another file"})
    (new / "recover-killed").mkdir(parents=True)
    code, text = await recover(file_of(options_for(bucket, tmp_path), tmp_path), "--data", str(new))
    assert code == 0, text
    assert [f"2026-01-0{day}T00-00-00Z is passed over" in text for day in (1, 2, 3, 4)] == [False, True, True, True]
    assert "restored from the backup 2026-01-01T00-00-00Z" in text
    assert tokens(new) == ["pager"]
    assert not list(new.glob("recover-*"))


async def test_a_backup_of_an_older_hub_is_restored(bucket: MotoBucket, tmp_path: Path) -> None:
    backup, new = await backup_of_a_hub(tmp_path / "lost"), tmp_path / "new"
    with contextlib.closing(sqlite3.connect(backup)) as database:
        database.executescript(
            "ALTER TABLE tokens DROP COLUMN zones; ALTER TABLE sessions DROP COLUMN zones; PRAGMA user_version = 1"
        )
    upload(bucket, "backups/2026-01-01T00-00-00Z.sqlite.gz", gzip.compress(backup.read_bytes()))
    code, text = await recover(file_of(options_for(bucket, tmp_path), tmp_path), "--data", str(new))
    assert code == 0, text
    assert tokens(new) == ["pager"]


async def test_clips_that_cannot_be_fetched_do_not_prevent_the_history(bucket: MotoBucket, tmp_path: Path) -> None:
    packed = gzip.compress((await backup_of_a_hub(tmp_path / "lost")).read_bytes())
    upload(bucket, "backups/2026-01-01T00-00-00Z.sqlite.gz", packed)
    upload(bucket, "clips/2026/01/01/hall-cam-1-00.mkv", CLIP, StorageClass="GLACIER")
    options = options_for(bucket, tmp_path)
    code, text = await recover(file_of(options, tmp_path), "--data", str(tmp_path / "one"))
    assert (code, "1 clip stays in the bucket only: the object is in an archive tier" in text) == (0, True), text
    assert tokens(tmp_path / "one") == ["pager"]
    async with line_to(bucket.port, refused=b"/clips/") as port:
        archive = file_of(replace(options, endpoint=f"http://127.0.0.1:{port}"), tmp_path)
        code, text = await recover(archive, "--data", str(tmp_path / "two"))
        assert (code, "cannot be read" in text) == (3, True), text
        code, text = await recover(archive, "--data", str(tmp_path / "two"), "--give-up", "1s")
    assert (code, "older clips stay in the bucket only" in text) == (0, True), text
    assert tokens(tmp_path / "two") == ["pager"]


@pytest.mark.parametrize("value", ["1m", "soon", "-5m"])
def test_a_wrong_interval_is_refused(value: str, tmp_path: Path) -> None:
    from embereye.addons.archive.options import read_archive
    from embereye.process.lifecycle import UserError

    file = tmp_path / "archive.yaml"
    file.write_text(f"{{bucket: abc, backupEvery: {value}}}")
    with pytest.raises(UserError, match="backupEvery"):
        read_archive(file)
