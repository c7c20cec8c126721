"""Routes of the set-up: what can be edited, trying and finding cameras, changes of devices, and undo."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from embereye.addons.setup.editing import KINDS, Action, Change, EditError
from embereye.addons.setup.editor import Edited, Editor, command
from embereye.addons.setup.trial import TrialError, Trials
from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import StoreFailingError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import (
    CHANGES,
    JPEG,
    NOTHING,
    WORD,
    Json,
    answer,
    file_of,
    json_body,
    list_of,
    record,
    whole,
)
from embereye.hub.http.parameters import read_json, text_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
FLEET = re.compile(rf"{NAME}/({'|'.join(KINDS.values())})/{NAME}")
FLAG: Json = {"type": "boolean"}
ADDRESS: Json = {"type": "string", "minLength": 1, "maxLength": 1024}
LOGIN: Json = {"type": "string", "maxLength": 1024}
NOTES = list_of(WORD)
DIFF: Json = {"type": "string", "description": "as `diff --unified` prints it"}
STREAM = record(
    {
        "source": WORD, "codec": WORD, "width": whole(), "height": whole(),
        "framesPerSecond": {"type": "number"}, "kilobitsPerSecond": {"type": "number"},
    }
)  # fmt: skip
TRIED = record(
    {"problem": {"type": "string", "description": "why it does not play; empty: it does"}},
    host=WORD, maker=WORD, guarded=FLAG, streams=list_of(STREAM), notes=NOTES,
    picture={**FLAG, "description": "true: it can be fetched"},
)  # fmt: skip
FLEETS = list_of(record({"fleet": WORD, "file": WORD, "writable": FLAG, "mqtt": NOTHING, "devices": list_of(NOTHING)}))
CHANGED: dict[str, Json] = {
    "fleet": {"type": "string", "pattern": f"^{FLEET.pattern}$"},
    "action": {"type": "string", "enum": list(Action)},
    "device": {"type": "string", "minLength": 1},
}
FIELDS: dict[str, Json] = {
    "fields": {
        "type": "object", "properties": {"id": False}, "description": "of the device, as in manifests; null removes one"
    }
}  # fmt: skip
LOGIN_OF = record({"name": {**WORD, "pattern": f"^{NAME}$"}, "user": WORD, "password": WORD})
MORE: dict[str, Json] = {
    **FIELDS,
    "mqtt": {**NOTHING, "description": "fields of the fleet's `spec.mqtt` to change; null removes one"},
    "login": {**LOGIN_OF, "description": "stored under its name, never in the manifest"},
}
CHANGE = record(CHANGED, **MORE)
READING = record({"quantity": WORD, "value": {"type": "number"}, "unit": WORD})
READ = record(
    {
        "problem": {"type": "string", "description": "why there is no reading; empty: there is"},
        "readings": list_of(READING),
    }
)
EDITED = record({"applied": FLAG}, file=WORD, diff=DIFF, about=WORD, command=WORD)


class SetupRoutes:
    """Serves the set-up."""

    def __init__(self, editor: Editor, hub: Hub) -> None:
        self._editor = editor
        self._hub = hub
        self._trials = Trials()
        self._turn = asyncio.Lock()  # of changes

    @Route(
        "GET", "/v1/setup", Role.ADMIN, "The manifests that the console can edit, and the change that can be undone",
        {200: answer("none in a cluster", record({"editable": FLAG, "fleets": FLEETS}, undo=WORD, undoDiff=DIFF))},
        fails=(409,),
    )  # fmt: skip
    async def _show(self, _: web.Request) -> web.Response:
        fleets = await self._edit(self._editor.fleets)
        last = await self._edit(self._editor.last)
        undo = {"undo": last[0], "undoDiff": last[1].diff} if last else {}
        return web.json_response({"editable": self._editor.is_there, "fleets": fleets, **undo})

    @Route(
        "POST", "/v1/setup/try", Role.ADMIN, "Try the camera at an address: its streams and a picture",
        {200: answer("what was found, or why not", TRIED)},
        fails=(*CHANGES, 409),
        body=json_body(record({"address": ADDRESS}, user=LOGIN, password=LOGIN)),
    )  # fmt: skip
    async def _try(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        address, user, password = (text_of(body, name) for name in ("address", "user", "password"))
        if not address:
            raise Refused(400, "address: is missing")
        self._refuse_trial()
        try:
            if not all(text.isprintable() for text in (address, user, password)):
                raise TrialError("the address, the user or the password has control characters")
            result = await self._trials.probe(address, user, password)
        except TrialError as error:
            result = {"problem": str(error)}
        return web.json_response({"problem": "", **result})

    @Route(
        "POST", "/v1/setup/read", Role.ADMIN, "Read a sensor as a change would declare it, without writing the change",
        {200: answer("its newest reading, or why there is none", READ)},
        fails=(*CHANGES, 409),
        body=json_body(CHANGE),
    )  # fmt: skip
    async def _read(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        change, login = _read_change(body), _read_login(body)
        self._refuse_trial("embereye sensor try")
        async with self._turn:
            edited = await self._edit(lambda: self._editor.preview(change))
            manifests = await self._edit(lambda: self._editor.manifests(edited))
        try:
            result = await self._trials.read(manifests, change.device, login)
        except TrialError as error:
            result = {"problem": str(error), "readings": []}
        return web.json_response({"problem": "", **result})

    @Route(
        "GET", "/v1/setup/picture.jpg", Role.ADMIN, "The picture of the camera that was tried last",
        {200: file_of("the picture", JPEG)},
        fails=[404],
    )  # fmt: skip
    async def _picture(self, _: web.Request) -> web.Response:
        if not self._trials.picture:
            raise Refused(404, "no camera was tried, or it had no picture")
        headers = {"Cache-Control": "no-store"}
        return web.Response(body=self._trials.picture, content_type=JPEG, headers=headers)

    @Route(
        "POST", "/v1/setup/search", Role.ADMIN, "Search this machine's network for ONVIF cameras",
        {
            200: answer(
                "those that answered",
                record({"cameras": list_of(record({"id": WORD, "location": WORD, "address": WORD})), "notes": NOTES}),
            )
        },
        fails=(*CHANGES, 409),
        body=json_body(NOTHING),
    )  # fmt: skip
    async def _search(self, request: web.Request) -> web.Response:
        await read_json(request)
        self._refuse_trial()
        return web.json_response(await self._trials.search())

    @Route(
        "POST", "/v1/setup/changes", Role.ADMIN, "Show or apply a change of one device in its manifest",
        {200: answer("the difference, or in a cluster the command", EDITED)},
        fails=(*CHANGES, 409),
        body=json_body(record(CHANGED, **MORE, apply=FLAG)),
    )  # fmt: skip
    async def _change(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        change, apply, login = _read_change(body), body.get("apply", False), _read_login(body)
        if not isinstance(apply, bool):
            raise Refused(400, "apply: is neither true nor false")
        if not self._editor.is_there:
            return web.json_response({"applied": False, "command": await self._edit(lambda: command(change, login))})
        async with self._turn:
            edited = await self._edit(lambda: self._editor.preview(change))
            about = f"{change.action} {change.device} in {change.fleet}"
            if apply:
                if login:
                    await self._edit(lambda: _store_login(login))
                await self._edit(lambda: self._editor.apply(edited, about))
                await self._note(request[PRINCIPAL], about, edited)
        return web.json_response({"applied": apply, "file": str(edited.path), "diff": edited.diff, "about": about})

    @Route(
        "POST", "/v1/setup/undo", Role.ADMIN, "Undo the latest change of a manifest",
        {200: answer("the difference", EDITED)},
        fails=(*CHANGES, 409),
        body=json_body(NOTHING),
    )  # fmt: skip
    async def _undo(self, request: web.Request) -> web.Response:
        await read_json(request)
        async with self._turn:
            last = await self._edit(self._editor.last)
            about = await self._edit(self._editor.undo)
            assert last is not None
            await self._note(request[PRINCIPAL], f"undo: {about}", last[1])
        return web.json_response({"applied": True, "file": str(last[1].path), "diff": last[1].diff, "about": about})

    def _refuse_trial(self, instead: str = "embereye camera probe") -> None:
        if not self._editor.is_there:
            raise Refused(409, f"devices are tried where `embereye up` runs: use `{instead}`")
        if self._trials.is_busy:
            raise Refused(409, "another device is being tried: wait until that is done")

    async def _edit(self, step: Callable[[], Result]) -> Result:
        """Run `step`, which reads and writes files, in a thread; Refused with its reason."""
        try:
            return await asyncio.to_thread(step)
        except (EditError, UserError) as error:
            raise Refused(409, str(error)) from error

    async def _note(self, who: Principal, about: str, edited: Edited) -> None:
        """Add an entry to the audit trail; the change stays if nothing can be stored."""
        try:
            await self._hub.committer.commit(lambda draft: add_entry(draft, who, "set up", about, edited.diff[:2000]))
        except StoreFailingError as error:
            logger.warning("set up: %s by %s is not in the audit trail: %s", about, who.name, error)


def _read_change(body: dict[str, Any]) -> Change:
    """The change in a request; Refused names what is wrong with its form."""
    fleet, device, action = (text_of(body, name) for name in ("fleet", "device", "action"))
    if not FLEET.fullmatch(fleet):
        raise Refused(400, f'fleet: "{fleet[:80]}" is not of the form NAMESPACE/cameras/NAME')
    if action not in list(Action):
        raise Refused(400, f'action: "{action[:80]}" is not one of {", ".join(Action)}')
    fields = body.get("fields", {})
    if not device or not isinstance(fields, dict) or "id" in fields:
        raise Refused(400, "device: is missing, or fields: is not an object of fields other than the id")
    mqtt = body.get("mqtt", {})
    if not isinstance(mqtt, dict):
        raise Refused(400, "mqtt: is not an object of fields of a SensorFleet's spec.mqtt")
    if mqtt and "/sensors/" not in fleet:
        raise Refused(409, f"mqtt: {fleet[:80]} is not a SensorFleet, so it has no spec.mqtt")
    return Change(fleet, Action(action), device, fields, mqtt)


def _read_login(body: dict[str, Any]) -> dict[str, str]:
    """The name, user and password in a request, or nothing; Refused."""
    if "login" not in body:
        return {}
    login, names = body["login"], ("name", "user", "password")
    if not isinstance(login, dict) or not set(names) <= set(login):
        raise Refused(400, "login: is not an object with name, user and password")
    if not re.fullmatch(NAME, text_of(login, "name")):
        raise Refused(
            400, f'login: "{text_of(login, "name")[:80]}" is not a name: use lower-case letters, digits and -'
        )
    return {name: text_of(login, name) for name in names}


def _store_login(login: dict[str, str]) -> None:
    """Store user and password under their name; UserError."""
    from embereye_cli.devices.credentials import default_folder, store

    store(default_folder() / login["name"], login["user"], login["password"])
