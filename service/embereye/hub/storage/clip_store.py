"""Clips and stills on the hub's disk, under the names of their contents, for a time and within a size."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import json_format

from embereye.hub.storage.clip_index import Batch, ClipIndex, Place
from embereye.process.files import sync_file, sync_folder, write_whole
from embereye.process.tasks import start_task
from embereye.process.timing.clock import now_ns
from embereye.units import DAY
from embereye.v1.clips_pb2 import Clip
from embereye.wire.delimited import Buffer

logger = logging.getLogger(__name__)
R = TypeVar("R")

DEFAULT_BYTES = 5 * 1024**3  # of all clips
CLOSE_SECONDS = 2.0  # to wait for the disk as the hub ends
FREE_BYTES = 256 * 1024**2  # left on the disk for the database, which alarms need
CLIP_BYTES = 128 * 1024**2  # of one clip
PARTIAL_NS = DAY  # that a clip may stay unfinished
PARTIAL_SHARE = 4  # of the room for clips, a quarter is for what is not finished
PRUNE_SECONDS = 60.0
STORING_BYTES = 256 * 1024**2  # of memory, of what waits for a disk that stands still, also without its callers
SYNCING = 8  # files at a time: a file system makes durable together what it is asked for together
STORED = "stored"  # one folder for whole contents, made durable at once; an older hub leaves it as it is
DIGEST = re.compile(r"[0-9a-f]{64}")
DESCRIBED = ".described"  # the suffix of a file that has the descriptions of several
STORED_NAME = re.compile(r"([0-9a-f]{64})-[0-9a-f-]+\.[a-z0-9]+")
UNKNOWN = "%s tells of a kind of clip that this version does not know, which stays and is not shown"
SUFFIXES = {Clip.MEDIA_CLIP: "mkv", Clip.MEDIA_STILL: "jpg", Clip.MEDIA_VIDEO: "mp4", Clip.MEDIA_LINES: "jsonl"}


class ClipRefusedError(Exception):
    """A clip that is not taken, and will not be when it is sent again."""


class NoRoomError(Exception):
    """There is no room now; the shard keeps the clip and tries again."""


Answer = ClipRefusedError | NoRoomError | None  # why a content is not kept; None: it is


@dataclass(frozen=True)
class _Draft:
    """A content that is on the disk, checked and synced, and is not described there yet."""

    kept: Clip
    path: Path


@dataclass(eq=False)
class _Waiting:
    """What one caller has on the disk to be kept."""

    drafts: Sequence[_Draft]
    failure: BaseException | None = None
    over: bool = False


class ClipStore:
    """Everything about clips is known in memory.

    One thread keeps and removes them, and writes those that come in parts: a content and its description are two files.
    Whole ones are checked and written by several, as drafts of their own, whatever the others do; one file describes
    those that are kept together.
    """

    def __init__(
        self, folder: Path, *, capacity: int = DEFAULT_BYTES, recordings_ns: int = 0,
        clock: Callable[[], int] = now_ns,
    ) -> None:  # fmt: skip
        """`clock` is one that nobody sets, in nanoseconds since the Unix epoch.

        What sensors' shards deliver belongs to the history and is kept for `recordings_ns`, as it is; 0: for good.
        """
        self._folder = folder
        self._partial = folder / "partial"
        self._wholes = folder / STORED
        self._capacity = capacity
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hub-clips")
        self._drafting = ThreadPoolExecutor(SYNCING, thread_name_prefix="hub-clips-draft")
        self._storing: set[asyncio.Task[list[Answer] | NoRoomError]] = set()
        self._storing_bytes = 0
        self._turn = asyncio.Lock()  # of whoever keeps what waits
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()  # of drafts
        self._run_id = secrets.token_hex(8)  # no earlier hub has given such names
        self._wholes_named = False  # whether the folder of whole contents outlives a power cut
        self._clips = ClipIndex(recordings_ns=recordings_ns)
        self._opened = asyncio.Event()
        self._partials: dict[str, int] = {}  # unfinished uploads → when they grew last, on `clock`
        self.failing = ""  # why none can be taken; empty: they can
        self.removed = 0  # by age and by size

    # On the event loop

    async def open(self) -> None:
        """Learn what there is; where that fails no clip is known, and `failing` says why."""
        try:
            await self._run(self._load)
        except OSError as error:
            self._set_failing(f"clips cannot be read: {error.strerror or error}")
        self._opened.set()

    async def run(self) -> None:
        """Learn what there is, then remove what is too old or too much until cancelled."""
        if not self._opened.is_set():
            await self.open()
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
        """Finish what is under way, unless the disk takes too long: what is not kept was not acknowledged."""
        last = asyncio.wrap_future(self._thread.submit(int))  # behind all else
        await asyncio.wait(set[asyncio.Future[Any]]({*self._storing, last}), timeout=CLOSE_SECONDS)
        for executor in (self._thread, self._drafting):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def __len__(self) -> int:
        return len(self._clips)

    @property
    def size(self) -> int:
        """Bytes of all contents."""
        return self._clips.bytes

    def find(self, name: str) -> Clip | None:
        """The clip of that SHA-256, or of its first 8 digits and more where that is one clip only."""
        if clip := self._clips.get(name):
            return clip
        if not 8 <= len(name) < 64:
            return None
        found = self._clips.beginning(name)
        return found[0] if len(found) == 1 else None

    def of_episodes(self, episodes: Iterable[str]) -> list[Clip]:
        """The clips that were made for these signs, newest first."""
        return self._clips.of_episodes(episodes)

    def between(self, from_ns: int, until_ns: int) -> list[Clip]:
        """The clips that show anything of what was from `from_ns` to before `until_ns`, newest first."""
        return self._clips.between(from_ns, until_ns)

    def newest(self, limit: int) -> list[Clip]:
        """The newest `limit` of all."""
        return self._clips.newest(limit)

    def path(self, clip: Clip) -> Path:
        """The file that holds its content."""
        if place := self._clips.place(clip.sha256):
            return self._wholes / place.name
        return self._folder / clip.sha256[:2] / f"{clip.sha256}.{SUFFIXES[clip.media]}"

    async def upload_progress(self, clip: Clip) -> tuple[int, bool]:
        """(bytes that are here, whether that is all of it). ClipRefusedError where it is no clip; NoRoomError."""
        _check(clip)
        await self._opened.wait()
        if clip.sha256 in self._clips:
            return clip.bytes, True
        return await self._guarded(partial(self._begun, clip)), False

    async def write(self, clip: Clip, offset: int, data: Buffer) -> None:
        """Add `data` at `offset`; NoRoomError, or ClipRefusedError where that is not where the content ends."""
        await self._guarded(partial(self._append, clip, offset, data))

    async def complete(self, clip: Clip) -> None:
        """Verify what was written and keep it; ClipRefusedError where it is not what its name says."""
        await self._guarded(partial(self._keep, clip))
        self._set_failing("")  # by no less than a whole one

    async def store(self, items: Sequence[tuple[Clip, Buffer]]) -> list[Answer]:
        """Keep whole contents, durable on return: for each, why it is not kept, or None.

        What several callers have waits for the disk together, and until it is open. NoRoomError where nothing can be
        written. Cancelled, it goes on without its caller, and reads the contents still.
        """
        await self._opened.wait()
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
                await self._run(partial(self._give_up, mine.drafts))
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

    async def _guarded(self, work: Callable[[], R]) -> R:
        try:
            return await self._run(work)
        except NoRoomError as error:
            raise self._failed(error) from None
        except OSError as error:
            raise self._failed(error) from error

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
        self._make_folders()
        unread = False
        for path in self._folder.glob("??/*.json"):
            try:
                clip = _parsed(path.read_bytes())
            except OSError as error:
                logger.warning("%s cannot be read, and its clip is not shown: %s", path, error.strerror or error)
                unread = True
                continue
            if clip is not None and clip.sha256 == path.stem and clip.media not in SUFFIXES:
                logger.warning(UNKNOWN, path)
                unread = True
            elif clip is not None and clip.sha256 == path.stem and self.path(clip).is_file():
                self._learn(clip)
            else:
                _clear(path)
        for path in () if unread else self._folder.glob("??/*"):
            if path.stem not in self._clips:
                _clear(path)
        self._load_stored()
        for path in self._partial.iterdir():
            if DIGEST.fullmatch(path.name):
                self._partials[path.name] = self._clock()
            else:  # a draft, of what was never acknowledged
                _clear(path)

    def _make_folders(self) -> None:
        """Where somebody removed them, too."""
        for folder in (self._partial, self._wholes):
            folder.mkdir(parents=True, exist_ok=True)

    def _load_stored(self) -> None:
        unread = False
        for path in self._wholes.glob(f"*{DESCRIBED}"):
            try:
                lines = path.read_bytes().splitlines()
            except OSError as error:
                logger.warning("%s cannot be read, and its clips are not shown: %s", path, error.strerror or error)
                unread = True
                continue
            batch = Batch(path.name)
            if unknown := [line for line in lines if not self._load_line(line, batch)]:
                logger.warning(UNKNOWN, path)
                unread = True
            if not batch.kept and not unknown:
                _clear(path)
        names = self._clips.places()
        for path in () if unread else self._wholes.iterdir():
            if path.suffix != DESCRIBED and path.name not in names:
                _clear(path)

    def _load_line(self, line: bytes, batch: Batch) -> bool:
        """Learn what `line` describes, unless that is nothing; False where it may be something to a newer hub."""
        name, _, description = line.partition(b" ")
        place, clip = Place(name.decode(errors="replace"), batch), _parsed(description)
        named = STORED_NAME.fullmatch(place.name)
        if clip is None or named is None or named[1] != clip.sha256:
            return True
        if clip.media not in SUFFIXES:
            return False
        path = self._wholes / place.name
        if not path.is_file() or path.stat().st_size != clip.bytes:
            return True
        if known := self._clips.get(clip.sha256):  # one of both was removed, which a power cut has undone
            if known.kept_ns >= clip.kept_ns:
                return True
            self._remove(known)
        self._learn(clip, place)
        return True

    def _learn(self, clip: Clip, place: Place | None = None) -> None:
        if place is not None:
            place.batch.kept += 1
        clip.kept_ns = clip.kept_ns or min(clip.until_ns, self._clock())
        self._clips.add(clip, place)

    def _begun(self, clip: Clip) -> int:
        """How many bytes of `clip`, for which there is room, are here."""
        self._make_folders()
        self._check_room(clip.bytes)
        return self._partial_size(clip.sha256)

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
        self._learn(kept)
        self._prune()

    def _keep_together(self, drafts: Sequence[_Draft]) -> None:
        """Describe what is on the disk, all together, and have that outlive a power cut."""
        kept: dict[str, _Draft] = {}
        for draft in drafts:
            if draft.kept.sha256 in self._clips or draft.kept.sha256 in kept:
                _clear(draft.path)
            else:
                kept[draft.kept.sha256] = draft
        if not kept:
            return
        batch = Batch(f"{self._run_id}-{next(self._numbers):x}{DESCRIBED}")
        path = self._wholes / batch.name
        lines = [b"%s %s\n" % (draft.path.name.encode(), described(draft.kept)) for draft in kept.values()]
        try:
            with _Written() as written:
                written.add(path, b"".join(lines))
            sync_folder(self._wholes)
            if not self._wholes_named:
                sync_folder(self._folder)
                self._wholes_named = True
        except OSError:
            self._give_up([*drafts, _Draft(Clip(), path)])
            raise
        for name, draft in kept.items():
            if name in self._partials:
                self._abandon(name)  # a part of it that came before
            self._learn(draft.kept, Place(draft.path.name, batch))
        if self.size > self._capacity:
            self._prune()

    def _give_up(self, drafts: Iterable[_Draft]) -> None:
        _discard(drafts)
        self._wholes_named = False
        with contextlib.suppress(OSError):
            self._make_folders()

    # On several

    def _draft(self, items: Sequence[tuple[Clip, Buffer]]) -> "list[_Draft | Answer]":
        """Check contents and write them to the disk; for each why not, None where it is known already."""
        found = list[_Draft | Answer]()
        try:
            with _Written() as written:
                for clip, data in items:
                    try:
                        draft = self._checked(clip, data)
                    except (ClipRefusedError, NoRoomError) as error:
                        found.append(error)
                        continue
                    found.append(draft)
                    if draft is not None:
                        written.add(draft.path, data)
        except BaseException:
            _discard(one for one in found if isinstance(one, _Draft))
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
        name = f"{clip.sha256}-{self._run_id}-{next(self._numbers):x}.{SUFFIXES[clip.media]}"
        return _Draft(kept, self._wholes / name)

    # On the thread again

    def _prune(self) -> None:
        now = self._clock()
        for clip in self._clips.ended(now):
            self._remove(clip)
        # Unfinished uploads take room, too: those that nobody goes on with make way first.
        unfinished = sum(self._partial_size(name) for name in self._partials)
        for name in sorted(self._partials, key=self._partials.__getitem__):
            if now - self._partials[name] > PARTIAL_NS or unfinished > self._capacity // PARTIAL_SHARE:
                unfinished -= self._partial_size(name)
                self._abandon(name)
        for name in self._clips.oldest() if self.size + unfinished > self._capacity else ():
            if self.size + unfinished <= self._capacity or len(self._clips) <= 1:
                break
            if (oldest := self._clips.get(name)) is not None:
                self._remove(oldest)

    def _abandon(self, name: str) -> None:
        self._partials.pop(name, None)
        (self._partial / name).unlink(missing_ok=True)

    def _remove(self, clip: Clip) -> None:
        path, place = self.path(clip), self._clips.place(clip.sha256)
        self._clips.remove(clip)
        self.removed += 1
        if place is None:
            path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        if place is not None:
            place.batch.kept -= 1
            if not place.batch.kept:
                (self._wholes / place.batch.name).unlink(missing_ok=True)


def _discard(drafts: Iterable[_Draft]) -> None:
    for draft in drafts:
        _clear(draft.path)


def _clear(path: Path) -> None:
    """Remove what is of no use, where that can be; what stays is tried again when the hub starts next."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


class _Written:
    """New files, durable when the block ends; OSError where one cannot be written."""

    def __init__(self) -> None:
        self._descriptors = list[int]()

    def add(self, path: Path, data: Buffer) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        self._descriptors.append(descriptor)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for descriptor in self._descriptors if kind is None else ():
                os.fsync(descriptor)
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)


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


def _parsed(description: bytes) -> Clip | None:
    try:
        return json_format.Parse(description, Clip(), ignore_unknown_fields=True)
    except (ValueError, json_format.ParseError):
        return None
