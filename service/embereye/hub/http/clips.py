"""Routes of an alarm's pictures and clips.

An alarm leads to its episodes in the database, and these lead to clips in the clip store's index. Contents are sent
from the disk. A clip is named by its digest, so its content never changes and browsers may cache it. Browsers cannot
play Motion JPEG in Matroska, so `replay` sends its frames instead.
"""

import asyncio
import time
from urllib.parse import quote

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.clips.store import SUFFIXES, ClipStore
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.devices import picture_response
from embereye.hub.http.openapi.parts import (
    JPEG,
    WORD,
    Json,
    answer,
    file_of,
    list_of,
    part,
    query,
    record,
    reference,
    whole,
)
from embereye.hub.http.parameters import number_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.replay import GONE, Replays, frame_at, replay
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role, Scope
from embereye.hub.tables.alarms import AlarmQuery
from embereye.v1.clips_pb2 import Clip
from embereye.zone.timeline import PastAlarm

MAX_CLIPS = 200  # in one list
CONTENT_TYPES = {
    Clip.MEDIA_CLIP: "video/matroska",
    Clip.MEDIA_STILL: JPEG,
    Clip.MEDIA_VIDEO: "video/mp4",
    Clip.MEDIA_LINES: "application/jsonl",
}
DIGEST, KIND = "[0-9a-f]{64}", "[0-9][0-9]?"
CLIP = f"/v1/clips/{{name:{DIGEST}}}"
NAME = part("name", {"type": "string", "pattern": f"^{DIGEST}$", "description": "SHA-256 of the content"})
PICTURE = record({"device": WORD, "url": WORD})
# The name of a clip is a digest of its content, so the content never changes. It may still be deleted for its age.
CACHED = {"Cache-Control": "private, max-age=3600"}


def listed_clip(clip: Clip) -> Json:
    """List a clip with the addresses of its content and of a form that browsers can show."""
    address = f"/v1/clips/{clip.sha256}.{SUFFIXES[clip.media]}"
    return {**json_format.MessageToDict(clip), "url": address, "view": address.replace(".mkv", ".mjpg")}


def is_clip_in(scope: Scope, clip: Clip) -> bool:
    """True if the zone of `clip` is in `scope`."""
    return scope.has_zone(clip.fleet.partition("/")[0], clip.zone)


async def find_alarm(hub: Hub, request: web.Request) -> PastAlarm:
    """Find the alarm that the path names; Refused if there is none in the caller's zones."""
    name = request.match_info["alarm"]
    for alarm in await hub.history.alarms(AlarmQuery(limit=1, alarm=name)):
        if request[PRINCIPAL].scope.has_zone(alarm.namespace, alarm.zone):
            return alarm
    raise Refused(404, f"there is no alarm {name}")


async def check_alarm(hub: Hub, request: web.Request) -> None:
    """Refuse if the caller is limited to zones, and the alarm that the path names is in none of them."""
    if request[PRINCIPAL].scope.is_limited:
        await find_alarm(hub, request)


