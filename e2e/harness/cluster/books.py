"""The books of a soak: one line for each finished event, on disk at once, so that a run that was cut can continue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Books:
    """The books of a run. Pieces of a run add to the same file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "books.jsonl"
        self.entries: list[dict[str, Any]] = list(_read(self._path))
        # A piece that was killed may have written half a line.
        self._separator = "" if not self._path.exists() or self._path.read_bytes().endswith(b"\n") else "\n"

    def add(self, kind: str, at: float, **facts: Any) -> None:
        """Add an entry about the moment `at`, in seconds of soaking."""
        entry = {"kind": kind, "at": round(at, 2), **facts}
        self.entries.append(entry)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{self._separator}{json.dumps(entry, ensure_ascii=False)}\n")
        self._separator = ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The entries of one kind."""
        return [entry for entry in self.entries if entry["kind"] == kind]

    @property
    def reached(self) -> float:
        """The seconds of soaking that the books cover."""
        return max((float(entry["at"]) for entry in self.entries), default=0.0)

    @property
    def next_event(self) -> int:
        """The number of the first event of the schedule that is not finished."""
        return max((entry["number"] + 1 for entry in self.entries if "number" in entry), default=0)

    @property
    def pieces(self) -> int:
        """The number of pieces that began."""
        return len(self.of("piece"))


def _read(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue
