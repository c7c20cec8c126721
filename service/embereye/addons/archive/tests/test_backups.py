"""Backups of the hub's history in the bucket, and their way back into an empty place with `embereye hub recover`."""

import asyncio
import contextlib
import gzip
import sys
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
from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.tables import ARCHIVED
from embereye.addons.archive.tests.buckets import MotoBucket, open_bucket
from embereye.addons.archive.tests.test_uploader import options_for, store_clip
from embereye.addons.archive.uploader import Uploader
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.transaction import Rows

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
        backups = Backups(hub, progress, self._options, self._folder, open_bucket=open_bucket)
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
    """Run `embereye hub recover`; its exit code and what it printed."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "hub", "recover", "--archive", str(archive), *arguments,
        *(("--database", address) if address else ()), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await command.communicate()
    return command.returncode or 0, output.decode()


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
    hub.kill()
    code, text = await recover(archive, "--data", str(stored.folder), address=stored.address)
    assert (code, "contains a history already" in text) == (2, True), text
    code, text = await recover(archive, "--data", str(stored.folder), "--if-empty", address=stored.address)
    assert (code, "nothing was changed" in text) == (0, True), text


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
    assert (code, len(listed.split())) == (0, 1), listed


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
    code, text = await recover(archive, *place)
    assert (code, "the bucket has no backup" in text) == (5, True), text
    code, text = await recover(archive, *place, "--give-up", "1s")
    assert (code, "The hub starts without its history" in text) == (0, True), text
    header = {"ChecksumAlgorithm": "SHA256"}
    for name, content in (("2026-01-01T00-00-00Z", b"text"), ("2026-01-02T00-00-00Z", gzip.compress(b"text"))):
        bucket.client.put_object(Bucket=bucket.name, Key=f"site-1/backups/{name}.sqlite.gz", Body=content, **header)
        code, text = await recover(archive, *place, "--backup", name)
        assert code == 2, text
        assert "Traceback" not in text
    bucket.stop()
    code, text = await recover(archive, *place)
    assert (code, "cannot be listed" in text) == (3, True), text
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith("recover-")]


@pytest.mark.parametrize("value", ["1m", "soon", "-5m"])
def test_a_wrong_interval_is_refused(value: str, tmp_path: Path) -> None:
    from embereye.addons.archive.options import read_archive
    from embereye.process.lifecycle import UserError

    file = tmp_path / "archive.yaml"
    file.write_text(f"{{bucket: abc, backupEvery: {value}}}")
    with pytest.raises(UserError, match="backupEvery"):
        read_archive(file)
