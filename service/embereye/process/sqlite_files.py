"""The files of a database of SQLite's that is open: whether they are still those that are written."""

from pathlib import Path

SUFFIXES = ("", "-wal", "-shm")
WATCHED = ("", "-wal")  # which only grow while they are open
ROOM_BYTES = 1 << 18  # with less room a disk would be full again at once


class SqliteFiles:
    """Those of the database at `path`, whose log is a file of its own. SQLite notices nothing of what is done to them.

    What a transaction wrote is stored where `replaced` says nothing after it. `shortened` is for a database that nobody
    else has to do with: tools that copy one, or save room, cut off its files as well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[Path, tuple[int, int, int]] = {}  # → device, inode, bytes

    def note(self) -> None:
        """The files that are there now are those that are written, and as long as they may be."""
        self._known = {}
        for suffix in WATCHED:
            file = self._beside(suffix)
            try:
                found = file.stat()
            except OSError:
                continue
            self._known[file] = found.st_dev, found.st_ino, found.st_size

    def replaced(self) -> str:
        """Which file is no longer that which is written; '' where none is seen."""
        for file, (device, inode, _) in self._known.items():
            try:
                found = file.stat()
            except (FileNotFoundError, NotADirectoryError):
                return f"{file.name} was removed"
            except OSError:
                continue
            if (found.st_dev, found.st_ino) != (device, inode):
                return f"{file.name} was replaced"
        return ""

    def shortened(self) -> str:
        """Which file somebody has cut off; '' where none is seen."""
        for file, (_, _, size) in self._known.items():
            try:
                if file.stat().st_size < size:
                    return f"{file.name} was cut off"
            except OSError:
                continue
        return ""

    def put_aside(self) -> None:
        """Leave their names to new ones. OSError where that cannot be."""
        for suffix in SUFFIXES:
            file = self._beside(suffix)
            if file.exists():
                file.replace(self._beside(f".damaged{suffix}"))

    def try_room(self) -> None:
        """OSError where the disk has no room for some more rows: a database that becomes shorter needs none."""
        draft = self._beside(".room")
        try:
            draft.write_bytes(bytes(ROOM_BYTES))
        finally:
            draft.unlink(missing_ok=True)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)
