"""Routes of profiles: the declared ones, the zones' permits, and what people do with them."""

from collections.abc import Mapping

from aiohttp import web
from google.protobuf import json_format

from embereye.addons.profiles.keeper import Permit, Profiles
from embereye.addons.profiles.options import MAX_PERMIT_MINUTES, NORMAL, ProfileOptions
from embereye.hub.actions import check_action
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import (
    CHANGES,
    EVENT,
    NANOSECONDS,
    REASON,
    WHO,
    WORD,
    Json,
    answer,
    fields_of,
    json_body,
    list_of,
    record,
    reference,
    whole,
)
from embereye.hub.http.parameters import read_json, text_of, whole_of
from embereye.hub.http.route import Route
from embereye.hub.roles import Role
from embereye.hub.tables.zones import ZoneKey
from embereye.zone.profile import QUANTITIES

CONFIRMED = {200: answer("it is confirmed", record({}))}


class ProfileRoutes:
    """Serves profiles."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    @Route(
        "GET", "/v1/profiles", Role.VIEWER, "Declared profiles, permits, zones and what nobody confirmed",
        {200: answer("in the order of their declaration, and by zone", reference("Profiles"))},
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "profiles": [self._declared(options) for options in self._profiles.options.profiles.values()],
                "permits": [self._permit(key, permit) for key, permit in sorted(self._profiles.permits.items())],
                "zones": [self._zone(key) for key in self._profiles.zones()],
                "unconfirmed": self._profiles.unconfirmed(),
            }
        )

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/profile", Role.OPERATOR,
        "Give a zone a profile until an end; replaces its present permit", EVENT,
        fails=(*CHANGES, 404, 503),
        body=json_body(
            record(
                {
                    "profile": WORD, "reason": REASON,
                    "minutes": {"type": "integer", "minimum": 1, "maximum": MAX_PERMIT_MINUTES},
                },
                watchman={"type": "string", "maxLength": 200, "description": "who watches the work; some need one"},
                who=WHO,
            )
        ),
    )  # fmt: skip
    async def _begin(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        who, reason, profile, watchman = (text_of(body, name) for name in ("who", "reason", "profile", "watchman"))
        check_action(who, reason, "reason")
        check_action(watchman)
        event = await self._profiles.begin(
            request[PRINCIPAL], _key(request), profile, reason=reason, minutes=whole_of(body, "minutes"),
            watchman=watchman, who=who,
        )  # fmt: skip
        return web.json_response(json_format.MessageToDict(event))

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/profile/confirm", Role.OPERATOR, "Confirm a zone's permit", CONFIRMED,
        fails=(*CHANGES, 404, 503),
        body=json_body(record({}, who=WHO)),
    )  # fmt: skip
    async def _confirm(self, request: web.Request) -> web.Response:
        await self._profiles.confirm(request[PRINCIPAL], _key(request), await _who(request))
        return web.json_response({})

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/profile/end", Role.OPERATOR,
        "End a zone's permit, or dismiss that it ended unconfirmed",
        {200: answer("the zone has its normal profile", record({}))},
        fails=(*CHANGES, 404, 503),
        body=json_body(record({}, who=WHO)),
    )  # fmt: skip
    async def _end(self, request: web.Request) -> web.Response:
        await self._profiles.end(request[PRINCIPAL], _key(request), await _who(request))
        return web.json_response({})

    @Route(
        "POST", "/v1/profiles/{profile}/confirm", Role.OPERATOR, "Confirm the hours of a profile, and its switch",
        CONFIRMED,
        fails=(*CHANGES, 404, 503),
        body=json_body(record({}, who=WHO)),
    )  # fmt: skip
    async def _confirm_hours(self, request: web.Request) -> web.Response:
        who = await _who(request)
        await self._profiles.confirm_schedule(request[PRINCIPAL], request.match_info["profile"], who)
        return web.json_response({})

    def _declared(self, options: ProfileOptions) -> Json:
        confirmation = self._profiles.schedules.get(options.name)
        return {
            **fields_of(options, "name", "zones", "expected", "alarm_alone", "watchman", "mqtt"),
            "limits": dict(options.profile.limits),
            "longestMinutes": options.longest,
            "confirmMinutes": options.confirm,
            "hasHours": bool(options.hours),
            "confirmedBy": confirmation.who if confirmation else "",
            "confirmedUntilNs": str(self._wall_ns(self._profiles.due_ns(options))),
        }

    def _permit(self, key: ZoneKey, permit: Permit) -> Json:
        return {
            "namespace": key[0], "zone": key[1], "profile": permit.profile, "who": permit.who,
            "reason": permit.reason, "watchman": permit.watchman, "sinceNs": str(self._wall_ns(permit.since_ns)),
            "untilNs": str(self._wall_ns(permit.until_ns)),
            "confirmByNs": str(self._wall_ns(self._profiles.confirm_by_ns(permit))),
        }  # fmt: skip

    def _zone(self, key: ZoneKey) -> Json:
        present = self._profiles.profile_of(key)
        return {
            "namespace": key[0], "zone": key[1], "profile": present.name if present else NORMAL,
            "choices": self._profiles.choices(key),
        }  # fmt: skip

    def _wall_ns(self, time_ns: int) -> int:
        return time_ns + self._profiles.stepped_ns() if time_ns else 0


def _key(request: web.Request) -> ZoneKey:
    return request.match_info["namespace"], request.match_info["zone"]


async def _who(request: web.Request) -> str:
    who = text_of(await read_json(request), "who")
    check_action(who)
    return who


def schemas() -> Mapping[str, Json]:
    """Describe the answers."""
    flag: Json = {"type": "boolean"}
    limits: Json = {
        "type": "object", "additionalProperties": {"type": "number"},
        "description": f"by quantity: {', '.join(QUANTITIES)}",
    }  # fmt: skip
    profile = record(
        {
            "name": WORD, "zones": list_of(WORD), "expected": list_of(WORD), "alarmAlone": list_of(WORD),
            "limits": limits, "longestMinutes": whole(),
            "confirmMinutes": whole(), "watchman": flag, "hasHours": flag, "mqtt": flag,
            "confirmedBy": {"type": "string", "description": "who confirmed its hours or its switch; empty: nobody"},
            "confirmedUntilNs": NANOSECONDS,
        }
    )  # fmt: skip
    permit = record(
        {
            "namespace": WORD, "zone": WORD, "profile": WORD, "who": WORD, "reason": WORD, "watchman": WORD,
            "sinceNs": NANOSECONDS, "untilNs": NANOSECONDS, "confirmByNs": NANOSECONDS,
        }
    )  # fmt: skip
    zone = record({"namespace": WORD, "zone": WORD, "profile": WORD, "choices": list_of(WORD)})
    unconfirmed = {**list_of(WORD), "description": "a sentence for each zone or profile that nobody confirmed in time"}
    lists = {"profiles": list_of(profile), "permits": list_of(permit), "zones": list_of(zone)}
    return {"Profiles": record({**lists, "unconfirmed": unconfirmed})}
