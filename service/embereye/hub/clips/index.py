"""The index of all stored clips in memory, with descriptions as bytes: messages take three times the memory.

An entry is a clip's times in packed form, followed by its serialised description. Queries select by times, episode or
name first, and parse only the selected descriptions. `ClipStore` owns the index: its one thread changes it, and the
event loop queries it without a lock.
"""

import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from embereye.v1.clips_pb2 import Clip

TIMES = struct.Struct("=qqqq")  # times of the first and last frame, of storing, and of expiry or FOREVER
FOREVER = 2**63 - 1
DIGITS = 64  # of a SHA-256, with which a file's name starts


@dataclass(slots=True, eq=False)
class Batch:
    """A file that describes several clips, with one line for each: its file's name and its description."""

    name: str
    count: int = 0  # clips of this file that still exist


class Place(NamedTuple):
    """The file of a clip that arrived whole. File names are never used again."""

    name: str
    batch: Batch


class _Entry(NamedTuple):
    packed: bytes  # TIMES, then the serialised description
    episode: str
    ending: str  # of its file's name after the SHA-256; '' if it arrived in parts
    batch: Batch | None

    @property
    def times(self) -> tuple[int, int, int, int]:
        return TIMES.unpack_from(self.packed)

    @property
    def clip(self) -> Clip:
        return Clip.FromString(self.packed[TIMES.size :])


class ClipIndex:
    """Clips by their SHA-256. One thread changes the index; others may query it at any time, without a lock.

    Queries return new messages. They copy only keys or only values, each in one atomic step; copying items is not
    atomic.
    """

    def __init__(self, *, recordings_ns: int = 0) -> None:
        """`recordings_ns` is the retention of shards' clips that have none; 0: forever."""
        self._recordings_ns = recordings_ns
        self._entries: dict[str, _Entry] = {}
        self.bytes = 0  # of all contents

    def __len__(self) -> int:
        return len(self._entries)

    def has_clip(self, name: str) -> bool:
        """True if there is a clip with the SHA-256 `name`."""
        return name in self._entries

    def add(self, clip: Clip, place: Place | None = None) -> None:
        """Add `clip` with its content at `place`; None if it arrived in parts."""
        retention_ns = clip.retention_ns or (0 if clip.stored_by else self._recordings_ns)
        expires_ns = clip.kept_ns + retention_ns if retention_ns else FOREVER
        times = TIMES.pack(clip.from_ns, clip.until_ns, clip.kept_ns, max(-FOREVER, min(expires_ns, FOREVER)))
        ending, batch = (place.name[DIGITS:], place.batch) if place else ("", None)
        self._entries[clip.sha256] = _Entry(times + clip.SerializeToString(), sys.intern(clip.episode), ending, batch)
        self.bytes += clip.bytes

    def remove(self, clip: Clip) -> None:
        """Remove `clip`."""
        del self._entries[clip.sha256]
        self.bytes -= clip.bytes

    def get(self, name: str) -> Clip | None:
        """The clip with the SHA-256 `name`; None if there is none."""
        entry = self._entries.get(name)
        return entry.clip if entry else None

    def place(self, name: str) -> Place | None:
        """The place of a clip's content; None if it arrived in parts or is not known."""
        entry = self._entries.get(name)
        return Place(name + entry.ending, entry.batch) if entry and entry.batch else None

    def file_names(self) -> set[str]:
        """The names of all files whose contents arrived whole."""
        return {name + entry.ending for name, entry in self._entries.items() if entry.batch}

    def with_prefix(self, digits: str) -> list[Clip]:
        """The clips whose SHA-256 starts with `digits`."""
        matches = [self._entries.get(name) for name in list(self._entries) if name.startswith(digits)]
        return [entry.clip for entry in matches if entry]

    def of_episodes(self, episodes: Iterable[str]) -> list[Clip]:
        """The clips that belong to `episodes`, newest first."""
        wanted = set(episodes)
        return _newest(entry.clip for entry in self._values() if entry.episode in wanted)

    def between(self, from_ns: int, until_ns: int) -> list[Clip]:
        """The clips that overlap the time from `from_ns` to before `until_ns`, newest first."""
        timed = ((entry.times, entry) for entry in self._values())
        return _newest(entry.clip for times, entry in timed if times[0] < until_ns and times[1] >= from_ns)

    def received_since(self, kept_ns: int) -> list[Clip]:
        """The clips that were stored from `kept_ns` on, oldest first."""
        entries = [entry for entry in self._values() if entry.times[2] >= kept_ns]
        return [entry.clip for entry in sorted(entries, key=lambda entry: entry.times[2])]

    def newest(self, limit: int) -> list[Clip]:
        """The newest `limit` clips."""
        ordered = sorted(self._values(), key=lambda entry: entry.times[1], reverse=True)
        return _newest(entry.clip for entry in ordered[:limit])

    def expired(self, now_ns: int) -> list[Clip]:
        """The clips whose retention ended before `now_ns`."""
        return [entry.clip for entry in self._values() if entry.times[3] < now_ns]

    def oldest(self) -> list[str]:
        """The SHA-256 of all clips, the ones stored first at the start."""
        return sorted(self._entries, key=lambda name: self._entries[name].times[2])

    def _values(self) -> list[_Entry]:
        return list(self._entries.values())


def _newest(clips: Iterable[Clip]) -> list[Clip]:
    return sorted(clips, key=lambda clip: (-clip.until_ns, clip.sha256))
