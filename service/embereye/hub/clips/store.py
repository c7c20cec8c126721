"""The clip store: clips and stills on the hub's disk, named by their SHA-256, limited by age and by total size.

A clip arrives in one of two ways. Files on the disk, in the folder of clips:

| way | content | description |
| --- | --- | --- |
| in parts (`write`, `complete`) | `partial/SHA`, moved to `SH/SHA.EXT` when complete | `SH/SHA.json` |
| whole (`store`) | `stored/SHA-RUN-NUMBER.EXT`, a draft | a line of `stored/RUN-NUMBER.described` |

A clip exists once its description is durable; until then its content is a draft, which the next start removes. Several
threads check and write drafts at the same time. One thread then describes all waiting drafts in one file, because a
file system makes many files durable together about as fast as one. The same thread does everything else: uploads in
parts, pruning and loading.

Everything about clips is in memory (`ClipIndex`), so queries do not touch the disk. Queries wait until the descriptions
are read. When the disk fails or is full, `failing.why` says why, uploads raise NoRoomError, and shards try again later.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
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

from embereye.hub.clips.index import Batch, ClipIndex, Place
from embereye.process.condition import Condition
from embereye.process.files import open_appending, sha256_of, sync_file, sync_folder, write_new, write_whole
from embereye.process.tasks import start_task
from embereye.process.timing.clock import now_ns
from embereye.units import DAY
from embereye.v1.clips_pb2 import Clip
from embereye.wire.delimited import Buffer

logger = logging.getLogger(__name__)
WRITABLE = "clips can be written again"
R = TypeVar("R")

DEFAULT_BYTES = 5 * 1024**3  # of all clips
CLOSE_SECONDS = 2.0  # how long the hub waits for the disk when it stops
LOADING_SECONDS = 8.0  # how long a query waits for a hub that still reads its clips; callers give up after ten
FREE_BYTES = 256 * 1024**2  # left free on the disk for the database, which alarms need
CLIP_BYTES = 128 * 1024**2  # largest clip
PARTIAL_NS = DAY  # after which an unfinished upload is removed
PARTIAL_SHARE = 4  # unfinished uploads may take a quarter of the room for clips
PRUNE_SECONDS = 60.0
STORING_BYTES = 256 * 1024**2  # most memory for contents that wait for a slow disk
SYNCING = 8  # files written at the same time, which a file system makes durable together
STORED = "stored"  # folder of clips that arrived whole; older hubs ignore it
DIGEST = re.compile(r"[0-9a-f]{64}")
DESCRIBED = ".described"  # suffix of a file with the descriptions of several clips
STORED_NAME = re.compile(r"([0-9a-f]{64})-[0-9a-f-]+\.[a-z0-9]+")
UNKNOWN = "%s: has a kind of clip that this version does not know; the clip is not shown and not removed"
SUFFIXES = {Clip.MEDIA_CLIP: "mkv", Clip.MEDIA_STILL: "jpg", Clip.MEDIA_VIDEO: "mp4", Clip.MEDIA_LINES: "jsonl"}


class ClipRefusedError(Exception):
    """The clip is invalid: sending it again is useless."""


class NoRoomError(Exception):
    """The clip cannot be stored now; the shard tries again later."""


class ClipsUnreadError(Exception):
    """The descriptions of clips are not read yet, or cannot be read: a missing clip may exist."""


Answer = ClipRefusedError | NoRoomError | None  # why a clip is not stored; None: it is


@dataclass(frozen=True)
class _Draft:
    """A content that is checked and durable on the disk, but not described there yet."""

    clip: Clip
    path: Path


@dataclass(eq=False)
class _Waiting:
    """One caller's drafts that wait to be described."""

    drafts: Sequence[_Draft]
    failure: BaseException | None = None
    done: bool = False


