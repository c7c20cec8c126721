"""Notice if the files of an open SQLite database are replaced or truncated.

SQLite writes on into a removed file without an error. So the owner of a database calls `note` after it has opened it,
and compares device, inode and size of the files later. If they differ, it moves the files aside and starts new ones.
"""

from pathlib import Path

from embereye.process.files import write_new

SUFFIXES = ("", "-wal", "-shm")
WATCHED = ("", "-wal")  # files that only grow while they are open
ROOM_BYTES = 1 << 18  # room that a disk needs so that it is not full again at once


class SqliteFiles:
    """The files of the database at `path` in WAL mode. SQLite itself does not notice changes to them.

    A transaction is stored if `replaced_file` returns '' after it. Use `truncated_file` only for a database that no
    other program opens: tools that copy or compact a database truncate its files, too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[Path, tuple[int, int, int]] = {}  # → device, inode, bytes

    def note(self) -> None:
        """Remember the present files and their sizes."""
        self._known = {}
        for suffix in WATCHED:
            file = self._sibling(suffix)
            try:
                stat = file.stat()
            except OSError:
                continue
            self._known[file] = stat.st_dev, stat.st_ino, stat.st_size

    def replaced_file(self) -> str:
        """Say which file was removed or replaced since `note`; '' if none was."""
        for file, (device, inode, _) in self._known.items():
            try:
                stat = file.stat()
            except (FileNotFoundError, NotADirectoryError):
                return f"{file.name} was removed"
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) != (device, inode):
                return f"{file.name} was replaced"
        return ""

    def truncated_file(self) -> str:
        """Say which file was truncated since `note`; '' if none was."""
        for file, (_, _, size) in self._known.items():
            try:
                if file.stat().st_size < size:
                    return f"{file.name} was truncated"
            except OSError:
                continue
        return ""

    def move_aside(self) -> None:
        """Rename the files to make room for new ones. OSError if that fails."""
        for suffix in SUFFIXES:
            file = self._sibling(suffix)
            if file.exists():
                file.replace(self._sibling(f".damaged{suffix}"))

    def check_room(self) -> None:
        """Raise OSError unless the disk has room for some more rows."""
        draft = self._sibling(".room")
        draft.unlink(missing_ok=True)  # of a killed process
        try:
            write_new(draft, bytes(ROOM_BYTES))
        finally:
            draft.unlink(missing_ok=True)

    def _sibling(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)
