"""Backups that another program makes of a running hub, in a folder and in a bucket."""

import asyncio
import contextlib
import io
import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from harness.hubs import HubProcess
from harness.in_process import send_report, sign
from harness.stored import Stored

from embereye.addons.archive.backups import prune
from embereye.addons.archive.copies import backup_name
from embereye.addons.archive.folder import Folder
from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.places import PlaceError
from embereye.addons.archive.tests.buckets import MotoBucket
from embereye.addons.archive.tests.test_backups import CLIP, plain, recover
from embereye.addons.archive.tests.test_uploader import options_for, store_clip
from embereye.hub.clips.store import ClipStore
from embereye_cli.main import main

MakeHub = Callable[..., HubProcess]


async def a_hub_with_a_history(stored: Stored, make_hub: MakeHub) -> tuple[HubProcess, str]:
    """A running hub with an alarm, a token and a clip; and the clip's SHA-256."""
    clips = ClipStore(stored.folder / "clips")
    await clips.open()
    digest = await store_clip(clips, CLIP)
    await clips.close()
    hub = make_hub(stored)
    hub.start()
    await hub.ready()
    await send_report(hub.control, sign())
    await asyncio.to_thread(create_token, hub)
    return hub, digest


def create_token(hub: HubProcess, role: str = "viewer") -> str:
    url = f"http://127.0.0.1:{hub.http_port}/v1/access/tokens"
    headers = {"Authorization": f"Bearer {hub.token}", "Content-Type": "application/json"}
    body = json.dumps({"name": f"a {role}", "role": role}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as answer:
        return str(json.load(answer)["token"])


def declared(place: Path, **fields: object) -> Path:
    """An archive's file with `fields`, in the folder `place`."""
    file = place / "archive.yaml"
    file.write_text(yaml.safe_dump(fields))
    return file


async def make(hub: HubProcess, archive: Path, *arguments: str, token: str = "") -> tuple[int, str]:
    """Run `embereye backup make`; its exit code and what it printed."""
    words = ["--console", f"http://127.0.0.1:{hub.http_port}", "--token", token or hub.token, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        code = await asyncio.to_thread(main, ["backup", "make", "--archive", str(archive), *words])
    return code, printed.getvalue()


async def test_a_backup_in_a_folder_has_history_tokens_and_clips(
    stored: Stored, make_hub: MakeHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hub, digest = await a_hub_with_a_history(stored, make_hub)
    share, new = tmp_path_factory.mktemp("share"), tmp_path_factory.mktemp("new")
    archive, result = declared(share, folder=str(share), prefix="site-1"), share / "result"
    code, text = await make(hub, archive, "--clips", "--result", str(result))
    assert (code, "1 new clip" in text, hub.token in text) == (0, True, False), text
    made = json.loads(result.read_text())
    assert (share / "site-1" / backup_name(made["name"])).stat().st_size == made["bytes"]
    code, text = await make(hub, archive, "--clips")
    assert (code, "0 new clips" in text) == (0, True), text
    code, text = await recover(archive, "--list")
    assert (code, made["name"] in text) == (0, True), text
    code, text = await recover(archive, "--data", str(new))
    assert (code, "1 clip restored" in text) == (0, True), text
    for statement in ("SELECT cursor, event FROM events ORDER BY cursor", "SELECT name, digest FROM tokens"):
        rows, restored = ([tuple(map(plain, row)) for row in place.query(statement)] for place in (stored, Stored(new)))
        assert rows
        assert restored == rows
    assert any(file.read_bytes() == CLIP for file in (new / "clips").rglob(f"{digest}*"))
    trail = str(hub.get("/v1/audit"))
    assert "copy history" in trail
    assert [path.name for path in hub.data.glob(".backup-draft*")] == []


async def test_a_backup_in_a_bucket_is_restored(bucket: MotoBucket, tmp_path: Path, make_hub: MakeHub) -> None:
    name = f"plain-{bucket.name}"
    bucket.client.create_bucket(Bucket=name)
    options = options_for(bucket, tmp_path)
    archive = declared(tmp_path, bucket=name, endpoint=bucket.url, credentials=str(options.credentials))
    (tmp_path / "lost").mkdir()
    hub, _ = await a_hub_with_a_history(Stored(tmp_path / "lost"), make_hub)
    code, text = await make(hub, archive, "--clips")
    assert code == 0, text
    code, text = await recover(archive, "--data", str(tmp_path / "new"))
    assert (code, "1 clip restored" in text) == (0, True), text
    bucket.stop()
    code, text = await make(hub, archive)
    assert (code, f"the bucket {name} cannot be used: it cannot be reached" in text) == (3, True), text


async def test_a_place_a_token_or_a_copy_that_cannot_be_used_is_named(tmp_path: Path, make_hub: MakeHub) -> None:
    hub = make_hub(Stored(tmp_path))
    hub.start()
    await hub.ready()
    missing = declared(tmp_path, folder=str(tmp_path / "not-mounted"))
    code, text = await make(hub, missing)
    assert (code, "does not exist, or is not mounted" in text) == (3, True), text
    viewer = await asyncio.to_thread(create_token, hub)
    code, text = await make(hub, declared(tmp_path, folder=str(tmp_path)), token=viewer)
    assert (code, "refuses" in text) == (4, True), text
    (tmp_path / ".backup-draft.sqlite").mkdir()  # the copy cannot be written
    with pytest.raises(urllib.error.HTTPError) as refused:
        await asyncio.to_thread(hub.get, "/v1/backup/history")
    assert (refused.value.code, "cannot be copied" in refused.value.read().decode()) == (503, True)


def test_a_folder_lists_complete_objects_only(tmp_path: Path) -> None:
    folder, content = Folder(tmp_path, "site-1"), tmp_path / "content"
    content.write_bytes(b"content")
    with pytest.raises(PlaceError, match="its content changed"):
        folder.store("clips/a", content, "text/plain", {"sha256": "of another content"})
    assert folder.list("clips") == []
    folder.store("clips/a", content, "text/plain", {"zone": "hall"})
    assert folder.list("clips") == [("clips/a", 7)]
    assert folder.fetch("clips/a", tmp_path / "fetched") == {"zone": "hall", "media": "text/plain"}
    assert (tmp_path / "fetched").read_bytes() == b"content"
    assert (tmp_path / "site-1/clips/a").stat().st_mode & 0o077 == 0
    with pytest.raises(PlaceError, match="No such file"):
        folder.fetch("clips/b", tmp_path / "fetched")
    (tmp_path / "site-1/clips/by-hand").write_bytes(b"x")
    assert folder.fetch("clips/by-hand", tmp_path / "fetched") == {}


def test_the_newest_backups_and_those_with_a_persons_name_stay(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    for stamp in ("before-upgrade", *(f"2026-01-0{day}T00-00-00Z" for day in range(1, 6))):
        folder.store(backup_name(stamp), b"x", "application/gzip", {})
    assert prune(folder, ArchiveOptions(folder=tmp_path, keep=0)) == 0
    assert prune(folder, ArchiveOptions(folder=tmp_path, keep=2)) == 3
    names = ["2026-01-04T00-00-00Z", "2026-01-05T00-00-00Z", "before-upgrade"]
    assert [name for name, _ in folder.list("backups")] == [backup_name(name) for name in names]
    assert len(list((tmp_path / "backups").iterdir())) == 6, "the metadata of the others is gone, too"


def test_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    from embereye.addons.archive.commands.make import _check_history
    from embereye.addons.archive.copies import pack
    from embereye.process.lifecycle import UserError

    plain_file, packed = tmp_path / "plain", tmp_path / "packed"
    with contextlib.closing(sqlite3.connect(plain_file)) as database:
        database.execute("CREATE TABLE some (value)")
        database.commit()
    pack(plain_file, packed)
    with pytest.raises(UserError, match="not an intact database"):  # no hub's
        _check_history(packed, tmp_path / "unpacked")
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match="cannot be read"):
        _check_history(packed, tmp_path / "unpacked")
