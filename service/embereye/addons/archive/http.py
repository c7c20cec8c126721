"""The hub's routes for backups that another program makes, such as the Job of a FleetBackup."""

import asyncio
import base64

from aiohttp import web
from google.protobuf import json_format

from embereye.addons.archive.backups import MEDIA
from embereye.addons.archive.copies import PIECE, HistoryCopies
from embereye.hub.access.keeper import add_entry
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import NOTHING, answer, file_of, list_of, query, record, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role

DIGEST = "Repr-Digest"  # RFC 9530
MAX_CLIPS = 1000  # in one list


class BackupRoutes:
    """Serves copies of the history, and the list of all clips."""

    def __init__(self, hub: Hub, clips: ClipStore, copies: HistoryCopies) -> None:
        self._hub = hub
        self._clips = clips
        self._copies = copies

    @Route(
        "GET", "/v1/backup/history", Role.ADMIN,
        "A copy of the history, of one moment, as a compressed SQLite database; its SHA-256 is in Repr-Digest",
        {200: file_of("the copy", MEDIA)},
        fails=(503,),
        head=False,
    )  # fmt: skip
    async def _history(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self._copies.packed() as (packed, digest):
                size, opened = packed.stat().st_size, packed.open("rb")  # a slow reader does not delay the next copy
        except OSError as error:
            raise Refused(503, f"the history cannot be copied: {error.strerror or error}") from error
        who = request[PRINCIPAL]
        with opened:
            detail = f"SHA-256 {digest}"
            await self._hub.committer.commit(lambda draft: add_entry(draft, who, "copy history", "", detail))
            value = base64.b64encode(bytes.fromhex(digest)).decode()
            response = web.StreamResponse(headers={DIGEST: f"sha-256=:{value}:", "Cache-Control": "no-store"})
            response.content_type, response.content_length = MEDIA, size
            await response.prepare(request)
            while piece := await asyncio.to_thread(opened.read, PIECE):
                await response.write(piece)
        return response

    @Route(
        "GET", "/v1/backup/clips", Role.ADMIN,
        f"Clips, stills and recordings in the order in which the hub received them, at most {MAX_CLIPS}",
        {200: answer("from `since` on", record({"clips": list_of(NOTHING)}))},
        takes=[query("since", whole(), "the `keptNs` of the last one of the list before; missing: from the first one")],
        fails=(400, 503),
    )  # fmt: skip
    async def _list(self, request: web.Request) -> web.Response:
        clips = await self._clips.received_since(number_of(request, "since", 0))
        described = [json_format.MessageToDict(clip) for clip in clips[:MAX_CLIPS]]
        return web.json_response({"clips": described})
