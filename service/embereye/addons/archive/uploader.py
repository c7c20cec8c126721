"""The uploader: sends new events, alarms' pictures and clips to the bucket, oldest first.

Events go as JSON lines, as soon as there are some; the pictures of their signs follow; then clips in the order in which
the hub received them. After each upload the position becomes durable together with an entry in the audit trail that has
the SHA-256. After a failure or a restart it continues from there: an object may be sent twice, under the same name and
with the same content, but none is skipped, unless the hub has deleted it for its age.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from google.protobuf import json_format

from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.places import Place, PlaceError, open_place
from embereye.addons.archive.tables import ARCHIVED
from embereye.hub.access.keeper import add_entry
from embereye.hub.clips.store import SUFFIXES, ClipStore, ClipsUnreadError
from embereye.hub.committer import Draft, StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.transaction import Rows
from embereye.levels import Kind
from embereye.process.condition import Condition
from embereye.process.tasks import first_of
from embereye.process.timing.backoff import Backoff
from embereye.units import MINUTE, SECOND, utc
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.clips_pb2 import Clip

logger = logging.getLogger(__name__)
WHO = Principal("archive", Role.VIEWER, "")  # in the audit trail
EVENTS, CLIPS = "events", "clips"  # positions: a cursor, and a time on the hub's timeline
DESCRIPTION = "clip"  # metadata of a clip: its description, by which `embereye hub recover` restores it
BATCH = 256  # events in one object
CLIP_BATCH = 32  # clips between two looks at the events
PERIOD_SECONDS = 2.0  # between two looks for new clips
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0  # after a failure
# Clips whose descriptions became visible this much later than the newest uploaded one are still found.
MARGIN_NS = MINUTE
REMEMBERED = 10_000  # uploaded clips and pictures
MEDIA = {
    Clip.MEDIA_CLIP: "video/matroska", Clip.MEDIA_STILL: "image/jpeg", Clip.MEDIA_VIDEO: "video/mp4",
    Clip.MEDIA_LINES: "application/jsonl",
}  # fmt: skip


class Uploader:
    """Uploads to one bucket. `run` it until cancelled."""

    def __init__(
        self, hub: Hub, clips: ClipStore, progress: Rows[str, int], options: ArchiveOptions,
        *, open_bucket: Callable[[ArchiveOptions], Place] = open_place,
    ) -> None:  # fmt: skip
        self.options = options
        self._hub = hub
        self._clips = clips
        self._progress = progress
        self._open_bucket = open_bucket
        self._bucket: Place | None = None
        self._done: OrderedDict[str, None] = OrderedDict()  # uploaded in this run: clips, and pictures with their hash
        self.failing = Condition(logger, begin=logging.ERROR)
        self.uploaded = 0  # objects
        self.uploaded_bytes = 0
        self.missing = 0  # clips that were deleted before they were uploaded
        self.waiting_clips = 0
        self._behind_since_ns = 0  # on the hub's timeline: since when something waits; 0: nothing does

    @property
    def lag_ns(self) -> int:
        """The time for which the oldest object has waited; 0 if none waits."""
        return max(0, self._hub.timeline.now_ns() - self._behind_since_ns) if self._behind_since_ns else 0

    @property
    def waiting_events(self) -> int:
        """The number of events that are not in the bucket."""
        return max(0, self._hub.feed.latest - self._progress.get(EVENTS, self._hub.feed.latest))

    async def run(self) -> None:
        """Upload until cancelled."""
        backoff = Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS)
        while True:
            try:
                await self._begin()
                progressed = await self._upload_events()
                progressed = await self._upload_clips() or progressed
            except (PlaceError, StoreError, StoreFailingError, ClipsUnreadError, OSError) as error:
                self._bucket = None  # read the keys again
                why = str(error)
                self.failing.fail(why, "archive %s: %s; trying again", self.options.name, why)
                await asyncio.sleep(backoff.next())
                continue
            self.failing.clear("archive %s: evidence is uploaded again", self.options.name)
            backoff.reset()
            if not progressed:
                self._behind_since_ns = 0
                await first_of(self._hub.feed.wait_for_events(), timeout=PERIOD_SECONDS)

    async def _begin(self) -> None:
        """Start a new archive with what happens from now on, and open the bucket."""
        if EVENTS not in self._progress:
            start = {EVENTS: self._hub.feed.latest, CLIPS: self._hub.timeline.now_ns() - MARGIN_NS}
            await self._store(start, [])
        if self._bucket is None:
            self._bucket = self._open_bucket(self.options)

    async def _upload_events(self) -> bool:
        """Upload the next events and their pictures; False if there are none."""
        cursor = self._progress[EVENTS]
        if self._hub.feed.latest <= cursor:
            return False
        events = await self._hub.history.events(cursor, BATCH)
        if not events:  # deleted for their age
            await self._store({EVENTS: self._hub.feed.latest}, [])
            return True
        self._behind_since_ns = events[0].time_ns - self._hub.timeline.stepped_ns()
        lines = "".join(json_format.MessageToJson(event, indent=None) + "\n" for event in events).encode()
        day = time.strftime("%Y/%m/%d", time.gmtime(events[0].time_ns / SECOND))
        name = f"events/{day}/{events[0].cursor:012d}.jsonl"
        uploaded = [await self._put(name, lines, "application/jsonl", {"events": str(len(events))})]
        for event in events:
            uploaded += await self._upload_pictures(event)
        await self._store({EVENTS: events[-1].cursor}, uploaded)
        return True

    async def _upload_pictures(self, event: AlarmEvent) -> list[tuple[str, str]]:
        uploaded = []
        if event.alarm and event.type in (AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE):
            for item in event.contributions:
                picture = await self._hub.history.picture(event.alarm, item.device, item.kind)
                word = Kind(item.kind).word
                name = f"alarms/{event.alarm}/{_plain(item.device)}-{word}.jpg"
                if not picture or (key := f"{name} {hashlib.sha256(picture).hexdigest()}") in self._done:
                    continue
                about = {"alarm": event.alarm, "zone": f"{event.namespace}/{event.zone}", "device": item.device}
                uploaded.append(await self._put(name, picture, "image/jpeg", about))
                self._remember(key)
        return uploaded

    async def _upload_clips(self) -> bool:
        """Upload the next clips; False if there are none."""
        position = self._progress[CLIPS]
        waiting = [
            clip for clip in await self._clips.received_since(position - MARGIN_NS) if clip.sha256 not in self._done
        ]
        self.waiting_clips = len(waiting)
        for clip in waiting[:CLIP_BATCH]:
            if clip.kept_ns > position:
                self._behind_since_ns = clip.kept_ns
            uploaded = await self._upload_clip(clip)
            position = max(position, clip.kept_ns)
            await self._store({CLIPS: position}, uploaded)
            self._remember(clip.sha256)
            self.waiting_clips -= 1
        return bool(waiting)

    async def _upload_clip(self, clip: Clip) -> list[tuple[str, str]]:
        path = self._clips.path(clip)
        if not await asyncio.to_thread(path.is_file):
            self.missing += 1
            return []
        name, about = clip_object(clip)
        return [await self._put(name, path, MEDIA[clip.media], about, clip.sha256)]

    async def _put(
        self, name: str, content: bytes | Path, media: str, about: dict[str, str], sha256: str = ""
    ) -> tuple[str, str]:
        """Upload an object; returns its name and its SHA-256."""
        assert self._bucket is not None
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        digest = sha256 or (hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else "")
        await self._bucket.put(name, content, media, {**about, "sha256": digest})
        self.uploaded += 1
        self.uploaded_bytes += size
        return name, digest

    async def _store(self, positions: dict[str, int], uploaded: list[tuple[str, str]]) -> None:
        """Make positions, and entries of the audit trail about uploaded objects, durable."""
        await store_progress(self._hub, self._progress, positions, self.options.name, uploaded)

    def _remember(self, key: str) -> None:
        self._done[key] = None
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)


def clip_object(clip: Clip) -> tuple[str, dict[str, str]]:
    """The name and the metadata, without its hash, of a clip's object."""
    day = time.strftime("%Y/%m/%d", time.gmtime(clip.from_ns / SECOND))
    namespace = clip.fleet.partition("/")[0]
    name = f"clips/{day}/{_plain(clip.zone)}-{_plain(clip.device)}-{clip.sha256}.{SUFFIXES[clip.media]}"
    about = {"zone": f"{namespace}/{clip.zone}", "device": clip.device, "fleet": clip.fleet,
             "episode": clip.episode, "from": utc(clip.from_ns), "until": utc(clip.until_ns),
             DESCRIPTION: json_format.MessageToJson(clip, indent=None)}  # fmt: skip
    return name, about


async def store_progress(
    hub: Hub, progress: Rows[str, int], positions: dict[str, int], bucket: str, uploaded: Iterable[tuple[str, str]]
) -> None:
    """Make positions, and entries of the audit trail about uploaded objects with their SHA-256, durable."""

    def step(draft: Draft) -> None:
        draft.transaction[ARCHIVED].update(positions)
        for name, digest in uploaded:
            add_entry(draft, WHO, "archive", f"{bucket}: {name}", f"SHA-256 {digest}")

    await hub.committer.commit(step)
    progress.update(positions)


def _plain(name: str) -> str:
    """`name` as a part of an object's name."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_" for sign in name)[:80] or "_"
