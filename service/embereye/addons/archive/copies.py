"""Copies of the hub's history while it runs, each as `embereye hub backup` writes it, compressed.

A separate process copies the history, so that alarms do not wait.
"""

import asyncio
import contextlib
import gzip
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from embereye.process.files import sha256_of

FOLDER = "backups"  # in a place
SUFFIX = ".sqlite.gz"
STAMP = "%Y-%m-%dT%H-%M-%SZ"  # a backup's name: when it was begun, in UTC
DRAFT = ".backup-draft"  # begins the names of files that are removed before and after each copy
FREE_BYTES = 256 * 1024**2  # left free on the disk for the database, which alarms need
NICENESS = 5
PIECE = 1024**2  # bytes compressed at a time


def backup_name(stamp: str) -> str:
    """The name of a backup's object."""
    return f"{FOLDER}/{stamp}{SUFFIX}"


def present_stamp() -> str:
    """The name of a backup that begins now."""
    return time.strftime(STAMP, time.gmtime())


class HistoryCopies:
    """Copies the history of one hub, one copy at a time."""

    def __init__(self, folder: Path, database: str = "") -> None:
        """`folder` is the hub's data folder; `database` is the address of its PostgreSQL, or ''."""
        self._folder = folder
        self._database = database
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def packed(self) -> AsyncIterator[tuple[Path, str]]:
        """Make a compressed copy of one moment: its file, which is removed at the end, and its SHA-256. OSError."""
        draft, packed = self._folder / f"{DRAFT}.sqlite", self._folder / f"{DRAFT}{SUFFIX}"
        async with self._turn:
            try:
                self._make_room(draft, packed)
                await copy_history(draft, self._folder, self._database)
                yield packed, await asyncio.to_thread(pack, draft, packed)
            finally:
                _remove(draft, packed)

    def _make_room(self, *drafts: Path) -> None:
        """Remove what a killed hub left; OSError if the disk has too little room."""
        _remove(*drafts)
        database = self._folder / "hub.sqlite"
        needed = FREE_BYTES + (2 * database.stat().st_size if database.exists() else 0)
        if shutil.disk_usage(self._folder).free < needed:
            raise OSError(f"{self._folder}: less than {needed >> 20} MB are free")


async def copy_history(file: Path, folder: Path, database: str) -> None:
    """Run `embereye hub backup` as a separate process; OSError if it fails."""
    # The address may contain a password, which everybody could read among the arguments.
    place: Mapping[str, str] = {"EMBEREYE_DATA": str(folder), "EMBEREYE_DATABASE": database}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "hub", "backup", str(file), env={**os.environ, **place},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        with contextlib.suppress(ProcessLookupError):  # it failed at once, and says why
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = output.decode(errors="replace").strip().splitlines()
        raise OSError(lines[-1] if lines else f"the copy ended with code {process.returncode}")


def pack(file: Path, packed: Path) -> str:
    """Compress `file`; return the SHA-256 of the result."""
    with file.open("rb") as source, gzip.open(packed, "wb", compresslevel=4) as target:
        shutil.copyfileobj(source, target, PIECE)
    return sha256_of(packed)


def unpack(packed: Path, file: Path) -> None:
    """Write the database in `packed` to `file`; OSError, EOFError or zlib.error if it is damaged."""
    with gzip.open(packed, "rb") as source, file.open("wb") as target:
        shutil.copyfileobj(source, target, PIECE)


def _remove(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.partial").unlink(missing_ok=True)  # of `embereye hub backup`
