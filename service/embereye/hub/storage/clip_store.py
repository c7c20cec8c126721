"""Clips and stills on the hub's disk, under the names of their contents, for a time and within a size."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from google.protobuf import json_format

from embereye.process.files import sync_file, sync_folder, write_whole
from embereye.process.tasks import start_task
from embereye.process.timing.clock import now_ns
from embereye.units import DAY
from embereye.v1.clips_pb2 import Clip
from embereye.wire.delimited import Buffer

logger = logging.getLogger(__name__)
R = TypeVar("R")

DEFAULT_BYTES = 5 * 1024**3  # of all clips
FREE_BYTES = 256 * 1024**2  # left on the disk for the database, which alarms need
CLIP_BYTES = 128 * 1024**2  # of one clip
PARTIAL_NS = DAY  # that a clip may stay unfinished
PARTIAL_SHARE = 4  # of the room for clips, a quarter is for what is not finished
PRUNE_SECONDS = 60.0
STORING_BYTES = 256 * 1024**2  # of memory, of what waits for a disk that stands still, also without its callers
SYNCING = 8  # files at a time: a file system makes durable together what it is asked for together
HERE = 2  # folders, that are synced before another thread would have begun to
DIGEST = re.compile(r"[0-9a-f]{64}")
SUFFIXES = {Clip.MEDIA_CLIP: "mkv", Clip.MEDIA_STILL: "jpg", Clip.MEDIA_VIDEO: "mp4", Clip.MEDIA_LINES: "jsonl"}


class ClipRefusedError(Exception):
    """A clip that is not taken, and will not be when it is sent again."""


class NoRoomError(Exception):
    """There is no room now; the shard keeps the clip and tries again."""


Answer = ClipRefusedError | NoRoomError | None  # why a content is not kept; None: it is


@dataclass(frozen=True)
class _Draft:
    """A content that is on the disk, checked and synced, and is not kept yet."""

    kept: Clip
    path: Path

    @property
    def description(self) -> Path:
        return self.path.with_suffix(".json")

    def discard(self) -> None:
        for path in (self.path, self.description):
            with contextlib.suppress(OSError):  # it goes when the hub starts next
                path.unlink(missing_ok=True)


@dataclass(eq=False)
class _Waiting:
    """What one caller has on the disk to be kept."""

    drafts: Sequence[_Draft]
    failure: BaseException | None = None
    over: bool = False


class ClipStore:
    """Everything about clips is known in memory.

    One thread keeps and removes them, and writes those that come in parts. Whole ones are checked and written by
    several, as drafts of their own, whatever the others do.
    """

    def __init__(self, folder: Path, *, capacity: int = DEFAULT_BYTES, clock: Callable[[], int] = now_ns) -> None:
        """`clock` is one that nobody sets, in nanoseconds since the Unix epoch."""
        self._folder = folder
        self._partial = folder / "partial"
        self._capacity = capacity
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hub-clips")
        self._drafting = ThreadPoolExecutor(SYNCING, thread_name_prefix="hub-clips-draft")
        self._syncing = ThreadPoolExecutor(SYNCING, thread_name_prefix="hub-clips-sync")
        self._storing: set[asyncio.Task[list[Answer] | NoRoomError]] = set()
        self._storing_bytes = 0
        self._turn = asyncio.Lock()  # of whoever keeps what waits
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()  # of drafts
        self._folders = set[Path]()  # that outlive a power cut
        self._clips: dict[str, Clip] = {}
        self._partials: dict[str, int] = {}  # unfinished uploads → when they grew last, on `clock`
        self.bytes = 0
        self.failing = ""  # why none can be taken; empty: they can
        self.removed = 0  # by age and by size

    # On the event loop

    async def open(self) -> None:
        """Learn what there is; where that fails no clip is known, and `failing` says why."""
        try:
            await self._run(self._load)
        except OSError as error:
            self._set_failing(f"clips cannot be read: {error.strerror or error}")

    async def run(self) -> None:
        """Remove what is too old or too much until cancelled."""
        while True:
            await self.prune()
            await asyncio.sleep(PRUNE_SECONDS)

    async def prune(self) -> None:
        """Remove what is too old or too much."""
        try:
            await self._run(self._prune)
        except OSError as error:
            logger.warning("old clips could not be removed: %s", error)

    async def close(self) -> None:
        """Finish what is under way."""
        if self._storing:
            await asyncio.wait(self._storing)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        self._drafting.shutdown()
        self._syncing.shutdown()

    async def _run(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def __len__(self) -> int:
        return len(self._clips)

    def find(self, name: str) -> Clip | None:
        """The clip of that SHA-256, or of its first 8 digits and more where that is one clip only."""
        if clip := self._clips.get(name):
            return clip
        if not 8 <= len(name) < 64:
            return None
        found = [clip for clip in self._known() if clip.sha256.startswith(name)]
        return found[0] if len(found) == 1 else None

    def of_episodes(self, episodes: Iterable[str]) -> list[Clip]:
        """The clips that were made for these signs, newest first."""
        wanted = set(episodes)
        return self._newest(clip for clip in self._known() if clip.episode in wanted)

    def between(self, from_ns: int, until_ns: int) -> list[Clip]:
        """The clips that show anything of what was from `from_ns` to before `until_ns`, newest first."""
        return self._newest(clip for clip in self._known() if clip.from_ns < until_ns and clip.until_ns >= from_ns)

    def newest(self, limit: int) -> list[Clip]:
        """The newest `limit` of all."""
        return self._newest(self._known())[:limit]

    def _known(self) -> list[Clip]:
        """All, at this moment: the thread goes on to keep and to remove some."""
        return list(self._clips.values())

    @staticmethod
    def _newest(clips: Iterable[Clip]) -> list[Clip]:
        return sorted(clips, key=lambda clip: (-clip.until_ns, clip.sha256))

    def path(self, clip: Clip) -> Path:
        """The file that holds its content."""
        return self._folder / clip.sha256[:2] / f"{clip.sha256}.{SUFFIXES[clip.media]}"

    async def held(self, clip: Clip) -> tuple[int, bool]:
        """(bytes that are here, whether that is all of it). ClipRefusedError where it is no clip; NoRoomError."""
        _check(clip)
        if clip.sha256 in self._clips:
            return clip.bytes, True
        await self._guarded(partial(self._check_room, clip.bytes))
        return await self._run(partial(self._partial_size, clip.sha256)), False

    async def write(self, clip: Clip, offset: int, data: Buffer) -> None:
        """Add `data` at `offset`; NoRoomError, or ClipRefusedError where that is not where the content ends."""
        await self._guarded(partial(self._append, clip, offset, data))

    async def complete(self, clip: Clip) -> None:
        """Verify what was written and keep it; ClipRefusedError where it is not what its name says."""
        await self._guarded(partial(self._keep, clip))

    async def store(self, items: Sequence[tuple[Clip, Buffer]]) -> list[Answer]:
        """Keep whole contents, durable on return: for each, why it is not kept, or None.

        What several callers have waits for the disk together. NoRoomError where nothing can be written. Cancelled, it
        goes on without its caller, and reads the contents still.
        """
        size = sum(len(data) for _, data in items)
        if self._storing and self._storing_bytes + size > STORING_BYTES:
            raise self._failed(NoRoomError(f"{self._storing_bytes >> 20} MB of clips wait for the hub's disk"))
        self._storing_bytes += size
        task = start_task(self._store(items), name="clips-store")
        self._storing.add(task)
        task.add_done_callback(partial(self._stored, size))
        found = await asyncio.shield(task)
        if isinstance(found, NoRoomError):
            raise found
        return found

    def _stored(self, size: int, task: "asyncio.Task[list[Answer] | NoRoomError]") -> None:
        self._storing.discard(task)
        self._storing_bytes -= size

    async def _store(self, items: Sequence[tuple[Clip, Buffer]]) -> list[Answer] | NoRoomError:
        """As `store`, which may have no caller any more to be raised at."""
        shares = min(SYNCING, len(items))
        loop = asyncio.get_running_loop()
        work = (partial(self._draft, items[number::shares]) for number in range(shares))
        drafted = await asyncio.gather(
            *(loop.run_in_executor(self._drafting, one) for one in work), return_exceptions=True
        )
        found = [one for share in drafted if not isinstance(share, BaseException) for one in share]
        mine = _Waiting([one for one in found if isinstance(one, _Draft)])
        for share in drafted:
            if isinstance(share, BaseException):
                await self._run(partial(_discard, mine.drafts))
                return self._failed(share)
        if mine.drafts:
            await self._keep_drafts(mine)
        if mine.failure is not None:
            return self._failed(mine.failure)
        answers: list[Answer] = [None] * len(items)
        for number, share in enumerate(drafted):
            assert not isinstance(share, BaseException)
            answers[number::shares] = [None if isinstance(one, _Draft) else one for one in share]
        if full := next((one for one in answers if isinstance(one, NoRoomError)), None):
            self._failed(full)
        elif mine.drafts:
            self._set_failing("")
        return answers

    async def _keep_drafts(self, mine: _Waiting) -> None:
        self._waiting.append(mine)
        async with self._turn:
            if mine.over:
                return  # somebody has taken it along
            batch, self._waiting = self._waiting, []
            drafts = [draft for one in batch for draft in one.drafts]
            failure: BaseException | None = NoRoomError("clips could not be kept: the hub ends")
            try:
                await self._run(partial(self._keep_together, drafts))
                failure = None
            except Exception as error:
                failure = error
            finally:
                for one in batch:
                    one.over, one.failure = True, failure

    async def _guarded(self, work: Callable[[], None]) -> None:
        try:
            await self._run(work)
        except NoRoomError as error:
            raise self._failed(error) from None
        except OSError as error:
            raise self._failed(error) from error
        self._set_failing("")

    def _failed(self, error: BaseException) -> NoRoomError:
        """`error`, which is told from now on, as what a caller is told of it; raised, where it is not the disk's."""
        if isinstance(error, OSError):
            error = NoRoomError(f"clips cannot be written: {error.strerror or error}")
        if not isinstance(error, NoRoomError):
            raise error
        self._set_failing(str(error))
        return error

    def _set_failing(self, failing: str) -> None:
        if bool(failing) != bool(self.failing):
            if failing:
                logger.error("%s; shards keep theirs, alarms are not affected", failing)
            else:
                logger.warning("clips can be written again")
        self.failing = failing

    # On the thread

    def _load(self) -> None:
        self._partial.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob("??/*.json"):
            clip = _read(path)
            if clip is not None and clip.sha256 == path.stem and self.path(clip).is_file():
                self._clips[clip.sha256] = clip
                self.bytes += clip.bytes
                clip.kept_ns = clip.kept_ns or min(clip.until_ns, self._clock())
            else:
                path.unlink(missing_ok=True)
        for path in self._folder.glob("??/*"):
            if path.stem not in self._clips:
                path.unlink(missing_ok=True)
        for path in self._partial.iterdir():
            if DIGEST.fullmatch(path.name):
                self._partials[path.name] = self._clock()
            else:  # a draft, of what was never acknowledged
                path.unlink()

    def _partial_size(self, name: str) -> int:
        try:
            return (self._partial / name).stat().st_size
        except FileNotFoundError:
            return 0

    def _check_room(self, size: int) -> None:
        if shutil.disk_usage(self._folder).free < FREE_BYTES + size:
            raise NoRoomError(f"no clip is taken: less than {FREE_BYTES >> 20} MB are free on the hub's disk")

    def _append(self, clip: Clip, offset: int, data: Buffer) -> None:
        if clip.sha256 in self._clips:
            return  # somebody brought all of it meanwhile
        self._check_room(len(data))
        if offset != self._partial_size(clip.sha256) or offset + len(data) > clip.bytes:
            raise ClipRefusedError(f"offset {offset}: {self._partial_size(clip.sha256)} of {clip.bytes} bytes are here")
        with (self._partial / clip.sha256).open("ab") as file:
            file.write(data)
        self._partials[clip.sha256] = self._clock()

    def _keep(self, clip: Clip) -> None:
        if clip.sha256 in self._clips:
            return
        draft = self._partial / clip.sha256
        with draft.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != clip.sha256:
            self._abandon(clip.sha256)
            raise ClipRefusedError(f"what arrived has the SHA-256 {digest[:12]}…, not {clip.sha256[:12]}…")
        path = self.path(clip)
        path.parent.mkdir(exist_ok=True)
        sync_file(draft)
        draft.replace(path)
        self._partials.pop(clip.sha256, None)
        kept = Clip()
        kept.CopyFrom(clip)
        kept.kept_ns = self._clock()
        write_whole(path.with_suffix(".json"), described(kept))
        sync_folder(self._folder)
        self._clips[clip.sha256] = kept
        self.bytes += clip.bytes
        self._prune()

    def _keep_together(self, drafts: Sequence[_Draft]) -> None:
        try:
            self._name_together(drafts)
        except OSError:
            _discard(drafts)  # those that have no name yet
            self._folders.clear()  # one may have been removed
            raise

    def _name_together(self, drafts: Sequence[_Draft]) -> None:
        """Give what is on the disk its names there, and have them outlive a power cut, all together."""
        named: dict[str, Clip] = {}
        folders = set[Path]()
        for draft in drafts:
            kept = draft.kept
            if kept.sha256 in self._clips or kept.sha256 in named:
                draft.discard()
                continue
            path = self.path(kept)
            if path.parent not in self._folders:
                path.parent.mkdir(exist_ok=True)
                folders.add(self._folder)
            draft.description.replace(path.with_suffix(".json"))
            # Last: a description without its content is forgotten when the hub starts.
            draft.path.replace(path)
            folders.add(path.parent)
            named[kept.sha256] = kept
        self._sync_folders(folders)
        self._folders |= folders
        for name, kept in named.items():
            self._abandon(name)  # a part of it that came before
            self._clips[name] = kept
            self.bytes += kept.bytes
        if self.bytes > self._capacity:
            self._prune()

    def _sync_folders(self, paths: Collection[Path]) -> None:
        """Have all of `paths` outlive a power cut; OSError where one cannot."""
        if len(paths) <= HERE:
            for path in paths:
                sync_folder(path)
        else:
            for _ in self._syncing.map(sync_folder, paths):
                pass

    # On several

    def _draft(self, items: Sequence[tuple[Clip, Buffer]]) -> "list[_Draft | Answer]":
        """Check contents and write them to the disk; for each why not, None where it is known already."""
        found = list[_Draft | Answer]()
        with contextlib.ExitStack() as written:
            try:
                files = list[BinaryIO]()
                for clip, data in items:
                    try:
                        draft = self._checked(clip, data)
                    except (ClipRefusedError, NoRoomError) as error:
                        found.append(error)
                        continue
                    found.append(draft)
                    if draft is not None:
                        for path, content in ((draft.path, data), (draft.description, described(draft.kept))):
                            files.append(written.enter_context(path.open("wb")))
                            files[-1].write(content)
                            files[-1].flush()
                for file in files:
                    os.fsync(file.fileno())
            except BaseException:
                _discard([one for one in found if isinstance(one, _Draft)])
                raise
        return found

    def _checked(self, clip: Clip, data: Buffer) -> _Draft | None:
        _check(clip)
        if clip.sha256 in self._clips:
            return None
        self._check_room(len(data))
        if hashlib.sha256(data).hexdigest() != clip.sha256:
            raise ClipRefusedError(f"what arrived has another SHA-256 than {clip.sha256[:12]}…")
        kept = Clip()
        kept.CopyFrom(clip)
        kept.kept_ns = self._clock()
        return _Draft(kept, self._partial / f"{clip.sha256}-{next(self._numbers)}")

    # On the thread again

    def _prune(self) -> None:
        now = self._clock()
        for clip in list(self._clips.values()):
            if clip.retention_ns and clip.kept_ns + clip.retention_ns < now:
                self._remove(clip)
        # Unfinished uploads take room, too: those that nobody goes on with make way first.
        unfinished = sum(self._partial_size(name) for name in self._partials)
        for name in sorted(self._partials, key=self._partials.__getitem__):
            if now - self._partials[name] > PARTIAL_NS or unfinished > self._capacity // PARTIAL_SHARE:
                unfinished -= self._partial_size(name)
                self._abandon(name)
        oldest = iter(sorted(self._clips.values(), key=lambda clip: clip.kept_ns))
        while self.bytes + unfinished > self._capacity and len(self._clips) > 1:
            self._remove(next(oldest))

    def _abandon(self, name: str) -> None:
        self._partials.pop(name, None)
        (self._partial / name).unlink(missing_ok=True)

    def _remove(self, clip: Clip) -> None:
        del self._clips[clip.sha256]
        self.bytes -= clip.bytes
        self.removed += 1
        self.path(clip).with_suffix(".json").unlink(missing_ok=True)
        self.path(clip).unlink(missing_ok=True)