class ClipStore:
    """All clips. The asynchronous methods and queries are for the event loop's thread."""

    def __init__(
        self, folder: Path, *, capacity: int = DEFAULT_BYTES, recordings_ns: int = 0,
        clock: Callable[[], int] = now_ns, loading_seconds: float = LOADING_SECONDS,
    ) -> None:  # fmt: skip
        """`clock` is never set while the hub runs; it returns nanoseconds since the Unix epoch.

        Recordings from sensors' shards are part of the history and stay for `recordings_ns`; 0: forever. Queries wait
        at most `loading_seconds` for `open`.
        """
        self._loading_seconds = loading_seconds
        self._unread = ""  # why a clip that is not known may exist; '' if all descriptions were read
        self._folder = folder
        self._partial = folder / "partial"
        self._wholes = folder / STORED
        self._capacity = capacity
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hub-clips")
        self._drafting = ThreadPoolExecutor(SYNCING, thread_name_prefix="hub-clips-draft")
        self._storing: set[asyncio.Task[list[Answer] | NoRoomError]] = set()
        self._storing_bytes = 0
        self._turn = asyncio.Lock()  # for describing the waiting drafts
        self._waiting: list[_Waiting] = []
        # For names of files, unique over all runs. A map, not a generator: several threads take from it.
        self._unique_names = map(f"{secrets.token_hex(8)}-{{:x}}".format, itertools.count())
        self._wholes_durable = False  # True once the entry of the folder STORED survives a power cut
        self._clips = ClipIndex(recordings_ns=recordings_ns)
        self._opened = asyncio.Event()
        self._partials: dict[str, int] = {}  # unfinished uploads → time of their last growth, on `clock`
        self.failing = Condition(logger, begin=logging.ERROR, first_only=True)  # clips cannot be stored
        self.removed = 0  # clips removed by age and by size

    # Called on the event loop

    async def open(self) -> None:
        """Load the descriptions of all clips; if that fails, no clip is known, and `failing.why` says why."""
        try:
            await self._run(self._load)
        except OSError as error:
            self._unread = f"clips cannot be read: {error.strerror or error}"
            self._note_failure(self._unread)
        self._opened.set()

    async def run(self) -> None:
        """Load the clips, then remove those that are too old or too many, until cancelled."""
        if not self._opened.is_set():
            await self.open()
        while True:
            await self.prune()
            await asyncio.sleep(PRUNE_SECONDS)

    async def prune(self) -> None:
        """Remove clips that are too old or too many."""
        try:
            await self._run(self._prune)
        except OSError as error:
            logger.warning("old clips: cannot be removed now (%s)", error)

    async def close(self) -> None:
        """Finish the running calls, but wait at most CLOSE_SECONDS: unfinished ones are not acknowledged."""
        last = asyncio.wrap_future(self._thread.submit(int))  # queued behind everything else
        await asyncio.wait(set[asyncio.Future[Any]]({*self._storing, last}), timeout=CLOSE_SECONDS)
        for executor in (self._thread, self._drafting):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def __len__(self) -> int:
        return len(self._clips)

    @property
    def size(self) -> int:
        """The size of all contents, in bytes."""
        return self._clips.bytes

    async def find(self, name: str) -> Clip | None:
        """The clip whose SHA-256 is `name` or, if that is unique, starts with `name` of at least 8 digits.

        Raises ClipsUnreadError if the clip may be among those that are not read.
        """
        index = await self._loaded()
        if clip := index.get(name):
            return clip
        matches = index.with_prefix(name) if 8 <= len(name) < 64 else []
        if not matches and self._unread:
            raise ClipsUnreadError(self._unread)
        return matches[0] if len(matches) == 1 else None

    async def of_episodes(self, episodes: Iterable[str]) -> list[Clip]:
        """The clips that belong to `episodes`, newest first. Raises ClipsUnreadError while they are being read."""
        return (await self._loaded()).of_episodes(episodes)

    async def between(self, from_ns: int, until_ns: int) -> list[Clip]:
        """The clips that overlap the time from `from_ns` to before `until_ns`, newest first.

        Raises ClipsUnreadError while they are being read.
        """
        return (await self._loaded()).between(from_ns, until_ns)

    async def received_since(self, kept_ns: int) -> list[Clip]:
        """The clips that the hub received from `kept_ns` on, on the hub's timeline, oldest first.

        Raises ClipsUnreadError while they are being read.
        """
        return (await self._loaded()).received_since(kept_ns)

    async def newest(self, limit: int) -> list[Clip]:
        """The newest `limit` clips. Raises ClipsUnreadError while they are being read."""
        return (await self._loaded()).newest(limit)

    async def _loaded(self) -> ClipIndex:
        """Wait for the descriptions of all clips; ClipsUnreadError after `loading_seconds`."""
        try:
            async with asyncio.timeout(self._loading_seconds):
                await self._opened.wait()
        except TimeoutError:
            raise ClipsUnreadError("the hub still reads its clips. Try again in a few seconds.") from None
        return self._clips

    def path(self, clip: Clip) -> Path:
        """The file with the clip's content."""
        if place := self._clips.place(clip.sha256):
            return self._wholes / place.name
        return self._folder / clip.sha256[:2] / f"{clip.sha256}.{SUFFIXES[clip.media]}"

    async def upload_progress(self, clip: Clip) -> tuple[int, bool]:
        """The number of stored bytes of `clip`, and True if it is complete. Raises ClipRefusedError, NoRoomError."""
        _check(clip)
        await self._opened.wait()
        if self._clips.has_clip(clip.sha256):
            return clip.bytes, True
        return await self._guarded(partial(self._uploaded_bytes, clip)), False

    async def write(self, clip: Clip, offset: int, data: Buffer) -> None:
        """Append `data` at `offset`. Raises NoRoomError, or ClipRefusedError if the content does not end there."""
        await self._guarded(partial(self._append, clip, offset, data))

    async def complete(self, clip: Clip) -> None:
        """Verify the written content and store it; ClipRefusedError if it has another SHA-256."""
        await self._guarded(partial(self._complete, clip))
        self.failing.clear(WRITABLE)  # only a complete clip proves that the disk works

    async def store(self, items: Sequence[tuple[Clip, Buffer]]) -> list[Answer]:
        """Store whole clips, durable on return: for each, why it is not stored, or None.

        Contents of several callers are written together, after the store is open. NoRoomError if nothing can be
        written. If the caller is cancelled, storing continues and still reads the contents.
        """
        await self._opened.wait()
        size = sum(len(data) for _, data in items)
        if self._storing and self._storing_bytes + size > STORING_BYTES:
            raise self._failed(NoRoomError(f"{self._storing_bytes >> 20} MB of clips wait for the hub's disk"))
        self._storing_bytes += size
        task = start_task(self._store(items), name="clips-store")
        self._storing.add(task)
        task.add_done_callback(partial(self._release, size))
        answers = await asyncio.shield(task)
        if isinstance(answers, NoRoomError):
            raise answers
        return answers

    def _release(self, size: int, task: "asyncio.Task[list[Answer] | NoRoomError]") -> None:
        self._storing.discard(task)
        self._storing_bytes -= size

    async def _store(self, items: Sequence[tuple[Clip, Buffer]]) -> list[Answer] | NoRoomError:
        """Store whole clips; returns a NoRoomError instead of raising it, because the caller may be gone."""
        shares = min(SYNCING, len(items))
        loop = asyncio.get_running_loop()
        work = (partial(self._write_drafts, items[number::shares]) for number in range(shares))
        written = await asyncio.gather(
            *(loop.run_in_executor(self._drafting, share) for share in work), return_exceptions=True
        )
        results = [result for share in written if not isinstance(share, BaseException) for result in share]
        mine = _Waiting([result for result in results if isinstance(result, _Draft)])
        for share in written:
            if isinstance(share, BaseException):
                await self._run(partial(self._discard_drafts, mine.drafts))
                return self._failed(share)
        if mine.drafts:
            await self._describe_waiting(mine)
        if mine.failure is not None:
            return self._failed(mine.failure)
        answers: list[Answer] = [None] * len(items)
        for number, share in enumerate(written):
            assert not isinstance(share, BaseException)
            answers[number::shares] = [None if isinstance(result, _Draft) else result for result in share]
        if no_room := next((answer for answer in answers if isinstance(answer, NoRoomError)), None):
            self._failed(no_room)
        elif mine.drafts:
            self.failing.clear(WRITABLE)
        return answers

    async def _describe_waiting(self, mine: _Waiting) -> None:
        """Describe all waiting drafts in one file, `mine` among them, unless another caller has done so."""
        self._waiting.append(mine)
        async with self._turn:
            if mine.done:
                return
            batch, self._waiting = self._waiting, []
            drafts = [draft for waiting in batch for draft in waiting.drafts]
            failure: BaseException | None = NoRoomError("clips could not be stored: the hub stops")
            try:
                await self._run(partial(self._describe_together, drafts))
                failure = None
            except Exception as error:
                failure = error
            finally:
                for waiting in batch:
                    waiting.done, waiting.failure = True, failure

    async def _guarded(self, work: Callable[[], R]) -> R:
        try:
            return await self._run(work)
        except NoRoomError as error:
            raise self._failed(error) from None
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> NoRoomError:
        """Note an error of the disk in `failing` and return it as a NoRoomError; raises any other error."""
        if isinstance(error, OSError):
            error = NoRoomError(f"clips cannot be written: {error.strerror or error}")
        if not isinstance(error, NoRoomError):
            raise error
        self._note_failure(str(error))
        return error

    def _note_failure(self, why: str) -> None:
        self.failing.fail(why, "%s; shards send their clips again later, alarms are not affected", why)

    # Called on the thread

    def _load(self) -> None:
        self._make_folders()
        unread = False
        for path in self._folder.glob("??/*.json"):
            try:
                clip = _parsed(path.read_bytes())
            except OSError as error:
                logger.warning("%s cannot be read, and its clip is not shown: %s", path, error.strerror or error)
                self._unread = f"{path.name} cannot be read: {error.strerror or error}"
                unread = True
                continue
            if clip is not None and clip.sha256 == path.stem and clip.media not in SUFFIXES:
                logger.warning(UNKNOWN, path)
                unread = True
            elif clip is not None and clip.sha256 == path.stem and self.path(clip).is_file():
                self._register(clip)
            else:
                _unlink(path)
        for path in () if unread else self._folder.glob("??/*"):
            if not self._clips.has_clip(path.stem):
                _unlink(path)
        self._load_stored()
        for path in self._partial.iterdir():
            if DIGEST.fullmatch(path.name):
                self._partials[path.name] = self._clock()
            else:  # a draft of a clip that was never acknowledged
                _unlink(path)

    def _make_folders(self) -> None:
        """Create the folders, also if a person removed them while the hub runs."""
        for folder in (self._partial, self._wholes):
            folder.mkdir(parents=True, exist_ok=True)

    def _load_stored(self) -> None:
        unread = False
        for path in self._wholes.glob(f"*{DESCRIBED}"):
            try:
                lines = path.read_bytes().splitlines()
            except OSError as error:
                logger.warning("%s cannot be read, and its clips are not shown: %s", path, error.strerror or error)
                self._unread = f"{path.name} cannot be read: {error.strerror or error}"
                unread = True
                continue
            batch = Batch(path.name)
            if unknown := [line for line in lines if not self._load_line(line, batch)]:
                logger.warning(UNKNOWN, path)
                unread = True
            if not batch.count and not unknown:
                _unlink(path)
        names = self._clips.file_names()
        for path in () if unread else self._wholes.iterdir():
            if path.suffix != DESCRIBED and path.name not in names:
                _unlink(path)

    def _load_line(self, line: bytes, batch: Batch) -> bool:
        """Register the clip that `line` describes, if it is valid; False if only a newer hub knows its kind."""
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
        if known := self._clips.get(clip.sha256):  # described twice: a power cut undid the removal of one of them
            if known.kept_ns >= clip.kept_ns:
                return True
            self._remove(known)
        self._register(clip, place)
        return True

    def _register(self, clip: Clip, place: Place | None = None) -> None:
        if place is not None:
            place.batch.count += 1
        clip.kept_ns = clip.kept_ns or min(clip.until_ns, self._clock())
        self._clips.add(clip, place)

    def _uploaded_bytes(self, clip: Clip) -> int:
        """The number of bytes of `clip` on the disk; NoRoomError if there is no room for all of it."""
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
            raise NoRoomError(f"no clip can be stored: less than {FREE_BYTES >> 20} MB are free on the hub's disk")

    def _append(self, clip: Clip, offset: int, data: Buffer) -> None:
        if self._clips.has_clip(clip.sha256):
            return  # another shard has delivered it completely
        self._check_room(len(data))
        if offset != self._partial_size(clip.sha256) or offset + len(data) > clip.bytes:
            raise ClipRefusedError(
                f"offset {offset}: the hub has {self._partial_size(clip.sha256)} of {clip.bytes} bytes"
            )
        with open_appending(self._partial / clip.sha256) as file:
            file.write(data)
        self._partials[clip.sha256] = self._clock()

    def _complete(self, clip: Clip) -> None:
        if self._clips.has_clip(clip.sha256):
            return
        draft = self._partial / clip.sha256
        digest = sha256_of(draft)
        if digest != clip.sha256:
            self._abandon(clip.sha256)
            raise ClipRefusedError(f"the received content has the SHA-256 {digest[:12]}…, not {clip.sha256[:12]}…")
        path = self.path(clip)
        path.parent.mkdir(exist_ok=True)
        sync_file(draft)
        draft.replace(path)
        self._partials.pop(clip.sha256, None)
        stored = self._stamped(clip)
        write_whole(path.with_suffix(".json"), describe(stored))
        sync_folder(self._folder)
        self._register(stored)
        self._prune()

    def _stamped(self, clip: Clip) -> Clip:
        """A copy of `clip` with the current time as the time of storing."""
        stamped = Clip()
        stamped.CopyFrom(clip)
        stamped.kept_ns = self._clock()
        return stamped

    def _describe_together(self, drafts: Sequence[_Draft]) -> None:
        """Describe `drafts` in one new file, durably, which makes them clips; discards duplicates."""
        new: dict[str, _Draft] = {}
        for draft in drafts:
            if self._clips.has_clip(draft.clip.sha256) or draft.clip.sha256 in new:
                _unlink(draft.path)
            else:
                new[draft.clip.sha256] = draft
        if not new:
            return
        batch = Batch(f"{next(self._unique_names)}{DESCRIBED}")
        path = self._wholes / batch.name
        lines = [b"%s %s\n" % (draft.path.name.encode(), describe(draft.clip)) for draft in new.values()]
        try:
            with _NewFiles() as files:
                files.add(path, b"".join(lines))
            sync_folder(self._wholes)
            if not self._wholes_durable:
                sync_folder(self._folder)
                self._wholes_durable = True
        except OSError:
            self._discard_drafts([*drafts, _Draft(Clip(), path)])
            raise
        for name, draft in new.items():
            if name in self._partials:
                self._abandon(name)  # an unfinished upload of the same clip
            self._register(draft.clip, Place(draft.path.name, batch))
        if self.size > self._capacity:
            self._prune()

    def _discard_drafts(self, drafts: Iterable[_Draft]) -> None:
        _unlink_drafts(drafts)
        self._wholes_durable = False
        with contextlib.suppress(OSError):
            self._make_folders()

    # Called on several threads

    def _write_drafts(self, items: Sequence[tuple[Clip, Buffer]]) -> "list[_Draft | Answer]":
        """Check contents and write them durably; for each its draft, why it is refused, or None if it is stored."""
        results = list[_Draft | Answer]()
        try:
            with _NewFiles() as files:
                for clip, data in items:
                    try:
                        draft = self._checked_draft(clip, data)
                    except (ClipRefusedError, NoRoomError) as error:
                        results.append(error)
                        continue
                    results.append(draft)
                    if draft is not None:
                        files.add(draft.path, data)
        except BaseException:
            _unlink_drafts(result for result in results if isinstance(result, _Draft))
            raise
        return results

    def _checked_draft(self, clip: Clip, data: Buffer) -> _Draft | None:
        _check(clip)
        if self._clips.has_clip(clip.sha256):
            return None
        self._check_room(len(data))
        if hashlib.sha256(data).hexdigest() != clip.sha256:
            raise ClipRefusedError(f"the received content has another SHA-256 than {clip.sha256[:12]}…")
        name = f"{clip.sha256}-{next(self._unique_names)}.{SUFFIXES[clip.media]}"
        return _Draft(self._stamped(clip), self._wholes / name)

    # Called on the one thread again

    def _prune(self) -> None:
        now = self._clock()
        for clip in self._clips.expired(now):
            self._remove(clip)
        # Unfinished uploads take room too: those that stopped growing first are removed first.
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
            place.batch.count -= 1
            if not place.batch.count:
                (self._wholes / place.batch.name).unlink(missing_ok=True)


def _unlink_drafts(drafts: Iterable[_Draft]) -> None:
    for draft in drafts:
        _unlink(draft.path)


def _unlink(path: Path) -> None:
    """Remove a useless file if possible; otherwise the hub tries again at its next start."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


class _NewFiles:
    """New files that are durable when the block ends; OSError if one cannot be written."""

    def __init__(self) -> None:
        self._paths = list[Path]()

    def add(self, path: Path, data: Buffer) -> None:
        write_new(path, data, 0o666)
        self._paths.append(path)

    def __enter__(self) -> "_NewFiles":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for path in self._paths if kind is None else ():
            sync_file(path)


def _check(clip: Clip) -> None:
    """Raise ClipRefusedError if `clip` is not a valid description."""
    if not DIGEST.fullmatch(clip.sha256):
        raise ClipRefusedError(f'sha256: "{clip.sha256[:80]}" is not 64 hexadecimal digits')
    if clip.media not in SUFFIXES:
        raise ClipRefusedError(f"media: {clip.media} is neither a clip nor a still, video or lines")
    if not 0 < clip.bytes <= CLIP_BYTES:
        raise ClipRefusedError(f"bytes: {clip.bytes} is not between 1 and {CLIP_BYTES}")


def describe(clip: Clip) -> bytes:
    """Encode `clip` as protobuf's JSON; the library would take longer for it than for hashing a picture."""
    values = dict[str, str | int]()
    for field, value in clip.ListFields():
        name, enum_names, is_long = _FIELDS[field.number]
        values[name] = enum_names.get(value, value) if enum_names else str(value) if is_long else value
    return json.dumps(values).encode()


# By field number: name in JSON; names of the enum's values; True if JSON has a string because it may exceed 2^53.
_FIELDS = {
    field.number: (
        field.json_name,
        {} if field.enum_type is None else {value.number: value.name for value in field.enum_type.values},
        field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64),
    )
    for field in Clip.DESCRIPTOR.fields
}


def _parsed(description: bytes) -> Clip | None:
    try:
        return json_format.Parse(description, Clip(), ignore_unknown_fields=True)
    except (ValueError, json_format.ParseError):
        return None
