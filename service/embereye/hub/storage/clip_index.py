"""What a hub knows of the clips that it keeps: descriptions as bytes, as messages take three times the memory."""

import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from embereye.v1.clips_pb2 import Clip

TIMES = struct.Struct("=qqqq")  # of its first and its last frame, since when it is kept, until when; EVER: for good
EVER = 2**63 - 1
DIGITS = 64  # of a SHA-256, with which the name of a file begins


@dataclass(slots=True, eq=False)
class Batch:
    """A file that describes contents which were kept together: a line for each, its file's name and its description."""

    name: str
    kept: int = 0  # of them, that are kept still


class Place(NamedTuple):
    """Where a content is that came whole. No two ever have the same name: a line is of that file, or of none."""

    name: str
    batch: Batch


class _Kept(NamedTuple):
    packed: bytes  # TIMES, and the description behind it
    episode: str
    ending: str  # of the name of its file, where it came whole
    batch: Batch | None

    @property
    def times(self) -> tuple[int, int, int, int]:
        return TIMES.unpack_from(self.packed)

    @property
    def clip(self) -> Clip:
        return Clip.FromString(self.packed[TIMES.size :])


class ClipIndex:
    """Clips by their SHA-256. One thread changes them; others look for some meanwhile, and get messages of their own.

    It does not wait for those: keys alone or values alone are copied in one step, items are not.
    """

    def __init__(self, *, recordings_ns: int = 0) -> None:
        """`recordings_ns` is how long those are kept that a shard delivered and does not say it of; 0: for good."""
        self._recordings_ns = recordings_ns
        self._kept: dict[str, _Kept] = {}
        self.bytes = 0  # of all contents

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def add(self, clip: Clip, place: Place | None = None) -> None:
        """Know `clip`, whose content is at `place`; None: it came in parts."""
        retention_ns = clip.retention_ns or (0 if clip.stored_by else self._recordings_ns)
        ends_ns = clip.kept_ns + retention_ns if retention_ns else EVER
        times = TIMES.pack(clip.from_ns, clip.until_ns, clip.kept_ns, max(-EVER, min(ends_ns, EVER)))
        ending, batch = (place.name[DIGITS:], place.batch) if place else ("", None)
        self._kept[clip.sha256] = _Kept(times + clip.SerializeToString(), sys.intern(clip.episode), ending, batch)
        self.bytes += clip.bytes

    def remove(self, clip: Clip) -> None:
        """Know it no longer."""
        del self._kept[clip.sha256]
        self.bytes -= clip.bytes

    def get(self, name: str) -> Clip | None:
        """The clip of that SHA-256."""
        kept = self._kept.get(name)
        return kept.clip if kept else None

    def place(self, name: str) -> Place | None:
        """Where its content is; None where it came in parts, or is not known."""
        kept = self._kept.get(name)
        return Place(name + kept.ending, kept.batch) if kept and kept.batch else None

    def places(self) -> set[str]:
        """The names of all files whose contents came whole."""
        return {name + kept.ending for name, kept in self._kept.items() if kept.batch}

    def beginning(self, digits: str) -> list[Clip]:
        """Those whose SHA-256 begins so."""
        found = [self._kept.get(name) for name in list(self._kept) if name.startswith(digits)]
        return [kept.clip for kept in found if kept]

    def of_episodes(self, episodes: Iterable[str]) -> list[Clip]:
        """Those that were made for these signs, newest first."""
        wanted = set(episodes)
        return _newest(kept.clip for kept in self._values() if kept.episode in wanted)

    def between(self, from_ns: int, until_ns: int) -> list[Clip]:
        """Those that show anything of what was from `from_ns` to before `until_ns`, newest first."""
        timed = ((kept.times, kept) for kept in self._values())
        return _newest(kept.clip for times, kept in timed if times[0] < until_ns and times[1] >= from_ns)

    def newest(self, limit: int) -> list[Clip]:
        """The newest `limit` of all."""
        ordered = sorted(self._values(), key=lambda kept: kept.times[1], reverse=True)
        return _newest(kept.clip for kept in ordered[:limit])

    def ended(self, now_ns: int) -> list[Clip]:
        """Those that were to be kept until before `now_ns`."""
        return [kept.clip for kept in self._values() if kept.times[3] < now_ns]

    def oldest(self) -> list[str]:
        """The SHA-256 of all, those first that are kept for longest."""
        return sorted(self._kept, key=lambda name: self._kept[name].times[2])

    def _values(self) -> list[_Kept]:
        return list(self._kept.values())


def _newest(clips: Iterable[Clip]) -> list[Clip]:
    return sorted(clips, key=lambda clip: (-clip.until_ns, clip.sha256))