class ClipRoutes:
    """Serves pictures and clips of alarms; without `clips`, there is no clip."""

    def __init__(self, hub: Hub, clips: ClipStore | None) -> None:
        self._hub = hub
        self._clips = clips
        self._replays = Replays()

    @Route(
        "GET", f"/v1/alarms/{{alarm}}/{{device}}/{{kind:{KIND}}}.jpg", Role.VIEWER,
        "A device's picture from when its sign joined an alarm",
        {200: file_of("the picture", JPEG)},
        takes=[
            part(
                "kind", {"type": "string", "pattern": f"^{KIND}$", "description": "1 heat, 2 smoke, 3 gas, 4 flame"}
            )
        ],
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _alarm_picture(self, request: web.Request) -> web.Response:
        await check_alarm(self._hub, request)
        names = request.match_info
        picture = await self._hub.history.picture(names["alarm"], names["device"], int(names["kind"]))
        return picture_response(picture or b"")

    @Route(
        "GET", "/v1/alarms/{alarm}/clips", Role.VIEWER,
        "Clips and pictures of an alarm, and sensors' recordings around it, at most 200 of each",
        {
            200: answer(
                "newest first, but pictures in the order in which they came",
                record(
                    {
                        "clips": list_of(reference("ListedClip")), "lines": list_of(reference("ListedClip")),
                        "pictures": list_of(PICTURE),
                    }
                ),
            )
        },
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _alarm_clips(self, request: web.Request) -> web.Response:
        await check_alarm(self._hub, request)
        alarm = request.match_info["alarm"]
        episodes, pictures = await self._hub.history.episodes(alarm), await self._hub.history.pictures(alarm, MAX_CLIPS)
        clips = await self._clips.of_episodes(episodes) if self._clips is not None else []
        shown = [clip for clip in clips if clip.media != Clip.MEDIA_LINES][:MAX_CLIPS]
        lines = [clip for clip in clips if clip.media == Clip.MEDIA_LINES][:MAX_CLIPS]
        return web.json_response(
            {
                "clips": [listed_clip(clip) for clip in shown], "lines": [listed_clip(clip) for clip in lines],
                "pictures": [_listed_picture(alarm, *picture) for picture in pictures],
            }
        )  # fmt: skip

    @Route(
        "GET", f"{CLIP}.{{form:mkv|jpg|mp4|jsonl}}", Role.VIEWER, "A clip, still or recording of a sensor",
        {
            200: file_of("all of it", *CONTENT_TYPES.values()),
            206: file_of("the requested Range", *CONTENT_TYPES.values()),
            304: answer("unchanged"),
            412: answer("If-Match does not match"),
            416: answer("there is no such Range"),
        },
        takes=[NAME],
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _clip(self, request: web.Request) -> web.StreamResponse:
        assert self._clips is not None
        clip = await self._find(request)
        path = self._clips.path(clip)
        if not await asyncio.to_thread(path.is_file):
            raise Refused(404, GONE)
        headers = {**CACHED, "Content-Type": CONTENT_TYPES[clip.media]}
        if clip.media != Clip.MEDIA_STILL:
            started = time.strftime("%Y%m%d-%H%M%S", time.gmtime(clip.from_ns / 1e9))
            name = f"{_plain(clip.device)}-{started}.{SUFFIXES[clip.media]}"
            headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return web.FileResponse(path, headers=headers)

    @Route(
        "GET", f"{CLIP}.mjpg", Role.VIEWER, "The frames of a Matroska clip at their pace, several times",
        {200: file_of("JPEG after JPEG", "multipart/x-mixed-replace")},
        takes=[NAME],
        fails=(404, 413, 503),
        head=False,
        scoped=True,
    )  # fmt: skip
    async def _replay(self, request: web.Request) -> web.StreamResponse:
        """Browsers cannot play Motion JPEG in Matroska."""
        assert self._clips is not None
        clip = await self._find_motion_jpeg(request)
        with self._replays.enter(request.remote or "", clip.bytes):
            return await replay(request, self._clips.path(clip))

    @Route(
        "GET", f"{CLIP}/frame.jpg", Role.VIEWER,
        "One frame of a Matroska clip: the last one taken at or before a time",
        {200: file_of("the picture", JPEG)},
        takes=[NAME, query("at", whole(), "nanoseconds since the Unix epoch; 0: the first frame")],
        fails=(400, 404, 413, 503),
        scoped=True,
    )  # fmt: skip
    async def _frame(self, request: web.Request) -> web.StreamResponse:
        assert self._clips is not None
        clip, at_ns = await self._find_motion_jpeg(request), number_of(request, "at", 0)
        with self._replays.enter(request.remote or "", clip.bytes):
            jpeg = await frame_at(self._clips.path(clip), at_ns)
        return web.Response(body=jpeg, content_type=JPEG, headers=CACHED)

    async def _find(self, request: web.Request) -> Clip:
        clip = await self._clips.find(request.match_info["name"]) if self._clips is not None else None
        if clip is not None and not is_clip_in(request[PRINCIPAL].scope, clip):
            clip = None
        if clip is None or request.match_info.get("form", SUFFIXES[clip.media]) != SUFFIXES[clip.media]:
            raise Refused(404, "there is no such clip: it is too old, or still at the shard that recorded it")
        return clip

    async def _find_motion_jpeg(self, request: web.Request) -> Clip:
        clip = await self._find(request)
        if clip.media != Clip.MEDIA_CLIP:
            raise Refused(404, "this clip is not Motion JPEG: show it directly")
        return clip


def _listed_picture(alarm: str, device: str, kind: int, time_ns: int) -> Json:
    """List a picture of an alarm; a later, more serious one has another address."""
    address = f"/v1/alarms/{quote(alarm, safe='')}/{quote(device, safe='')}/{kind}.jpg?at={time_ns}"
    return {"device": device, "url": address}


def _plain(name: str) -> str:
    """Make `name` safe as a part of a file's name."""
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in name)