def _discard(drafts: Iterable[_Draft]) -> None:
    for draft in drafts:
        draft.discard()


def _check(clip: Clip) -> None:
    """ClipRefusedError where `clip` cannot be taken as it is."""
    if not DIGEST.fullmatch(clip.sha256):
        raise ClipRefusedError(f'sha256: "{clip.sha256[:80]}" is not 64 hexadecimal digits')
    if clip.media not in SUFFIXES:
        raise ClipRefusedError(f"media: {clip.media} is neither a clip nor a still, nor lines")
    if not 0 < clip.bytes <= CLIP_BYTES:
        raise ClipRefusedError(f"bytes: {clip.bytes} is not between 1 and {CLIP_BYTES}")


def described(clip: Clip) -> bytes:
    """`clip` as protobuf's JSON, which the library takes longer for than for hashing a picture."""
    values = dict[str, str | int]()
    for known, value in clip.ListFields():
        name, names, long = _FIELDS[known.number]
        values[name] = names.get(value, value) if names else str(value) if long else value
    return json.dumps(values).encode()


# By number: (name in JSON, an enumeration's names, whether JSON has it as a string since it may exceed 2^53)
_FIELDS = {
    known.number: (
        known.json_name,
        {} if known.enum_type is None else {one.number: one.name for one in known.enum_type.values},
        known.cpp_type in (known.CPPTYPE_INT64, known.CPPTYPE_UINT64),
    )
    for known in Clip.DESCRIPTOR.fields
}


def _read(path: Path) -> Clip | None:
    try:
        return json_format.Parse(path.read_text(), Clip(), ignore_unknown_fields=True)
    except (OSError, ValueError, json_format.ParseError):
        return None
